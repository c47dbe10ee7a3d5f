"""Resume a run on changing numbers of processes: the results must not depend on them.

    python device_counts.py --resumptions 50

Trains the same run with `batching.shards=4` three times: in one process; in two; and stopped at random steps,
half of the times by SIGINT and half by SIGKILL, each time resumed with one or two processes at random. A row
per start is appended to `device_counts.csv`. Started again, the script continues after the last row. It ends
with 1 if the three digests of weights, optimizer state, metrics and predictions are not equal.
"""

import argparse
import hashlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from rows import append_row, read_rows

from attnlab.config.compose import compose_run
from attnlab.errors import INTERRUPTED
from attnlab.files.run_directory import Run, prepare_run
from attnlab.jobs.verification import digests, read_outputs
from attnlab.jobs.worker_process import worker_environment

SETTINGS = (
    "data.symbols=5",
    "data.train_lengths=[2,4]",
    "data.val_lengths=[2,4]",
    "data.test_lengths=[2,4]",
    "data.train_size=400",
    "data.val_size=20",
    "data.test_size=20",
    "embedding.size=16",
    "embedding.dropout=0.2",
    "embedding.word_dropout=0.1",
    "encoder.size=16",
    "decoder.size=32",
    "decoder.recurrent_dropout=0.1",
    "attention=monotonic",  # draws noise
    "teacher_forcing.start=0.5",
    "search.max_length=8",
    "callbacks.averaging.decay=0.9",
    "scheduler=plateau",
    "batching.batch_size=16",
    "batching.shards=4",
    "trainer.accelerator=cpu",
    "trainer.accumulate_grad_batches=2",
    "trainer.log_every_n_steps=1",
    "checkpoint.every_minutes=0.01",
    "logger=none",
)
STEPS_PER_EPOCH = 13
"""Optimizer steps: 25 batches of 16 sequences, accumulated by two."""


def main() -> int:
    """Train what is missing and compare the digests; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--resumptions", type=int, default=50)
    parser.add_argument("--output", type=Path, default=Path("outputs/device_counts"), help="run directories")
    parser.add_argument("--csv", type=Path, default=Path(__file__).with_suffix(".csv"))
    options = parser.parse_args()

    epochs = 2 + options.resumptions
    draw = random.Random(options.resumptions)
    stops = sorted(draw.sample(range(1, epochs * STEPS_PER_EPOCH - 20), options.resumptions))
    devices = [draw.choice((1, 2)) for _ in range(options.resumptions + 1)]
    plan: dict[str, list[tuple[int, int | None]]] = {
        "one process": [(1, None)],
        "two processes": [(2, None)],
        "changing": list(zip(devices, [*stops, None], strict=True)),
    }
    digests = {}
    for name, starts in plan.items():
        for number, (count, stop) in enumerate(starts, start=1):
            if number > len(rows_of(options.csv, name)):
                row = train(name, number, count, stop, epochs, options.output)
                append_row(options.csv, row)
                print(f"{name}, start {number} of {len(starts)}:", *row.values(), flush=True)
        digests[name] = rows_of(options.csv, name)[-1]["digest"]
    equal = len(set(digests.values())) == 1
    print(f"{len(stops)} resumptions: the digests are {'equal' if equal else 'NOT equal'}: {digests}")
    return 0 if equal else 1


def train(
    name: str, number: int, devices: int, stop: int | None, epochs: int, output: Path
) -> dict[str, object]:
    """Start or resume a run, stop it at about this optimizer step, and return the row of this start."""
    config = compose_run(
        [
            *SETTINGS,
            f"trainer.devices={devices}",
            f"trainer.max_epochs={epochs}",
            f"paths.output={output / name.replace(' ', '_')}",
        ]
    )
    run = prepare_run(config)
    first = last_step(run)
    began = time.monotonic()
    worker = subprocess.Popen(
        [sys.executable, "-m", "attnlab.jobs.worker", str(run.directory)],
        env={**worker_environment(), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    kill = signal.SIGINT if number % 2 else signal.SIGKILL
    try:
        sent = stop is not None and wait_for_step(run, worker, max(stop, first + 1))
        if sent:
            os.killpg(worker.pid, kill)
        code = worker.wait()
    finally:
        if worker.poll() is None:
            os.killpg(worker.pid, signal.SIGKILL)
    stopped = {signal.SIGINT: INTERRUPTED, signal.SIGKILL: -signal.SIGKILL}[kill]
    if code not in ((0, stopped) if sent else (0,)):
        raise SystemExit(f"{name}, start {number}: ended with exit code {code}, see {run.log}")
    return {
        "run": name,
        "start": number,
        "devices": devices,
        "first_step": first,
        "last_step": last_step(run),
        "ended_by": kill.name if code else "end",
        "seconds": f"{time.monotonic() - began:.1f}",
        "digest": "" if code else digest(run),
    }


def wait_for_step(run: Run, worker: subprocess.Popen[bytes], step: int) -> bool:
    """Wait until the run has logged a step; returns whether it has, False if it ended before."""
    while worker.poll() is None:
        if last_step(run) >= step:
            return True
        time.sleep(0.02)
    return False


def last_step(run: Run) -> int:
    """Return the last step in metrics.csv, 0 if there is none."""
    if not run.metrics.exists():
        return 0
    lines = run.metrics.read_text().splitlines(keepends=True)
    steps = [line.split(",")[1] for line in lines[-5:] if line.endswith("\n")]
    return max((int(step) for step in steps if step.isdigit()), default=0)


def digest(run: Run) -> str:
    """Return a digest of the weights and optimizer states of every epoch, metrics and predictions."""
    files = digests(read_outputs(run))
    compared = {name: content for name, content in files.items() if not name.startswith("checkpoints/")}
    return hashlib.sha256(repr(compared).encode()).hexdigest()


def rows_of(path: Path, name: str) -> list[dict[str, str]]:
    """Read the rows of a run so far."""
    return [row for row in read_rows(path) if row["run"] == name]


if __name__ == "__main__":
    sys.exit(main())
