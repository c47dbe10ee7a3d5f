"""Records of runs, and the study that groups them into variants."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from statistics import fmean
from typing import Any

from attnlab.files.predictions import Prediction
from attnlab.metrics.registry import MAIN_METRICS, better, split


@dataclass(frozen=True)
class RunRecord:
    """Contents of one run directory.

    Attributes:
        directory: path of the run directory.
        study: `name` in its configuration.
        variant: `variant` in its configuration, followed by the settings that distinguish it from other runs
            with the same `variant`; see `attnlab.report.variants`.
        seed: random seed; -1 if neither the configuration nor the name of the directory gives it.
        status: "finished", "running", "failed", "interrupted", or "broken": unreadable, or a duplicate.
        error: why the run is not finished; None for a finished run.
        config: the configuration, with interpolations as unresolved text.
        scores: final metrics by name, such as "test/bleu".
        parameters: number of parameters, frozen ones included.
        steps: number of training steps.
        seconds: training time.
        peak_memory: bytes, of the GPU if there is one, else of the host.
        tokens_per_second: source and target tokens without padding, median over the training.
        seconds_per_step: median over the training.
        series: (step, value) of each logged metric, in the order logged.
        split: the split of `predictions`: "test" or the first named test set, or "val" without test data.
        predictions: decoded sentences of that split.
        other_test_sets: decoded sentences of the other named test sets, by split ("test/mscoco").
        signatures: sacreBLEU signatures of the scores.
        commit: git commit of the code.
        cpu: name of the processor.
        versions: versions of Python and of the packages.
    """

    directory: Path
    study: str
    variant: str
    seed: int
    status: str
    error: str | None = None
    config: dict[str, Any] = field(default_factory=dict)
    scores: dict[str, float] = field(default_factory=dict)
    parameters: int | None = None
    steps: int | None = None
    seconds: float | None = None
    peak_memory: int | None = None
    tokens_per_second: float | None = None
    seconds_per_step: float | None = None
    series: dict[str, list[tuple[int, float]]] = field(default_factory=dict)
    split: str | None = None
    predictions: list[Prediction] = field(default_factory=list)
    other_test_sets: dict[str, list[Prediction]] = field(default_factory=dict)
    signatures: dict[str, str] = field(default_factory=dict)
    commit: str | None = None
    cpu: str | None = None
    versions: dict[str, str] = field(default_factory=dict)

    @property
    def finished(self) -> bool:
        """True if the run is finished, so that its scores are used."""
        return self.status == "finished"

    def predictions_of(self, split: str) -> list[Prediction]:
        """Return the decoded sentences of a split; an empty list if they were not stored."""
        return self.predictions if split == self.split else self.other_test_sets.get(split, [])


@dataclass(frozen=True)
class Study:
    """The runs that are compared.

    Attributes:
        name: names of the studies that the runs belong to.
        runs: all runs, sorted by variant, seed and directory.
        selected_metrics: metrics to compare by; empty for the main metrics that the runs have.
    """

    name: str
    runs: list[RunRecord]
    selected_metrics: tuple[str, ...] = ()

    @property
    def finished(self) -> list[RunRecord]:
        """Finished runs, whose scores are used."""
        return [run for run in self.runs if run.finished]

    @property
    def unfinished(self) -> list[RunRecord]:
        """Runs that are running, failed, interrupted or broken."""
        return [run for run in self.runs if not run.finished]

    @property
    def metrics(self) -> list[str]:
        """Metrics to compare by; the first one ranks the variants.

        The selected metrics, or the main metrics of the finished runs, on every test set if there is one.
        """
        if self.selected_metrics:
            return list(self.selected_metrics)
        available = dict.fromkeys(name for run in self.finished for name in run.scores)
        splits = dict.fromkeys(split(name) for name in available)
        tests = [name for name in splits if name != "val"]
        for chosen in (tests, ["val"]):
            metrics = [f"{name}/{metric}" for name in chosen for metric in MAIN_METRICS]
            if metrics := [metric for metric in metrics if metric in available]:
                return metrics
        return []

    @property
    def variants(self) -> list[str]:
        """Variants with a finished run, ranked by their mean of the first metric, best first."""

        def rank(variant: str) -> tuple[float, str]:
            scores = [run.scores.get(metric, float("nan")) for run in groups[variant] for metric in main]
            mean = fmean(scores) if scores else float("nan")
            if not isfinite(mean):
                return float("inf"), variant
            return (mean if better(main[0]) == "lower" else -mean), variant

        main = self.metrics[:1]
        groups = group_by_variant(self.finished)
        return sorted(groups, key=rank)

    @property
    def seeds(self) -> list[int]:
        """Seeds of the finished runs."""
        return sorted({run.seed for run in self.finished})

    def by_variant(self) -> dict[str, list[RunRecord]]:
        """Return the finished runs of each variant, in the order of `variants`."""
        groups = group_by_variant(self.finished)
        return {variant: groups[variant] for variant in self.variants}


def group_by_variant(runs: Iterable[RunRecord]) -> dict[str, list[RunRecord]]:
    """Group runs by variant, in the order of the runs."""
    groups: dict[str, list[RunRecord]] = {}
    for run in runs:
        groups.setdefault(run.variant, []).append(run)
    return groups
