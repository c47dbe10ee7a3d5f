"""Finding run directories and reading their files.

An unreadable run directory becomes a broken record with the reason, so that a report shows missing runs.
Interpolations in configurations, such as `${oc.env:…}`, are never resolved.
"""

import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from attnlab.errors import UserError
from attnlab.files.metrics_file import read_metrics
from attnlab.files.predictions import Prediction, read_predictions
from attnlab.files.run_directory import Run, predictions_file
from attnlab.files.terminal import escape_control_characters
from attnlab.metrics import registry
from attnlab.report.record import RunRecord
from attnlab.report.study import Study
from attnlab.report.variants import distinguish_variants, mark_duplicates, separate_changed_runs

RUN_NAME = re.compile(r"(?P<variant>.+)-seed(?P<seed>\d+)-[0-9a-f]{8}")

UNFINISHED = {
    "not started": "run the same command again to train it",
    "running": "still running, or killed",
    "interrupted": "run the same command again to resume it",
    "failed": "result.json contains no error message",
}
"""Default explanations of the statuses of unfinished runs."""


def collect(
    paths: Sequence[Path], progress: Callable[[int, int], None] = lambda position, total: None
) -> Study:
    """Read every run directory at or below the paths, finished or not.

    Runs with the same variant name and different settings, or data, become separate variants. Duplicates of a
    run are reported as broken.

    Args:
        progress: called before each run is read, with its position from 1 and the total.
    """
    paths = [path.expanduser() for path in paths]
    for path in paths:
        if not path.exists():
            raise UserError(f"{path} does not exist. Give run directories, or folders that contain some.")
    directories = [*_find_runs(paths)]
    if not directories:
        folders = ", ".join(str(path) for path in paths)
        raise UserError(f"{folders} contains no run directory. Give the folder of a study, outputs/NAME.")
    runs = []
    for position, directory in enumerate(directories, start=1):
        progress(position, len(directories))
        runs.append(_read_run(Run(directory)))
    runs = separate_changed_runs(distinguish_variants(mark_duplicates(runs)))
    runs.sort(key=lambda run: (run.variant, run.seed, run.directory))
    names = sorted({run.study for run in runs if run.config}) or [runs[0].study]
    return Study(" + ".join(names), runs)


def load_predictions(path: Path) -> list[Prediction]:
    """Read a file of predictions that may be damaged or foreign; an empty list if it does not exist."""
    try:
        predictions = read_predictions(path)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path.name} is not a valid file of predictions: {error}") from error
    for prediction in predictions:
        texts = (prediction.source, *prediction.references, prediction.hypothesis)
        if not all(isinstance(text, str) for text in (*texts, *prediction.tokens, *prediction.source_tokens)):
            raise UserError(f"{path.name} contains a text or token that is not a string")
    return predictions


def read_evaluations(run: Path) -> list[tuple[Path, dict[str, Any]]]:
    """Return the folder and the result of each evaluation in a run directory, sorted by folder."""
    paths = sorted(run.glob("evaluations/*/result.json"))
    return [(path.parent, json.loads(path.read_text(encoding="utf-8"))) for path in paths]


def _find_runs(paths: Sequence[Path]) -> Iterator[Path]:
    """Yield each run directory at or below the paths once; follow symbolic links, but no cycles."""
    seen: set[Path] = set()
    for path in paths:
        for name, subfolders, files in os.walk(path, followlinks=True):
            folder = Path(name).resolve()
            is_run = "config.yaml" in files or "result.json" in files or RUN_NAME.fullmatch(folder.name)
            if is_run and folder not in seen:
                yield folder
            if is_run or folder in seen:
                subfolders.clear()  # run directories are not nested
            subfolders.sort()
            seen.add(folder)


def _read_run(run: Run) -> RunRecord:
    """Read a run directory; return a broken record if that fails."""
    name = run.directory.name
    match = RUN_NAME.fullmatch(name)
    record = RunRecord(
        directory=run.directory,
        study=run.directory.parent.name,
        variant=match["variant"] if match else name,
        seed=int(match["seed"]) if match else -1,
        status="broken",
    )
    try:
        record = replace(record, **_settings(run))
        record = replace(record, **_progress(run))
        return replace(record, **_results(run)) if record.finished else record
    except Exception as error:  # an unreadable directory must not hide the others
        reason = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
        return replace(record, status="broken", error=reason)


def _settings(run: Run) -> dict[str, Any]:
    """Return the configuration, and the attributes of a record that it contains."""
    config = run.read_settings()
    missing = [key for key in ("name", "variant", "seed") if config.get(key) is None]
    if missing:
        raise UserError(f"config.yaml lacks {', '.join(missing)}: it is not the configuration of a run")
    if not str(config["seed"]).isdecimal():
        raise UserError(f"config.yaml has seed={config['seed']}, which is not a whole number")
    return {
        "study": escape_control_characters(str(config["name"])),
        "variant": escape_control_characters(str(config["variant"])),
        "seed": int(config["seed"]),
        "config": {str(key): value for key, value in config.items()},
    }


def _progress(run: Run) -> dict[str, Any]:
    """Return the status, the logged metrics, and the code and machine that trained the run."""
    problem = run.result_problem()
    if problem is not None:
        raise UserError(f"result.json {problem}")
    result = run.read_result()
    status = result.get("status", "not started")  # a worker writes result.json first
    try:
        series = read_metrics(run.metrics) if run.metrics.is_file() else {}
    except (KeyError, TypeError, ValueError) as damage:
        raise UserError(f"metrics.csv cannot be read: {damage}") from damage
    steps_per_second = series.get("throughput/steps_per_second", [])
    return {
        "status": status,
        "error": None if status == "finished" else str(result.get("error") or UNFINISHED.get(status)),
        "series": series,
        "tokens_per_second": _median(series.get("throughput/tokens_per_second", [])),
        "seconds_per_step": _median([(step, 1 / value) for step, value in steps_per_second if value > 0]),
        "commit": result.get("git_commit"),
        "cpu": result.get("cpu"),
        "versions": {"python": result["python"], **result["packages"]} if "packages" in result else {},
    }


def _results(run: Run) -> dict[str, Any]:
    """Return the scores, the costs and the outputs of a finished run."""
    result = run.read_result()
    registry.register_described(result.get("described", {}))
    memory = result.get("peak_memory") or {}
    splits = dict.fromkeys(registry.split(name) for name in result["metrics"])
    stored = {split: run.predictions / predictions_file(split) for split in splits}
    stored = {split: path for split, path in stored.items() if path.is_file()}
    used = [split for split in stored if split != "val"] or list(stored)
    return {
        "scores": {name: float(value) for name, value in result["metrics"].items()},
        "undefined": {str(name): str(reason) for name, reason in result.get("undefined", {}).items()},
        **{name: result.get(name) for name in ("parameters", "steps", "seconds")},
        "peak_memory": memory.get("gpu", memory.get("host")),
        "signatures": result.get("signatures", {}),
        "data": {name: split["sha256"] for name, split in result.get("data", {}).get("splits", {}).items()},
        "code": result.get("code", {}).get("parts", {}),
        "seen": {split: {*indices} for split, indices in result.get("seen", {}).items()},
        "predictions": {split: load_predictions(stored[split]) for split in used},
    }


def _median(series: list[tuple[int, float]]) -> float | None:
    return median(value for _, value in series) if series else None
