"""Records of runs, and the study that groups them into variants."""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import isfinite, nan
from pathlib import Path
from statistics import fmean
from typing import Any

from attnlab.files.predictions import Prediction
from attnlab.files.run_identity import flatten, identity
from attnlab.metrics import registry
from attnlab.metrics.texts import WORDS

FILES = tuple(f"data.{name}" for name in ("train", "val", "test", "path", "source_path", "target_path"))
"""Settings that name the files of a corpus."""
SEPARATOR = " · "
"""Separates the name of a variant from the settings that distinguish it."""


@dataclass(frozen=True)
class RunRecord:
    """Contents of one run directory."""

    directory: Path
    study: str  # `name` in the configuration
    variant: str  # `variant` in the configuration, then the settings of `distinguish_variants`
    seed: int  # -1 if neither the configuration nor the name of the directory gives it
    # "finished", "not started", "running", "failed", "interrupted", or "broken": unreadable, or a duplicate
    status: str
    error: str | None = None  # why the run is not finished
    config: dict[str, Any] = field(default_factory=dict)  # interpolations are unresolved text
    scores: dict[str, float] = field(default_factory=dict)  # final metrics, such as "test/bleu"
    undefined: dict[str, str] = field(default_factory=dict)  # why these texts do not define a metric
    parameters: int | None = None  # frozen ones included
    steps: int | None = None
    seconds: float | None = None  # of the training
    peak_memory: int | None = None  # bytes, of the GPU if there is one, else of the host
    tokens_per_second: float | None = None  # source and target without padding, median over the training
    seconds_per_step: float | None = None  # median over the training
    series: dict[str, list[tuple[int, float]]] = field(default_factory=dict)  # (step, value) by metric
    # Decoded sentences of each test set by its split, "test" or "test/mscoco"; without one, of "val"
    predictions: dict[str, list[Prediction]] = field(default_factory=dict)
    # Bootstrap intervals over sentences, of all runs of the variant, from results.csv
    over_sentences: dict[str, tuple[float, float]] = field(default_factory=dict)
    signatures: dict[str, str] = field(default_factory=dict)  # of sacreBLEU, by metric
    data: dict[str, str] = field(default_factory=dict)  # SHA-256 of the pairs of each split, if recorded
    commit: str | None = None
    cpu: str | None = None
    versions: dict[str, str] = field(default_factory=dict)  # of Python and of the packages

    def tokenizer(self, metric: str) -> str:
        """Return the tokenizer of a metric: see `Metric.sentence_counts`.

        sacreBLEU's is in the signature; the default one if there is none. That of the targets is "" if it
        changes the text.
        """
        if registry.metric(metric).of_target_tokens:
            settings = self.config.get("target_tokenizer") or self.config.get("tokenizer") or {}
            changes = any(settings.get(name) for name in ("lowercase", "normalization", "graphemes"))
            return "" if changes else str(settings.get("_target_", "")).rpartition(".")[2]
        found = re.search(r"\btok:([^|]+)", self.signatures.get(registry.name(metric), ""))
        return WORDS if found is None else found[1]

    def has_data_of(self, other: "RunRecord", split: str) -> bool:
        """Return whether the runs have the same pairs in a split, as far as they recorded them."""
        digests = {run.data.get(split) for run in (self, other)} - {None}
        return len(digests) < 2

    @property
    def finished(self) -> bool:
        """True if the run is finished, so that its scores are used."""
        return self.status == "finished"

    def score(self, metric: str) -> float | None:
        """Return a score; None if the run does not have it, or it is not finite."""
        score = self.scores.get(metric, nan)
        return score if isfinite(score) else None


@dataclass(frozen=True)
class Study:
    """The runs that are compared."""

    name: str  # names of the studies that the runs belong to
    runs: list[RunRecord]  # all runs, sorted by variant, seed and directory
    # metrics to compare by; empty for the main metrics that the runs have
    selected_metrics: tuple[str, ...] = ()

    @property
    def finished(self) -> list[RunRecord]:
        """Finished runs, whose scores are used."""
        return [run for run in self.runs if run.finished]

    @property
    def unfinished(self) -> list[RunRecord]:
        """Runs that are not started, running, failed, interrupted or broken."""
        return [run for run in self.runs if not run.finished]

    @property
    def metrics(self) -> list[str]:
        """Metrics to compare by; the first one ranks the variants.

        The selected metrics, or the main metrics of the finished runs, on every test set if there is one. The
        first is the metric that selected the best checkpoints, if it is a main metric, and else exact match
        where the data are no sentences.
        """
        if self.selected_metrics:
            return list(self.selected_metrics)
        available = dict.fromkeys(name for run in self.finished for name in run.scores)
        splits = dict.fromkeys(registry.split(name) for name in available)
        tests = [name for name in splits if name != "val"]
        monitored = {run.config.get("checkpoint", {}).get("monitor") for run in self.finished}
        main = registry.main_metrics()
        if self.noun == "inputs":
            main = ("exact_match", *(metric for metric in main if metric != "exact_match"))
        ordered = sorted(main, key=lambda metric: f"val/{metric}" not in monitored)
        for chosen in (tests, ["val"]):
            metrics = [f"{name}/{metric}" for name in chosen for metric in ordered]
            if metrics := [metric for metric in metrics if metric in available]:
                return metrics
        return []

    @property
    def variants(self) -> list[str]:
        """Variants with a finished run, ranked by their mean of the first metric, best first."""
        main = self.metrics[:1]

        def rank(variant: str) -> tuple[float, str]:
            scores = [run.score(metric) for run in groups[variant] for metric in main]
            present = [score for score in scores if score is not None]
            if not present:
                return float("inf"), variant
            mean = fmean(present)
            return -registry.metric(main[0]).sign * mean, variant

        groups = group_by_variant(self.finished)
        return sorted(groups, key=rank)

    @property
    def seeds(self) -> list[int]:
        """Seeds of the finished runs."""
        return sorted({run.seed for run in self.finished})

    @cached_property
    def noun(self) -> str:
        """Name of the sources: see `noun_of`; "sentences" if none are stored."""
        runs = (outputs for run in self.finished for outputs in run.predictions.values())
        sources = [prediction.source for outputs in runs for prediction in outputs]
        return noun_of(sources) if sources else "sentences"

    def by_variant(self) -> dict[str, list[RunRecord]]:
        """Return the finished runs of each variant, in the order of `variants`."""
        groups = group_by_variant(self.finished)
        return {variant: groups[variant] for variant in self.variants}


def noun_of(sources: Iterable[str]) -> str:
    """Return "sentences" if a source has two words of at least two letters, else "inputs"."""
    is_sentence = any(sum(len(word) > 1 and word.isalpha() for word in each.split()) > 1 for each in sources)
    return "sentences" if is_sentence else "inputs"


def group_by_variant(runs: Iterable[RunRecord]) -> dict[str, list[RunRecord]]:
    """Group runs by variant, in the order of the runs."""
    groups: dict[str, list[RunRecord]] = {}
    for run in runs:
        groups.setdefault(run.variant, []).append(run)
    return groups


def unfinished_lines(study: Study) -> list[tuple[str, str, str]]:
    """Return (variant, seeds, reason) of the unfinished runs: one line for all seeds with the same reason."""
    seeds: dict[tuple[str, str], list[str]] = {}
    for run in study.unfinished:
        reason = f"{run.status} – {run.error}" if run.error else run.status
        seeds.setdefault((run.variant, reason), []).extend([str(run.seed)] if run.seed >= 0 else [])
    return [
        (variant, f"seed{'s' * (len(numbers) > 1)} {', '.join(numbers)}" if numbers else "", reason)
        for (variant, reason), numbers in seeds.items()
    ]


def undefined_scores(study: Study) -> list[str]:
    """Return a sentence for each metric that texts of finished runs do not define, with the reason."""
    variants: dict[tuple[str, str], set[str]] = {}
    for run in study.finished:
        for metric, reason in run.undefined.items():
            variants.setdefault((metric, reason), set()).add(run.variant)
    everywhere = {*study.variants}
    return [
        f"{registry.metric(metric).title} is undefined{of if names != everywhere else ''}: {reason}."
        for (metric, reason), names in variants.items()
        for of in [f" for {', '.join(sorted(names))}"]
    ]


def mixed_tokenizers(study: Study) -> list[str]:
    """Return a sentence for each metric that runs computed over different tokens."""
    tokenizers = {
        metric: sorted({run.tokenizer(metric) for run in study.finished}) for metric in study.metrics
    }
    return [
        f"{registry.metric(metric).title} is not comparable: the runs have different tokenizers "
        f"({', '.join(different)})."
        for metric, different in tokenizers.items()
        if len(different) > 1
    ]


def mark_duplicates(runs: Iterable[RunRecord]) -> list[RunRecord]:
    """Mark all but one of the runs with the same configuration as broken; a finished run is kept."""
    kept: dict[str, RunRecord] = {}
    marked = []
    for run in sorted(runs, key=lambda run: (not run.finished, run.directory)):
        key = json.dumps([run.variant, run.seed, _settings(run)], sort_keys=True, default=str)
        first = kept.setdefault(key, run) if run.config else run
        duplicate = first is not run
        marked.append(
            replace(run, status="broken", error=f"duplicate of {first.directory}") if duplicate else run
        )
    return marked


def distinguish_variants(runs: Sequence[RunRecord]) -> list[RunRecord]:
    """Append to the variant of each run the settings in which runs of the same variant differ.

    The seed is not such a setting. For example "additive" becomes "additive · decoder.size=128".
    """
    named = [run for run in runs if not run.config]
    for variant, group in group_by_variant(run for run in runs if run.config).items():
        settings = [_settings(run) for run in group]
        names = _distinguishing_settings(group, settings)
        for run, values in zip(group, settings, strict=True):
            suffixes = [_format_setting(name, values.get(name), settings) for name in names]
            named.append(replace(run, variant=SEPARATOR.join([variant, *suffixes])))
    return named


def separate_changed_data(runs: Sequence[RunRecord]) -> list[RunRecord]:
    """Append to the variant of each finished run a digest of the data in which runs of the variant differ.

    For example "additive" becomes "additive · test data 1a2b3c4d", if a file was edited between two runs.
    Data that follow the seed of the run (`data.seed=${seed}`) are data of one variant.
    """
    suffixes: dict[Path, list[str]] = {}
    for group in group_by_variant(run for run in runs if run.data).values():
        seeds = [name for name in group[0].config.get("data", {}) if name.endswith("seed")]
        follows_seed = any(all(run.config["data"].get(name) == run.seed for run in group) for name in seeds)
        if follows_seed and len({run.seed for run in group}) > 1:
            continue
        for split in dict.fromkeys(split for run in group for split in run.data):
            if len({run.data.get(split) for run in group}) > 1:
                for run in group:
                    digest = run.data.get(split, "none")[:8]
                    suffixes.setdefault(run.directory, []).append(f"{split} data {digest}")
    return [
        replace(run, variant=SEPARATOR.join([run.variant, *suffixes.get(run.directory, ())])) for run in runs
    ]


def different_data(study: Study) -> list[str]:
    """Return a sentence for each split on which variants were evaluated with different data."""
    sentences = []
    for split in dict.fromkeys(registry.split(metric) for metric in study.metrics):
        groups: list[list[RunRecord]] = []  # one run for each variant
        for run, *_ in study.by_variant().values():
            same = next((group for group in groups if run.has_data_of(group[0], split)), None)
            if same is None:
                groups.append([run])
            else:
                same.append(run)
        if len(groups) > 1:
            listed = "; ".join(", ".join(run.variant for run in group) for group in groups)
            sentences.append(f"Not compared with each other, since their {split} data differ: {listed}.")
    return sentences


def macro_groups(study: Study) -> dict[str, list[str]]:
    """Return the variants that differ in the files of their data alone, such as languages, by a name.

    Groups of one variant are left out. Names contain the settings in which the groups differ.
    """
    files: dict[str, set[str]] = {}
    groups: dict[str, list[RunRecord]] = {}
    for runs in study.by_variant().values():
        settings = {
            name: value
            for name, value in _settings(runs[0]).items()
            if name not in FILES and not ("." not in name and name != "name" and isinstance(value, str))
        }
        key = json.dumps(settings, sort_keys=True, default=str)
        groups.setdefault(key, []).append(runs[0])
        files.setdefault(key, set()).add(str([flatten(runs[0].config).get(name) for name in FILES]))
    averaged = [runs for key, runs in groups.items() if runs[0].config and len(files[key]) == len(runs) > 1]
    first = [runs[0] for runs in averaged]
    settings_of = [_settings(run) for run in first]
    names = _distinguishing_settings(first, settings_of)
    return {
        SEPARATOR.join(
            [
                f"macro average of {len(runs)} variants",
                *(_format_setting(name, values.get(name), settings_of) for name in names),
            ]
        ): [run.variant for run in runs]
        for runs, values in zip(averaged, settings_of, strict=True)
    }


def _settings(run: RunRecord) -> dict[str, Any]:
    """Return the settings that determine the results, by dotted name, except the variant and the seed."""
    return {name: value for name, value in identity(run.config).items() if name not in ("variant", "seed")}


def _distinguishing_settings(runs: Sequence[RunRecord], settings: Sequence[dict[str, Any]]) -> list[str]:
    """Return a minimal list of settings that distinguish the runs; `name` and classes are preferred.

    A further seed that equals the run's in every run (`data.seed=${seed}`) is not used.
    """
    names = dict.fromkeys(name for values in settings for name in values)
    chosen: list[str] = []
    groups = 1
    for name in sorted(names, key=lambda name: (name != "name", not name.endswith("_target_"))):
        pairs = zip(runs, settings, strict=True)
        if name.endswith("seed") and all(values.get(name) == run.seed for run, values in pairs):
            continue
        count = len({str([values.get(key) for key in (*chosen, name)]) for values in settings})
        if count > groups:
            chosen.append(name)
            groups = count
    return chosen


def _format_setting(name: str, value: Any, settings: Sequence[dict[str, Any]]) -> str:
    """Format as `name=value`; a `_target_` as the class name, if class names are unambiguous."""
    if not name.endswith("._target_"):
        return f"{name}={value if isinstance(value, str) else json.dumps(value, default=str)}"
    targets = {str(values.get(name)) for values in settings}
    classes = {target.rpartition(".")[2] for target in targets}
    shown = str(value).rpartition(".")[2] if len(classes) == len(targets) else value
    return f"{name.removesuffix('._target_')}={shown}"
