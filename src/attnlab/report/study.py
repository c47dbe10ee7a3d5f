"""The study: runs that are compared, grouped into variants and data sets."""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from math import inf
from statistics import fmean

from attnlab.files.run_identity import short_hash
from attnlab.metrics import registry
from attnlab.report.record import RunRecord
from attnlab.report.variants import (
    SEPARATOR,
    common_name,
    data_settings,
    describe,
    group_by_variant,
    split_by_data,
)

MAX_SUFFIX = 60  # Characters of the name of data in names of files


@dataclass(frozen=True)
class Study:
    """The runs that are compared."""

    name: str  # names of the studies that the runs belong to
    runs: list[RunRecord]  # all runs, sorted by variant, seed and directory
    # metrics to compare by; empty for the main metrics that the runs have
    selected_metrics: tuple[str, ...] = ()
    data: str = ""  # name of the data of the runs, if they are part of a study with several data sets

    @property
    def finished(self) -> list[RunRecord]:
        """Finished runs, whose scores are used."""
        return [run for run in self.runs if run.finished]

    @property
    def unfinished(self) -> list[RunRecord]:
        """Runs that are not started, running, failed, interrupted or broken."""
        return [run for run in self.runs if not run.finished]

    @property
    def suffix(self) -> str:
        """End of the names of files about one of several data sets, such as "-lang-aa"."""
        if not self.data:
            return ""
        name = re.sub(r"[^\w.]+", "-", self.data).strip("-")
        if name != self.data.replace("=", "-") or len(name) > MAX_SUFFIX:  # it could be that of other data
            name = f"{name[:MAX_SUFFIX]}-{short_hash(self.data)}"
        return f"-{name}"

    def titled(self, title: str) -> str:
        """Append the name of the data, if there are several, to a title."""
        return SEPARATOR.join(filter(None, [title, self.data]))

    @cached_property
    def parts(self) -> list["Study"]:
        """The finished runs by the data that they were evaluated on; [self] if that is the same for all."""
        parts = split_by_data(group_by_variant(self.finished))
        return [replace(self, runs=runs, data=data) for data, runs in parts.items()] or [self]

    @cached_property
    def models(self) -> dict[str, dict[str, str]]:
        """Models that were trained on several data sets: the variant of each by the name of the data."""
        return match_models(self.parts)

    @cached_property
    def metrics(self) -> list[str]:
        """Metrics to compare by; the first one ranks the variants.

        The selected metrics that the runs have, or else their main metrics, on every test set if there is
        one. The first is the metric that selected the best checkpoints, if it is a main metric, and else
        exact match where the data are no sentences. With several data sets, those of each.
        """
        if len(self.parts) > 1:
            return [*dict.fromkeys(metric for part in self.parts for metric in part.metrics)]
        available = dict.fromkeys(name for run in self.finished for name in run.scores)
        if self.selected_metrics:
            return [metric for metric in self.selected_metrics if metric in available]
        splits = dict.fromkeys(registry.split(name) for name in available)
        tests = [name for name in splits if name != "val"]
        monitored = {run.config.get("checkpoint", {}).get("monitor") for run in self.finished}
        main = registry.main_metrics()
        if self.noun == "inputs":
            main = ("exact_match", *(metric for metric in main if metric != "exact_match"))
        ordered = sorted(main, key=lambda metric: f"val/{metric}" not in monitored)
        for chosen in (tests, ["val"]):
            metrics = [
                f"{name}/{metric}"
                for name in chosen
                for metric in ordered
                if f"{name}/{metric}" in available
                and not (metric == "exact_match" and f"{name}/wer" in available)  # 100 % minus WER
            ]
            if metrics:
                return metrics
        return []

    @property
    def variants(self) -> list[str]:
        """Variants with a finished run, best first by the first metric; with several data sets, by data."""
        if len(self.parts) > 1:
            return [variant for part in self.parts for variant in part.variants]
        groups = group_by_variant(self.finished)
        if not self.metrics:
            return sorted(groups)
        first = registry.metric(self.metrics[0])

        def rank(variant: str) -> tuple[float, str]:
            scores = [score for _, score in scores_of(groups[variant], first.logged)]
            return -first.sign * fmean(scores) if scores else inf, variant

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


def scores_of(runs: Iterable[RunRecord], metric: str) -> list[tuple[int, float]]:
    """Return the seed and the score of the runs that have a finite score."""
    return [(run.seed, score) for run in runs if (score := run.score(metric)) is not None]


def noun_of(sources: Iterable[str]) -> str:
    """Return "sentences" if a source has two words of at least two letters, else "inputs"."""
    is_sentence = any(sum(len(word) > 1 and word.isalpha() for word in each.split()) > 1 for each in sources)
    return "sentences" if is_sentence else "inputs"


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
        for undefined in run.undefined.items():
            variants.setdefault(undefined, set()).add(run.variant)
    sentences = []
    for (metric, reason), names in variants.items():
        of = "" if names == {*study.variants} else f" for {', '.join(sorted(names))}"
        sentences.append(f"{registry.metric(metric).title} is undefined{of}: {reason}.")
    return sentences


def mixed_tokenizers(study: Study) -> list[str]:
    """Return a sentence for each metric that runs on the same data computed over different tokens."""
    sentences: dict[str, None] = {}
    for part in study.parts:
        for metric in part.metrics:
            tokenizers = sorted({run.tokenizer(metric) or "another" for run in part.finished})
            if len(tokenizers) > 1:
                sentences[
                    f"{registry.metric(metric).title} is not comparable: the runs have different tokenizers "
                    f"({', '.join(tokenizers)})."
                ] = None
    return [*sentences]


def kept_apart(study: Study) -> list[str]:
    """Return a sentence for each reason for which variants are not compared with each other."""
    sentences = []
    if len(study.parts) > 1:
        listed = "; ".join(", ".join(part.variants) for part in study.parts)
        sentences.append(f"Not compared with each other, since their test data differ: {listed}.")
    runs = [runs[0] for runs in study.by_variant().values()]
    for part in dict.fromkeys(
        part for ours, theirs in combinations(runs, 2) for part in ours.changed_parts(theirs)
    ):
        by_code: dict[str, list[str]] = {}
        for run in runs:
            if part in run.code:
                by_code.setdefault(run.code[part], []).append(run.variant)
        listed = "; ".join(map(", ".join, by_code.values()))
        sentences.append(f"Not compared with each other, since the code of {part} differs: {listed}.")
    return sentences


def match_models(parts: Sequence[Study]) -> dict[str, dict[str, str]]:
    """Return the variants that differ in their data alone, by the name of the data, and by a name.

    Models of one data set are left out. The name is the common beginning of the names of the variants, if it
    distinguishes the models, and else the settings in which they differ.
    """
    if len(parts) < 2:
        return {}
    of_data = data_settings([part.runs for part in parts])
    found: dict[str, dict[str, list[tuple[str, RunRecord]]]] = {}  # by settings, then by data settings
    for part in parts:
        for runs in part.by_variant().values():
            settings = runs[0].settings
            data = str([settings.get(name) for name in of_data])
            others = {name: value for name, value in settings.items() if name not in of_data}
            key = json.dumps(others, sort_keys=True, default=str)
            found.setdefault(key, {}).setdefault(data, []).append((part.data, runs[0]))
    metrics = {part.data: {*part.metrics} for part in parts}
    models = [
        [rows[0] for rows in by_data.values()]
        for by_data in found.values()
        if len(by_data) > 1
        and all(len(rows) == 1 and rows[0][1].config for rows in by_data.values())
        and set.intersection(*(metrics[rows[0][0]] for rows in by_data.values()))
        and not any(a.changed_parts(b) for ((_, a),), ((_, b),) in combinations(by_data.values(), 2))
    ]
    names = [common_name([run.variant for _, run in rows]) for rows in models]
    if len({*names}) < len(names) or "" in names:
        names = describe([rows[0][1] for rows in models])
    return {name: {data: run.variant for data, run in rows} for name, rows in zip(names, models, strict=True)}
