"""Training a finished run again, killed and resumed, and comparing all outputs bit by bit."""

import hashlib
import json
import random
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig

from attnlab.errors import UserError
from attnlab.fast.machine import LIBRARY
from attnlab.files.run_directory import Run, prepare_run
from attnlab.jobs.worker_process import kill, start_worker
from attnlab.training.checkpoints import read_checkpoint

Outputs = dict[str, dict[str, str]]
"""Contents of the files of a run. Files are keys, and so are places in a file: a line, a metric, a tensor."""

STATES = ("state_dict", "optimizer_states", "lr_schedulers")
"""Entries of a checkpoint that are compared: weights, and states of optimizers and schedulers."""

POLL_INTERVAL = 0.02  # Seconds between two checks of a worker
SHORTEST_WINDOW = 1.0  # Least number of seconds within which the moment of a kill is drawn


def read_outputs(run: Run) -> Outputs:
    """Read everything that must depend neither on interruptions nor on the speed of the machine.

    These are scores, digests of the weights after every epoch, logged numbers but `throughput/…`, predictions
    with their attention weights, and both checkpoints.
    """
    result = run.read_result()
    compared = {key: result[key] for key in ("epoch_digests", "metrics", "steps") if key in result}
    outputs = {
        "result.json": dict(_leaves(compared)),
        "metrics.csv": _numbered(line for line in _read_lines(run.metrics) if ",throughput/" not in line),
    }
    for path in sorted(run.predictions.iterdir()):
        outputs[f"predictions/{path.name}"] = _numbered(_read_lines(path))
    for path in (run.best, run.last):
        checkpoint = read_checkpoint(path)
        outputs[f"checkpoints/{path.name}"] = dict(_leaves({key: checkpoint[key] for key in STATES}))
    return outputs


def _read_lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def _numbered(rows: Iterable[str]) -> dict[str, str]:
    return {f"row {number}": row for number, row in enumerate(rows, start=1)}


def _leaves(node: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Yield the dotted name and the text of every value; for a tensor, its digest."""
    if isinstance(node, Mapping | list | tuple):
        items = node.items() if isinstance(node, Mapping) else enumerate(node)
        for key, child in items:
            yield from _leaves(child, f"{name}.{key}".lstrip("."))
    elif isinstance(node, torch.Tensor):
        content = node.contiguous().view(torch.uint8) if node.ndim else node.reshape(1).view(torch.uint8)
        yield name, f"{node.dtype} {list(node.shape)} {_sha256(content.numpy().tobytes())}"
    else:
        yield name, repr(node)


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def digests(outputs: Outputs) -> dict[str, str]:
    """Return a SHA-256 of each file of some outputs."""
    return {name: _sha256(json.dumps(places).encode()) for name, places in outputs.items()}


def find_difference(expected: Outputs, actual: Outputs) -> str | None:
    """Describe the first difference between the outputs of two runs; None if they are equal."""
    for name, places in expected.items():
        others = actual.get(name)
        if others is None:
            return f"{name} was not written"
        for place in [*places, *others]:
            if places.get(place) != others.get(place):
                return f"{name}, {place}: {_short(places.get(place))}, again: {_short(others.get(place))}"
    return None


def _short(value: str | None) -> str:
    return "missing" if value is None else value if len(value) <= 200 else f"{value[:200]}…"


def train_again(run: Run, folder: Path, kills: int, draw: random.Random) -> tuple[Run, int]:
    """Train a finished run again in another folder; its worker is killed at random moments, and resumed.

    There are at most `kills` of them, by SIGKILL, and fewer if the run finishes before. They are printed.
    Returns the new run and the number of kills.
    """
    result = run.read_result()
    seconds = float(result.get("seconds", 0.0))
    window = max(SHORTEST_WINDOW, 2 * seconds / max(kills, 1))
    again = prepare_run(_config(run, folder, checkpoint_interval=window / 8))
    # The choices of the run without timings
    variables = {"threads": "OMP_NUM_THREADS", "products": LIBRARY}
    machine = {variable: str(result[name]) for name, variable in variables.items() if name in result}
    done = 0
    while True:
        moment = draw.uniform(0, window) if done < kills else None
        code = _train_until(again, moment, machine)
        if code is None:
            done += 1
            print(f"kill {done} after {moment:.2f} s", flush=True)
        elif code == 0:
            return again, done
        else:
            raise UserError(f"the training failed: {again.read_result().get('error')}; see {again.log}")


def _config(run: Run, folder: Path, checkpoint_interval: float) -> DictConfig:
    """Return the configuration of a run with another folder; the changed settings do not affect results."""
    config = run.read_config()
    config.paths.output = str(folder)
    config.force = False
    config.logger = {}
    config.checkpoint.every_minutes = checkpoint_interval / 60
    return config


def _train_until(run: Run, moment: float | None, environment: Mapping[str, str]) -> int | None:
    """Start the worker of a run, wait until it ends, and return its exit code.

    Or kill it this many seconds after it has imported PyTorch; the result is then None.
    """
    first_line = len(_read_lines(run.log)) if run.log.exists() else 0
    deadline = None
    with start_worker(run, environment, to_log=True) as worker:
        try:
            if moment is None:
                return worker.wait()
            while worker.poll() is None:
                # Its first line is about the imports, the second one about the data
                if deadline is None and run.log.exists() and len(_read_lines(run.log)) >= first_line + 2:
                    deadline = time.monotonic() + moment
                if deadline is not None and time.monotonic() >= deadline:
                    kill(worker)
                    return None if worker.wait() < 0 else worker.returncode
                time.sleep(POLL_INTERVAL)
            return worker.returncode
        finally:
            kill(worker)
