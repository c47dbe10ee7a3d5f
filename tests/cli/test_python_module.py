import subprocess
import sys
from pathlib import Path

import pytest

from commands import clean_environment


@pytest.mark.slow
def test_package_is_a_command(tmp_path: Path) -> None:
    """`tests/test_wheel.py` trains with it."""
    command = [sys.executable, "-m", "attnlab", "train", "attention=additve"]
    wrong = subprocess.run(
        command, cwd=tmp_path, env=clean_environment(), capture_output=True, text=True, check=False
    )
    assert wrong.returncode == 2
    assert "Did you mean 'additive'?" in wrong.stderr
