"""Statistical comparison of variants that were evaluated on the same data, with the same code.

Three questions have separate tests:

Across **seeds** (training runs): would the variants differ if they were trained again with other seeds? The
runs of two variants are paired by seed and compared by a paired t test. Wilcoxon's signed-rank test makes
fewer assumptions, but its smallest p-value for n pairs is 2 / 2ⁿ, which exceeds 0.05 for five pairs or fewer.

Across **sentences** (test sentences): would the trained networks differ on other sentences? See
`attnlab.report.resampling`. All seeds that both variants finished on the same test set are used together.

Across **data sets**, such as languages: would the difference persist on other data sets? Models that were
trained on several ones are paired by data set, and compared by a paired t test of the mean differences over
seeds. Runs on different data sets are not compared.

All p-values, of all questions, all pairs of variants and all metrics, are one family and corrected by Holm's
method: the probability of at least one false claim is at most 5 %. Intervals are not corrected. Those over
seeds are limited to the possible differences of the metric.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations, product
from pathlib import Path
from statistics import fmean
from typing import Literal

import numpy as np

from attnlab.errors import UsageError
from attnlab.metrics import registry
from attnlab.metrics.sentence_counts import Counts
from attnlab.report.record import RunRecord
from attnlab.report.resampling import paired_test, sentences_of
from attnlab.report.statistics import estimate, holm, t_test_p_value
from attnlab.report.study import Study, noun_of, scores_of

RunPair = tuple[RunRecord, RunRecord]  # Two runs with the same seed: of the variant and of the reference
Task = tuple[str, tuple[str, str]]  # A metric, and the variant and the reference to compare

SIGNIFICANCE_LEVEL = 0.05
"""Maximum corrected p-value, exclusive, of a difference that is reported as significant."""

BASELINE = re.compile(r"none(?!\w)")
"""Start of the name of the default reference: "none", "none · optimizer.lr=1", "none-length5"."""


@dataclass(frozen=True)
class Comparison:
    """Difference of a variant from a reference in one metric: variant - reference, in the metric's unit."""

    metric: str  # with its split, such as "test/bleu"
    variant: str
    reference: str
    over: Literal["seeds", "sentences", "data"]
    seeds: int  # with a score of both variants; over data sets, the smallest number
    sentences: int | None = None  # of the test set, for comparisons over sentences
    difference: float | None = None  # mean over seeds, or of the corpora of all seeds; None without a seed
    low: float | None = None  # ends of the uncorrected 95 % interval
    high: float | None = None
    effect_size: float | None = None  # Cohen's d_z over seeds: mean / standard deviation of the differences
    p: float | None = None  # uncorrected; None if there is no test
    p_corrected: float | None = None  # by Holm over the family
    family_size: int = 0  # number of p-values in the family
    noun: str = "sentences"  # "inputs" if they are not sentences: see `noun_of`
    data_sets: int | None = None  # for comparisons over data sets
    left_out: int = 0  # seeds that both variants finished without a finite score of one of them

    @property
    def significant(self) -> bool:
        """True if the corrected p-value is below the significance level."""
        return self.p_corrected is not None and self.p_corrected < SIGNIFICANCE_LEVEL

    @property
    def summary(self) -> str:
        """The result as one sentence.

        A difference that is not significant has the sign of the tables, variant - reference. A significant
        one is positive, and the better one of the two is named first.
        """
        metric, variants = registry.metric(self.metric), f"{self.variant} and {self.reference}"
        seeds = f"{self.seeds} seed{'' if self.seeds == 1 else 's'}"
        if self.left_out:
            seeds += f" ({self.left_out} left out: a score is missing or not finite)"
        if self.difference is None:
            return f"{variants} have no seed with {metric.title} in common: no comparison."
        ahead, behind = self.variant, self.reference
        sign = metric.sign
        if self.difference * sign < 0:
            ahead, behind, sign = behind, ahead, -sign
        amount = metric.amount(self.difference * sign)
        lead = f"{ahead} {'beats' if metric.direction else 'exceeds'} {behind} by {amount}"
        if self.difference == 0:
            lead = f"{ahead} and {behind} have the same {metric.title}"
        if self.over == "seeds" and self.seeds == 1:
            return f"{lead} in one seed: a test across seeds needs at least two."
        if self.p_corrected is None or self.low is None or self.high is None:
            units = seeds if self.data_sets is None else f"{self.data_sets} data sets"
            return f"{lead} in each of {units}: without variance there is no test."
        if not self.significant:
            lead = f"No significant difference between {variants}: {metric.amount(self.difference)}"
            sign = 1
        low, high = (metric.number(end) for end in sorted((self.low * sign, self.high * sign)))
        p = "p < 0.001" if self.p_corrected < 0.001 else f"p = {self.p_corrected:.3f}"
        holm = "" if self.family_size == 1 else f" (Holm, {self.family_size} tests)"
        basis = "" if self.sentences is None else f"{self.sentences:,} {self.noun}, "
        basis += "" if self.data_sets is None else f"{self.data_sets} data sets, "
        return f"{lead} [{low}, {high}], {p}{holm}, {basis}{seeds}."


def by_question(comparisons: Iterable[Comparison]) -> dict[str, list[Comparison]]:
    """Group comparisons under the headings of their questions."""
    groups: dict[str, list[Comparison]] = {}
    headings = {"seeds": "Across training runs", "data": "Across data sets"}
    for each in comparisons:
        inputs = "validation" if registry.split(each.metric) == "val" else "test"
        groups.setdefault(headings.get(each.over, f"Across {inputs} {each.noun}"), []).append(each)
    return groups


def compare(
    study: Study,
    *,
    reference: str | None = None,
    all_pairs: bool = False,
    progress: Callable[[Sequence[Task]], Iterable[Task]] = lambda tasks: tasks,
) -> list[Comparison]:
    """Compare variants in each metric of the study, over seeds and, if possible, over sentences.

    Args:
        study: the runs, of which the finished ones are used.
        reference: variant that the others are compared with; by default "none". Without such a variant,
            or with several, every variant is compared with every other one.
        all_pairs: compare every variant with every other one in any case.
        progress: wraps the tasks, for example in a progress bar.

    Returns:
        The comparisons over data sets, over seeds, then those over sentences. A metric is omitted for a pair
        of variants if one of them does not have it, such as metrics of attention weights for a model without
        attention. Variants are not compared if they were evaluated on different data, or if the code of a
        part that they share, or the tokenizer of the metric, differs.
    """
    runs = {run.directory: run for run in study.finished}

    @cache  # each run is compared with several others
    def counts(metric: str, directory: Path) -> Counts:
        run = runs[directory]
        sentence_counts = registry.metric(metric).sentence_counts(run.tokenizer(metric))
        assert sentence_counts is not None
        return sentence_counts.count(run.predictions[registry.split(metric)])

    groups = study.by_variant()
    over_seeds, over_sentences = [], []
    if reference is not None and reference not in {*study.variants, *study.models}:
        raise UsageError(
            f"{reference!r} has no finished run. Choose the reference from "
            f"{', '.join([*study.variants, *filter(None, study.models)])}."
        )
    tasks = [
        (metric, pair)
        for part in study.parts
        for metric in part.metrics
        for pair in _variant_pairs(
            part.variants, study.models.get(reference or "", {}).get(part.data, reference), all_pairs
        )
    ]
    for metric, (variant, other) in progress(tasks):
        all_ours, all_theirs = ({run.seed: run for run in groups[name]} for name in (variant, other))
        ours, theirs = (
            {seed: run for seed, run in group.items() if run.score(metric) is not None}
            for group in (all_ours, all_theirs)
        )
        pairs = [(ours[seed], theirs[seed]) for seed in sorted(ours.keys() & theirs.keys())]
        compared = pairs or [*product(ours.values(), theirs.values())]
        split = registry.split(metric)
        tokenizers = {run.tokenizer(metric) for pair in compared for run in pair}
        if len(tokenizers) != 1 or not all(our.is_comparable(their, split) for our, their in compared):
            continue
        left_out = len(all_ours.keys() & all_theirs.keys()) - len(pairs)
        comparison = Comparison(metric, variant, other, "seeds", seeds=len(pairs), left_out=left_out)
        scores = [(our.scores[metric], their.scores[metric]) for our, their in pairs]
        differences = [our - their for our, their in scores]
        largest = max((abs(score) for pair in scores for score in pair), default=0)
        over_seeds.append(_t_test(comparison, differences, largest))
        over_sentences += _over_sentences(comparison, pairs, counts)
    return correct([*_over_data(study, reference, all_pairs), *over_seeds, *over_sentences])


def compare_pair(study: Study, variant: str, reference: str) -> list[Comparison]:
    """Compare two variants of a study; empty if one of them has no finished run."""
    pair = replace(study, runs=[run for run in study.runs if run.variant in (variant, reference)])
    return compare(pair, reference=reference) if len(pair.variants) == 2 else []


def _variant_pairs(variants: Sequence[str], reference: str | None, all_pairs: bool) -> list[tuple[str, str]]:
    """Return the pairs (variant, reference) to compare; none with a reference that is not among them."""
    baselines = [variant for variant in variants if BASELINE.match(variant)]
    if reference is None and len(baselines) == 1:
        (reference,) = baselines
    if reference is not None and reference not in variants and not all_pairs:
        return []
    if all_pairs or reference is None:
        # The reference comes last, so that it is the second of its pairs
        return list(combinations(sorted(variants, key=lambda variant: variant == reference), 2))
    return [(variant, reference) for variant in variants if variant != reference]


def _over_data(study: Study, reference: str | None, all_pairs: bool) -> Iterator[Comparison]:
    """Yield the comparisons of models over the data sets that both were trained on, if there are several."""
    groups, parts = study.by_variant(), {part.data: part for part in study.parts}
    of_reference = (name for name, variants in study.models.items() if reference in variants.values())
    reference = next(of_reference, reference)
    for ours, theirs in _variant_pairs([*study.models], reference, all_pairs):
        left, right = study.models[ours], study.models[theirs]
        shared_data = [
            data
            for data in left
            if data in right and not groups[left[data]][0].changed_parts(groups[right[data]][0])
        ]
        for metric in dict.fromkeys(metric for data in shared_data for metric in parts[data].metrics):
            scores = [
                [dict(scores_of(groups[variants[data]], metric)) for variants in (left, right)]
                for data in shared_data
            ]
            seeds = [our.keys() & their.keys() for our, their in scores]
            differences = [
                fmean(our[seed] - their[seed] for seed in shared)
                for (our, their), shared in zip(scores, seeds, strict=True)
                if shared
            ]
            if len(differences) > 1:
                smallest = min(len(shared) for shared in seeds if shared)
                comparison = Comparison(metric, ours, theirs, "data", smallest, data_sets=len(differences))
                largest = max(abs(score) for pair in scores for each in pair for score in each.values())
                yield _t_test(comparison, differences, largest)


def _t_test(comparison: Comparison, values: Sequence[float], largest: float) -> Comparison:
    """Add the mean of differences, if there are any, and its interval and its test, if they vary.

    Differences that vary by less than a millionth of the largest score are equal: scores are stored in fp32.
    """
    if not values:
        return comparison
    differences = np.array(values)
    comparison = replace(comparison, difference=float(differences.mean()))
    if np.ptp(differences) <= 1e-6 * largest:
        return comparison
    smallest, largest = registry.metric(comparison.metric).bounds
    interval = estimate(differences.tolist())
    low, high = np.clip([interval.low, interval.high], smallest - largest, largest - smallest)
    effect_size = differences.mean() / differences.std(ddof=1)
    return replace(
        comparison,
        low=float(low),
        high=float(high),
        effect_size=float(effect_size),
        p=t_test_p_value(differences),
    )


def _over_sentences(
    comparison: Comparison, pairs: Sequence[RunPair], counts: Callable[[str, Path], Counts]
) -> list[Comparison]:
    """Return the paired test over sentences; empty without predictions for the same test set.

    If runs have different test sets, the one of most pairs is used. Runs whose metrics have different
    tokenizers are not compared.
    """
    metric = comparison.metric
    tokenizers = {run.tokenizer(metric) for pair in pairs for run in pair}
    score = registry.metric(metric).sentence_counts(*tokenizers) if len(tokenizers) == 1 else None
    if score is None:
        return []
    split = registry.split(metric)
    test_sets = [tuple(sentences_of(run.predictions.get(split, [])) for run in pair) for pair in pairs]
    shared = [ours for ours, theirs in test_sets if ours == theirs and len(ours) > 1]
    if not shared:
        return []
    test_set = max(shared, key=shared.count)
    same = [pair for pair, sets in zip(pairs, test_sets, strict=True) if sets == (test_set, test_set)]
    ours, theirs = ([counts(metric, pair[side].directory) for pair in same] for side in (0, 1))
    test = paired_test(score, ours, theirs)
    noun = noun_of(source for source, _ in test_set)
    result = replace(comparison, over="sentences", seeds=len(same), sentences=len(test_set), noun=noun)
    return [replace(result, **test._asdict())]


def correct(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """Correct the p-values of comparisons as one family, also those of several calls of `compare`."""
    corrected = iter(holm([each.p for each in comparisons if each.p is not None]))
    size = sum(each.p is not None for each in comparisons)
    return [
        each if each.p is None else replace(each, p_corrected=next(corrected), family_size=size)
        for each in comparisons
    ]
