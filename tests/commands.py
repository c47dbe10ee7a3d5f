"""Running the commands in subprocesses."""

import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from forked import ATTNLAB, ForkedProcess

TINY_REVERSE = (
    "data.symbols=5",
    "data.train_lengths=[2,4]",
    "data.val_lengths=[2,4]",
    "data.test_lengths=[2,4]",
    "data.train_size=200",
    "data.val_size=20",
    "data.test_size=21",
    "embedding.size=16",
    "encoder.size=16",
    "decoder.size=32",
    "batching.batch_size=16",
    "search.max_length=8",
    "optimizer.lr=0.01",
    "trainer.accelerator=cpu",
    "logger=none",
    "callbacks.attention_figures.count=0",
)
"""A task that is learned in a few seconds."""

LOGGED_REVERSE = (
    *TINY_REVERSE,
    "logger=wandb",
    "callbacks.attention_figures.count=4",
    "trainer.max_epochs=12",
)
"""Settings of the same task with all outputs, trained until most test sentences are right."""


def attnlab(
    *arguments: str,
    folder: Path,
    stdin: str | None = None,
    code: int = 0,
    process: type[subprocess.Popen[Any]] = ForkedProcess,
    **environment: str,
) -> subprocess.CompletedProcess[str]:
    """Run `attnlab ARGUMENTS` in a folder and wait until it ends, which must be with this exit code.

    In a fork of the test process, or with `process=subprocess.Popen` in a new one where imports matter.
    """
    command = [ATTNLAB, *arguments]
    with process(
        command,
        cwd=folder,
        env=clean_environment(**environment),
        stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        try:
            output, errors = running.communicate(stdin, timeout=300)
        except BaseException:
            running.kill()
            raise
    assert running.returncode == code, output + errors
    return subprocess.CompletedProcess(command, code, output, errors)


def clean_environment(**more: str) -> dict[str, str]:
    """Return an environment with one thread per process, no W&B account, and a cache for tests.

    In it, deprecation warnings of Hydra are errors.
    """
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("WANDB", "HYDRA"))
    }
    cache = str(Path(tempfile.gettempdir()) / "attnlab-tests")
    environment |= {"OMP_NUM_THREADS": "1", "COLUMNS": "120", "XDG_CACHE_HOME": cache}
    return {**environment, "HYDRA_DEPRECATION_WARNINGS_AS_ERRORS": "1", **more}
