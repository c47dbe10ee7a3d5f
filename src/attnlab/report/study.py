"""Records of runs, and the study that groups them into variants."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations, product, takewhile
from math import inf, isfinite, nan
from pathlib import Path
from statistics import fmean
from typing import Any

from attnlab.files.predictions import Prediction
from attnlab.files.run_identity import identity
from attnlab.metrics import registry
from attnlab.metrics.texts import WORDS

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
    seen: dict[str, set[int]] = field(default_factory=dict)  # outputs with a source of the training data
    # Bootstrap intervals over sentences, of all runs of the variant, from results.csv
    over_sentences: dict[str, tuple[float, float]] = field(default_factory=dict)
    signatures: dict[str, str] = field(default_factory=dict)  # of sacreBLEU, by metric
    data: dict[str, str] = field(default_factory=dict)  # SHA-256 of the pairs of each split, if recorded
    code: dict[str, str] = field(default_factory=dict)  # SHA-256 of the code of each part from outside
    commit: str | None = None
    cpu: str | None = None
    versions: dict[str, str] = field(default_factory=dict)  # of Python and of the packages

    def tokenizer(self, metric: str) -> str:
        """Return the tokenizer of a metric: sacreBLEU's in the signature, or that of the targets.

        That of the targets is "characters", or "characters:nfc" with a normalisation form; "" if its tokens
        do not follow from its name.
        """
        if registry.metric(metric).of_target_tokens:
            settings = self.config.get("target_tokenizer") or self.config.get("tokenizer") or {}
            form = settings.get("normalization") or ""
            if form == "auto" or any(settings.get(name) for name in ("lowercase", "graphemes")):
                return ""
            return f"{str(settings.get('_target_', '')).rpartition('.')[2]}:{form}".rstrip(":")
        found = re.search(r"\btok:([^|]+)", self.signatures.get(registry.name(metric), ""))
        return WORDS if found is None else found[1]

    def is_comparable(self, other: "RunRecord", split: str) -> bool:
        """Return whether the runs have the same pairs in a split and the same code, as far as recorded."""
        digests = {run.data.get(split) for run in (self, other)} - {None}
        return len(digests) < 2 and not self.changed_parts(other)

    def changed_parts(self, other: "RunRecord") -> list[str]:
        """Return the parts from outside that both runs have, with different code."""
        return sorted(part for part, digest in self.code.items() if other.code.get(part, digest) != digest)

    @property
    def evaluated_data(self) -> dict[str, str]:
        """Digests of the test sets that the run has scores of; without one, of the validation split."""
        scored = {registry.split(name) for name in self.scores}
        tests = scored - {"val"} or scored
        return {split: digest for split, digest in self.data.items() if split in tests}

    @cached_property
    def settings(self) -> dict[str, Any]:
        """Settings that determine the results, by dotted name, except the variant and the seed."""
        return {
            name: value for name, value in identity(self.config).items() if name not in ("variant", "seed")
        }

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
        return "-" + re.sub(r"[^\w.]+", "-", self.data).strip("-") if self.data else ""

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
        if selected := [metric for metric in self.selected_metrics if metric in available]:
            return selected
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
        for undefined in run.undefined.items():
            variants.setdefault(undefined, set()).add(run.variant)
    sentences = []
    for (metric, reason), names in variants.items():
        of = "" if names == {*study.variants} else f" for {', '.join(sorted(names))}"
        sentences.append(f"{registry.metric(metric).title} is undefined{of}: {reason}.")
    return sentences


def mixed_tokenizers(study: Study) -> list[str]:
    """Return a sentence for each metric that runs computed over different tokens."""
    sentences = []
    for metric in study.metrics:
        tokenizers = sorted({run.tokenizer(metric) for run in study.finished})
        if len(tokenizers) > 1:
            sentences.append(
                f"{registry.metric(metric).title} is not comparable: the runs have different tokenizers "
                f"({', '.join(tokenizers)})."
            )
    return sentences


def mark_duplicates(runs: Iterable[RunRecord]) -> list[RunRecord]:
    """Mark all but one of the runs with the same configuration as broken; a finished run is kept."""
    kept: dict[str, RunRecord] = {}
    marked = []
    for run in sorted(runs, key=lambda run: (not run.finished, run.directory)):
        key = json.dumps([run.variant, run.seed, run.settings], sort_keys=True, default=str)
        first = kept.setdefault(key, run) if run.config else run
        error = f"duplicate of {first.directory}"
        marked.append(run if first is run else replace(run, status="broken", error=error))
    return marked


def distinguish_variants(runs: Sequence[RunRecord]) -> list[RunRecord]:
    """Append to the variant of each run the settings in which runs of the same variant differ.

    The seed is not such a setting. For example "additive" becomes "additive · decoder.size=128".
    """
    named = [run for run in runs if not run.config]
    for variant, group in group_by_variant(run for run in runs if run.config).items():
        for run, suffix in zip(group, _describe(group), strict=True):
            named.append(replace(run, variant=SEPARATOR.join(filter(None, [variant, suffix]))))
    return named


def separate_changed_runs(runs: Sequence[RunRecord]) -> list[RunRecord]:
    """Append to the variant of each finished run a digest of the data, or code, in which its runs differ.

    For example "additive" becomes "additive · test data 1a2b3c4d" if a file was edited between two runs, and
    "additive · Additive code 1a2b3c4d" if the class was. Data that follow the seed of the run
    (`data.seed=${seed}`) are data of one variant.
    """
    suffixes: dict[Path, list[str]] = {}
    for group in group_by_variant(run for run in runs if run.data or run.code).values():
        follows_seed = _follow_seed(group)
        records = [
            ({} if follows_seed else {f"{split} data": digest for split, digest in run.data.items()})
            | {f"{part.rpartition('.')[2]} code": digest for part, digest in run.code.items()}
            for run in group
        ]
        for name in dict.fromkeys(name for record in records for name in record):
            if len({record.get(name) for record in records}) > 1:
                for run, record in zip(group, records, strict=True):
                    suffixes.setdefault(run.directory, []).append(f"{name} {record.get(name, 'none')[:8]}")
    return [
        replace(run, variant=SEPARATOR.join([run.variant, *suffixes.get(run.directory, ())])) for run in runs
    ]


def _follow_seed(runs: Sequence[RunRecord]) -> bool:
    """Return whether the seed of the data of each run is that of the run."""
    names = [name for name in runs[0].config.get("data", {}) if name.endswith("seed")]
    return len({run.seed for run in runs}) > 1 and any(
        all(run.config["data"].get(name) == run.seed for run in runs) for name in names
    )


def split_by_data(variants: Mapping[str, Sequence[RunRecord]]) -> dict[str, list[RunRecord]]:
    """Return the runs of the variants that were evaluated on the same data, by a name of the data.

    Empty if these are all runs. Runs that recorded no digests count as evaluated on the data of the others.
    """
    groups: list[list[Sequence[RunRecord]]] = []
    for runs in variants.values():
        same = next((group for group in groups if _have_same_data(runs, group[0])), None)
        if same is None:
            groups.append([runs])
        else:
            same.append(runs)
    parts = [[run for runs in group for run in runs] for group in groups]
    named = zip(_data_names(parts), parts, strict=True) if len(parts) > 1 else ()
    return dict(sorted(named, key=lambda item: sort_key(item[0].rpartition("=")[2])))


def sort_key(value: str) -> tuple[float | str, ...]:
    """Return the numbers in a text, so that 10 is after 5; texts with letters follow, starting with inf."""
    if re.search(r"[^\W\d_]", value):
        return inf, value
    return tuple(map(float, re.findall(r"-?\d+(?:\.\d+)?", value)))


def _have_same_data(ours: Sequence[RunRecord], theirs: Sequence[RunRecord]) -> bool:
    """Return whether runs have the same pairs in the splits that both evaluated; data may follow the seed."""
    pairs = [(a, b) for a in ours for b in theirs if a.seed == b.seed] or [*product(ours, theirs)]
    for a, b in pairs:
        left, right = a.evaluated_data, b.evaluated_data
        shared = left.keys() & right.keys()
        if left and right and not (shared and all(left[split] == right[split] for split in shared)):
            return False
    return True


def data_settings(parts: Sequence[Sequence[RunRecord]]) -> list[str]:
    """Return the settings that are equal within the runs of each data set and differ between data sets.

    Of these, only those of the data, the name of the study, and texts at the top level, such as a language.
    """
    settings = [[run.settings for run in runs] for runs in parts]
    every = [run for runs in settings for run in runs]
    chosen = []
    for name in dict.fromkeys(name for run in every for name in run):
        is_text = "." not in name and all(isinstance(run.get(name), str) for run in every)
        values = [{json.dumps(run.get(name), default=str) for run in runs} for runs in settings]
        if (name.startswith("data.") or is_text) and all(len(each) == 1 for each in values):
            chosen += [name] * (len(set.union(*values)) > 1)
    return chosen


def _data_names(parts: Sequence[Sequence[RunRecord]]) -> list[str]:
    """Return a name of each data set: the settings that distinguish it, else the digest of its test split."""
    ordered = sorted(data_settings(parts), key=lambda name: ("." in name, name == "name"))
    names = _describe([runs[0] for runs in parts], ordered)
    for index, name in enumerate(names):
        if names.count(name) > 1 or not name:
            split, digest = next(iter(parts[index][0].evaluated_data.items()), ("", ""))
            names[index] = SEPARATOR.join(filter(None, [name, f"{split} data {digest[:8]}"]))
    return names


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
        listed = ", ".join(run.variant for run in runs if part in run.code)
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
            key = json.dumps([others, part.metrics], sort_keys=True, default=str)
            found.setdefault(key, {}).setdefault(data, []).append((part.data, runs[0]))
    models = [
        [rows[0] for rows in by_data.values()]
        for by_data in found.values()
        if len(by_data) > 1 and all(len(rows) == 1 and rows[0][1].config for rows in by_data.values())
    ]
    names = [_common_name([run.variant for _, run in rows]) for rows in models]
    if len({*names}) < len(names) or "" in names:
        names = _describe([rows[0][1] for rows in models])
    return {name: {data: run.variant for data, run in rows} for name, rows in zip(names, models, strict=True)}


def _common_name(variants: Sequence[str]) -> str:
    """Return the common beginning of names: "dot" of "dot-length5" and "dot-length10"."""
    heads = [re.findall(r"\w+|\W+", variant.partition(SEPARATOR)[0]) for variant in variants]
    shared = takewhile(lambda words: len({*words}) == 1, zip(*heads, strict=False))
    return re.sub(r"\W+$", "", "".join(words[0] for words in shared))


def _describe(runs: Sequence[RunRecord], ordered: Sequence[str] | None = None) -> list[str]:
    """Return a minimal list of settings that distinguish the runs, as text for each run.

    `ordered` are the settings to choose from, the preferred first; by default all, with `name` and classes
    first. A further seed that equals the run's in every run (`data.seed=${seed}`) is not used.
    """
    settings = [run.settings for run in runs]
    names = dict.fromkeys(name for values in settings for name in values)
    chosen: list[str] = []
    groups = 1
    preferred = sorted(names, key=lambda name: (name != "name", not name.endswith("_target_")))
    for name in preferred if ordered is None else ordered:
        pairs = zip(runs, settings, strict=True)
        if name.endswith("seed") and all(values.get(name) == run.seed for run, values in pairs):
            continue
        count = len({str([values.get(key) for key in (*chosen, name)]) for values in settings})
        if count > groups:
            chosen.append(name)
            groups = count
    return [
        SEPARATOR.join(_format_setting(name, values.get(name), settings) for name in chosen)
        for values in settings
    ]


def _format_setting(name: str, value: Any, settings: Sequence[dict[str, Any]]) -> str:
    """Format as `name=value`; a `_target_` as the class name, if class names are unambiguous."""
    if not name.endswith("._target_"):
        return f"{name}={value if isinstance(value, str) else json.dumps(value, default=str)}"
    targets = {str(values.get(name)) for values in settings}
    classes = {target.rpartition(".")[2] for target in targets}
    shown = str(value).rpartition(".")[2] if len(classes) == len(targets) else value
    return f"{name.removesuffix('._target_')}={shown}"
