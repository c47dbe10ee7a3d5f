import subprocess
import sys
from pathlib import Path

import pytest

from commands import clean_environment


@pytest.mark.slow
def test_usage_error_of_python_m_attnlab(tmp_path: Path) -> None:
    """`tests/test_wheel.py` trains by `python -m attnlab`."""
    command = [sys.executable, "-m", "attnlab", "train", "attention=additve"]
    wrong = subprocess.run(
        command, cwd=tmp_path, env=clean_environment(), capture_output=True, text=True, check=False
    )
    assert wrong.returncode == 2
    assert "Did you mean 'additive'?" in wrong.stderr
