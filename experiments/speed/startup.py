"""Time from `attnlab train` to the first training step.

    python startup.py experiment=reverse_published

Watches the files of a run: its directory is created after the configuration is composed, `result.json` when
the worker starts, and `metrics.csv` after the first step.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from tables import print_table

ATTNLAB = str(Path(sys.executable).with_name("attnlab"))


def seconds_until(event: Callable[[], object], process: subprocess.Popen[bytes], since: float) -> float:
    """Poll every 5 ms until the event; return the seconds since `since`."""
    while not event():
        if process.poll() not in (None, 0):
            raise SystemExit(f"{process.args} failed")
        time.sleep(0.005)
    return time.perf_counter() - since


def watch(overrides: list[str]) -> list[float]:
    """Return the times of the configuration, the worker and the first step in seconds."""
    with tempfile.TemporaryDirectory() as folder:
        settings = ["trainer.max_steps=1", "trainer.log_every_n_steps=1", "trainer.limit_val_batches=1"]
        command = [ATTNLAB, "train", *settings, "data.test_size=0", *overrides, f"paths.output={folder}"]
        began = time.perf_counter()
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            moments = [
                seconds_until(lambda name=name: list(Path(folder).rglob(name)), process, began)
                for name in ("config.yaml", "result.json", "metrics.csv")
            ]
            process.wait()
        return moments


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("overrides", nargs="*", metavar="OVERRIDE", help="settings of attnlab train")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--csv", type=Path, help="file of the table")
    options = parser.parse_intermixed_args()

    help_times = []
    for _ in range(options.rounds):
        began = time.perf_counter()
        subprocess.run([ATTNLAB, "--help"], stdout=subprocess.DEVNULL, check=True)
        help_times.append(time.perf_counter() - began)
    moments = zip(*(watch(options.overrides) for _ in range(options.rounds)), strict=True)
    events = ("configuration composed", "worker started", "first step finished")
    times = {"attnlab --help": help_times, **dict(zip(events, moments, strict=True))}
    rows = [
        {"until": name, "median s": f"{median(seconds):.2f}", "best s": f"{min(seconds):.2f}"}
        for name, seconds in times.items()
    ]
    print_table(rows, "Start of attnlab train", options.csv)


if __name__ == "__main__":
    main()
