import subprocess
import sys
from pathlib import Path

import pytest

from commands import TINY_REVERSE, clean_environment


@pytest.mark.slow
def test_package_is_a_command(tmp_path: Path) -> None:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "attnlab", *arguments],
            cwd=tmp_path,
            env=clean_environment(),
            capture_output=True,
            text=True,
            check=False,
        )

    done = run("train", *TINY_REVERSE, "trainer.max_epochs=1")
    assert done.returncode == 0, done.stderr
    assert len([*tmp_path.glob("outputs/*/*/checkpoints/best.ckpt")]) == 1
    wrong = run("train", "attention=additve")
    assert wrong.returncode == 2
    assert "Did you mean 'additive'?" in wrong.stderr
