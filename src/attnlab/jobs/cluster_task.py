"""The function that a job of a cluster runs. Imports no torch.

All machines see the run directories. The state of a run is read from there, whatever machine trained it.
"""

import os
import time
from dataclasses import dataclass, field
from pathlib import Path

from attnlab.config.options import CONFIG_DIR
from attnlab.files.run_directory import Run
from attnlab.jobs.status import state
from attnlab.jobs.worker_process import Worker, train_in_worker

WAIT_INTERVAL = 0.5
"""Seconds between two checks of the worker."""


@dataclass(frozen=True)
class ClusterTask:
    """Trains a run, or resumes it if the cluster starts the job again."""

    directory: Path  # run directory
    # current folder of the sweep, in which custom classes and data files are found
    folder: Path = field(default_factory=Path.cwd)
    # folders of options, beside which custom classes are found
    config_dirs: str = field(default_factory=lambda: os.environ.get(CONFIG_DIR, ""))
    # command of the sweep, for result.json
    command: str = field(default_factory=lambda: os.environ.get("ATTNLAB_COMMAND", ""))

    def __call__(self) -> int:
        """Train the run; returns the exit code of its worker, see `worker_process.record_exit`."""
        os.chdir(self.folder)
        os.environ[CONFIG_DIR] = self.config_dirs
        os.environ["ATTNLAB_COMMAND"] = self.command
        run = Run(self.directory)
        return 0 if state(run) == "finished" else train_in_worker(run, wait=_wait, to_log=True).code


def _wait(worker: Worker) -> int:
    """Wait until a worker ends, in short steps: Ray interrupts Python code, but no system call."""
    while (code := worker.poll()) is None:
        time.sleep(WAIT_INTERVAL)
    return code
