"""Find run directories, read what they hold, and name the variants apart.

A run directory that cannot be read is kept as a broken one, with what is wrong with it: a study never looks
better because a run is missing from it.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite
from pathlib import Path
from statistics import fmean, median
from typing import Any

from omegaconf import OmegaConf

from attnlab.errors import UserError
from attnlab.metrics.registry import MAIN_METRICS, better
from attnlab.runs.directory import Run
from attnlab.runs.identity import identity
from attnlab.runs.metrics_file import read_metrics
from attnlab.runs.predictions import Prediction, read_predictions

RUN_NAME = re.compile(r"(?P<variant>.+)-seed(?P<seed>\d+)-[0-9a-f]{8}")
SEPARATOR = " · "
"""Between a variant's name and the settings that tell it apart."""

UNFINISHED = {
    "running": "still running, or killed before it could say so",
    "interrupted": "stopped in good order; the same command goes on",
    "failed": "no error was told",
}
"""Why a run is not finished, where its result.json does not say."""


@dataclass(frozen=True)
class RunRecord:
    """What one run directory holds."""

    directory: Path
    study: str
    """`name` in its configuration."""
    variant: str
    """`variant` in its configuration, and the settings that tell it from others of that name."""
    seed: int
    """-1 where neither the configuration nor the directory's name tells it."""
    status: str
    """finished, running, failed, interrupted, or broken: not to be read, or the copy of another."""
    error: str | None = None
    """Why it is not finished; None for a finished run."""
    config: dict[str, Any] = field(default_factory=dict)
    scores: dict[str, float] = field(default_factory=dict)
    parameters: int | None = None
    steps: int | None = None
    seconds: float | None = None
    """Time to train."""
    peak_memory: int | None = None
    """Bytes: on the GPU where there was one, else on the host."""
    tokens_per_second: float | None = None
    """Source and target tokens, without padding; median over the training."""
    seconds_per_step: float | None = None
    """Median over the training."""
    series: dict[str, list[tuple[int, float]]] = field(default_factory=dict)
    """Each metric's (step, value), in the order logged."""
    split: str | None = None
    """What was predicted: "test", or "val" where there is no test split."""
    predictions: list[Prediction] = field(default_factory=list)
    signatures: dict[str, str] = field(default_factory=dict)
    """How sacreBLEU computed its scores."""
    commit: str | None = None
    versions: dict[str, str] = field(default_factory=dict)
    """Of Python and of the packages."""

    @property
    def finished(self) -> bool:
        """Whether its scores count."""
        return self.status == "finished"


@dataclass(frozen=True)
class Study:
    """Runs to compare, ordered by variant, seed and directory."""

    name: str
    runs: list[RunRecord]
    asked: tuple[str, ...] = ()
    """Metrics to compare by, if not the main ones."""

    @property
    def finished(self) -> list[RunRecord]:
        """The runs whose scores count."""
        return [run for run in self.runs if run.finished]

    @property
    def unfinished(self) -> list[RunRecord]:
        """The others."""
        return [run for run in self.runs if not run.finished]

    @property
    def metrics(self) -> list[str]:
        """What to compare by: the metrics asked for, or the main scores that finished runs have.

        Those of the test split if they have any of it. The first orders the variants.
        """
        if self.asked:
            return list(self.asked)
        known = {name for run in self.finished for name in run.scores}
        for split in ("test", "val"):
            found = [f"{split}/{name}" for name in MAIN_METRICS if f"{split}/{name}" in known]
            if found:
                return found
        return []

    @property
    def variants(self) -> list[str]:
        """Variants with a finished run, the best mean of the first of `metrics` first."""

        def rank(variant: str) -> tuple[float, str]:
            scores = [run.scores.get(metric, float("nan")) for run in groups[variant] for metric in main]
            mean = fmean(scores) if scores else float("nan")
            if not isfinite(mean):
                return float("inf"), variant
            return (mean if better(main[0]) == "lower" else -mean), variant

        main = self.metrics[:1]
        groups = _by_variant(self.finished)
        return sorted(groups, key=rank)

    def by_variant(self) -> dict[str, list[RunRecord]]:
        """The finished runs of each variant, in the order of `variants`."""
        groups = _by_variant(self.finished)
        return {variant: groups[variant] for variant in self.variants}

    @property
    def seeds(self) -> list[int]:
        """Seeds of finished runs."""
        return sorted({run.seed for run in self.finished})


def collect(paths: Sequence[Path]) -> Study:
    """Read every run directory at or under the paths, finished or not.

    Runs that share a variant's name and differ in other settings become variants of their own, such as
    "additive · decoder.size=128". Of copies of one run, one counts.

    Raises:
        UserError: if a path does not exist, or no path holds a run.
    """
    for path in paths:
        if not path.exists():
            raise UserError(f"{path} does not exist: give run directories, or folders that hold some")
    records = [_read(Run(directory)) for directory in _find(paths)]
    if not records:
        told = ", ".join(str(path) for path in paths)
        raise UserError(f"no run directory in {told}: give the folder of a study (outputs/NAME)")
    records = _told_apart(_without_copies(records))
    names = sorted({record.study for record in records if record.config}) or [records[0].study]
    return Study(" + ".join(names), sorted(records, key=_place))


def _find(paths: Sequence[Path]) -> Iterator[Path]:
    """Run directories at or under the paths, each once; symbolic links are followed, circles are not."""
    seen: set[Path] = set()
    for path in paths:
        for folder, subfolders, files in os.walk(path.expanduser(), followlinks=True):
            place = Path(folder).resolve()
            is_run = "config.yaml" in files or "result.json" in files or RUN_NAME.fullmatch(place.name)
            if is_run and place not in seen:
                yield place
            if is_run or place in seen:
                subfolders.clear()  # what lies in a run directory is no run
            subfolders.sort()
            seen.add(place)


def _read(run: Run) -> RunRecord:
    """A run directory's record; a broken one where it cannot be read."""
    record = _nameless(run)
    try:
        record = _configured(run, record)
        return _finished(run, record) if record.finished else record
    # Whatever is wrong with one directory must not hide the others.
    except Exception as error:
        told = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
        return replace(record, status="broken", error=told)


def _nameless(run: Run) -> RunRecord:
    """What a directory's name tells."""
    name = run.directory.name
    found = RUN_NAME.fullmatch(name)
    return RunRecord(
        directory=run.directory,
        study=run.directory.parent.name,
        variant=found["variant"] if found else name,
        seed=int(found["seed"]) if found else -1,
        status="broken",
    )


def _configured(run: Run, record: RunRecord) -> RunRecord:
    """With what config.yaml and the state in result.json tell, and the curves so far."""
    config = OmegaConf.to_container(run.read_config(), resolve=True)
    assert isinstance(config, dict)
    missing = [key for key in ("name", "variant", "seed") if config.get(key) is None]
    if missing:
        raise UserError(f"config.yaml lacks {', '.join(missing)}: it is not a run's")
    record = replace(
        record,
        study=str(config["name"]),
        variant=str(config["variant"]),
        seed=int(config["seed"]),
        config={str(key): value for key, value in config.items()},
    )
    result = run.read_result()
    status = result.get("status", "running")
    if status != "finished" and status not in UNFINISHED:
        raise UserError(f"result.json holds no known status: {status!r}")
    why = "no result.json yet" if not result else result.get("error") or UNFINISHED.get(status)
    series = read_metrics(run.metrics) if run.metrics.is_file() else {}
    pace = series.get("throughput/steps_per_second", [])
    return replace(
        record,
        status=status,
        error=None if status == "finished" else str(why),
        series=series,
        tokens_per_second=_median(series.get("throughput/tokens_per_second", [])),
        seconds_per_step=_median([(step, 1 / value) for step, value in pace if value > 0]),
        commit=result.get("git_commit"),
        versions={"python": result["python"], **result["packages"]} if "packages" in result else {},
    )


def _finished(run: Run, record: RunRecord) -> RunRecord:
    """With the results and predictions of a finished run."""
    result = run.read_result()
    if not result.get("metrics"):
        raise UserError("result.json says finished and holds no metrics")
    memory = result.get("peak_memory") or {}
    split = next((name for name in ("test", "val") if _predictions_file(run, name).is_file()), None)
    return replace(
        record,
        scores={name: float(value) for name, value in result["metrics"].items()},
        parameters=result.get("parameters"),
        steps=result.get("steps"),
        seconds=result.get("seconds"),
        peak_memory=memory.get("gpu", memory.get("host")),
        signatures=result.get("signatures", {}),
        split=split,
        predictions=[] if split is None else read_predictions(_predictions_file(run, split)),
    )


def _predictions_file(run: Run, split: str) -> Path:
    return run.predictions / f"{split}.jsonl"


def _median(series: list[tuple[int, float]]) -> float | None:
    return median(value for _, value in series) if series else None


def _without_copies(records: list[RunRecord]) -> list[RunRecord]:
    """The records, with all but one of the same configuration marked as copies; a finished one counts."""
    counted: dict[str, RunRecord] = {}
    kept = []
    for record in sorted(records, key=lambda record: (not record.finished, record.directory)):
        identity = json.dumps([record.variant, record.seed, _settings(record)], sort_keys=True, default=str)
        first = counted.setdefault(identity, record) if record.config else record
        if first is record:
            kept.append(record)
        else:
            kept.append(replace(record, status="broken", error=f"a copy of {first.directory}, which counts"))
    return kept


def _told_apart(records: list[RunRecord]) -> list[RunRecord]:
    """The records, with variants that differ in more than their seed named by the settings that differ."""
    named = [record for record in records if not record.config]
    for variant, runs in _by_variant([record for record in records if record.config]).items():
        settings = [_settings(run) for run in runs]
        keys = _telling(runs, settings)
        for run, values in zip(runs, settings, strict=True):
            words = [variant, *(_setting(key, values.get(key), settings) for key in keys)]
            named.append(replace(run, variant=SEPARATOR.join(words)))
    return named


def _settings(record: RunRecord) -> dict[str, Any]:
    """Every setting a run follows from, by its dotted name, but for its variant and its seed."""
    return {name: value for name, value in identity(record.config).items() if name not in ("variant", "seed")}


def _telling(runs: list[RunRecord], settings: list[dict[str, Any]]) -> list[str]:
    """The settings that tell runs apart: no more than are needed, and the telling ones first.

    A setting that is the run's own seed in every run (`data.seed=${seed}`) tells nothing.
    """
    names = dict.fromkeys(name for values in settings for name in values)
    by_worth = sorted(names, key=lambda name: (name != "name", not name.endswith("_target_")))
    chosen: list[str] = []
    told = 1
    for name in by_worth:
        if all(values.get(name) == run.seed for run, values in zip(runs, settings, strict=True)):
            continue
        groups = len({str([values.get(key) for key in (*chosen, name)]) for values in settings})
        if groups > told:
            chosen.append(name)
            told = groups
    return chosen


def _setting(name: str, value: Any, settings: list[dict[str, Any]]) -> str:
    """`name=value` as one would type it; of a `_target_` its class, where that is enough."""
    if not name.endswith("._target_"):
        return f"{name}={value if isinstance(value, str) else json.dumps(value, default=str)}"
    targets = {str(values.get(name)) for values in settings}
    short = {target.rpartition(".")[2] for target in targets}
    shown = str(value).rpartition(".")[2] if len(short) == len(targets) else value
    return f"{name.removesuffix('._target_')}={shown}"


def _by_variant(runs: Sequence[RunRecord]) -> dict[str, list[RunRecord]]:
    groups: dict[str, list[RunRecord]] = {}
    for run in runs:
        groups.setdefault(run.variant, []).append(run)
    return groups


def _place(record: RunRecord) -> tuple[str, int, Path]:
    return record.variant, record.seed, record.directory
