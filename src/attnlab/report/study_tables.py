"""Tables of a study: scores, costs and comparisons.

Files::

    results.csv                      one line per run in full precision, from which the tables are computed
    tables/scores.csv|md|tex         final scores by variant
    tables/costs.csv|md|tex          training cost by variant
    tables/comparisons.csv|md|tex    statistical comparison of variants
    tables/errors-*.csv|md|tex       most frequent errors of words, see `attnlab.report.errors`
    errors/*.csv                     all errors of words, see `attnlab.metrics.errors.Errors`
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from math import inf
from pathlib import Path
from statistics import fmean
from typing import Any

from attnlab.files.writing import write_atomically
from attnlab.metrics import registry
from attnlab.report.comparison import Comparison
from attnlab.report.record import RunRecord
from attnlab.report.resampling import interval_over_sentences
from attnlab.report.results_file import format_results
from attnlab.report.statistics import Bounds, Estimate, estimate
from attnlab.report.study import Study, kept_apart, mixed_tokenizers, scores_of, undefined_scores
from attnlab.report.tables import Table, TableColumns, format_estimate, point
from attnlab.report.variants import SEPARATOR

INTERVALS = (
    "Mean over seeds [95 % confidence interval]: Student's t, on the logit scale for scores with two bounds "
    "and on the logarithmic scale for those that are at least 0."
)

MACRO = (
    "Macro average: mean over variants that differ in their data alone, such as languages; its interval is "
    "over seeds, if all variants have the same ones, and else over the data sets."
)
OVER_SENTENCES = (
    "Over {noun}: 95 % interval of the bootstrap over the {noun} of this split, of the outputs of all seeds "
    "together. It shows how far the score of these networks depends on the choice of {noun}."
)

ACROSS_DATA = (
    "Across data sets: paired t test of the mean differences over seeds; the conclusion holds for other data "
    "sets of this kind."
)


def build_tables(study: Study, comparisons: Sequence[Comparison]) -> list[Table]:
    """Build the tables of a report: scores, costs and comparisons.

    Variants that were evaluated on different data are in tables of their own, except models that were trained
    on several data sets, which have a macro average.
    """
    averaged = {data for variants in study.models.values() for data in variants}
    together = [run for part in study.parts if part.data in averaged for run in part.runs]
    scores = [scores_table(replace(study, runs=together))] if averaged else []
    scores += [scores_table(part) for part in study.parts if part.data not in averaged]
    apart = kept_apart(study)
    scores[0] = replace(scores[0], notes=[*scores[0].notes, *apart])
    return [*scores, costs_table(study), comparisons_table(comparisons, study)]


def write_tables(tables: Iterable[Table], study: Study, folder: Path, columns: Sequence[str] = ()) -> None:
    """Write `results.csv` and `tables/` into a folder, with a note on the unfinished runs in each table.

    `columns` are those of LaTeX tables of scores; by default all of them.
    """
    write_atomically(folder / "results.csv", format_results(study))
    unfinished = Counter(run.status for run in study.unfinished)
    counts = ", ".join(f"{count} {status}" for status, count in unfinished.items())
    note = [f"Not included: {unfinished.total()} unfinished runs ({counts})."] if unfinished else []
    for each in tables:
        table = replace(each, notes=[*each.notes, *note])
        chosen = columns if table.name.startswith("scores") else ()
        latex = table.latex([name for name in chosen if name in table.text.columns])
        for suffix, text in (("csv", table.csv()), ("md", table.markdown()), ("tex", latex)):
            write_atomically(folder / "tables" / f"{table.name}.{suffix}", text)


def scores_table(study: Study) -> Table:
    """Build the table of final scores by variant, with the interval over sentences where counts exist.

    With several data sets, the variants of each are adjacent, and macro averages of models follow.
    """
    groups, notes = study.by_variant(), [INTERVALS]
    averages = {
        SEPARATOR.join(filter(None, [f"macro average of {len(variants)} data sets", model])): variants
        for model, variants in study.models.items()
    }
    columns = TableColumns()
    counts = [*(point(len(runs)) for runs in groups.values()), *(None for _ in averages)]
    columns.add("seeds", counts, digits=0, write=_or_empty)
    for metric in map(registry.metric, study.metrics):
        means = [_mean([run.score(metric.logged) for run in runs], metric.bounds) for runs in groups.values()]
        for variants in averages.values():
            means.append(_macro_average([groups[variant] for variant in variants.values()], metric))
        columns.add_metric(metric, means)
        over_sentences = [_over_sentences(runs, metric.logged) for runs in groups.values()]
        if any(over_sentences):
            notes = [INTERVALS, OVER_SENTENCES.format(noun=study.noun)]
            cells = [*over_sentences, *(None for _ in averages)]
            columns.add_metric(metric, cells, f" over {study.noun}", write=_interval_only)
    notes += [MACRO] * bool(averages) + undefined_scores(study) + mixed_tokenizers(study)
    labels = {"variant": [*groups, *averages]}
    if len(study.parts) > 1:
        data = [part.data for part in study.parts for _ in part.variants]
        labels = {"data": [*data, *("all" for _ in averages)], **labels}
    return columns.table(f"scores{study.suffix}", study.titled("Final scores"), labels, notes)


def costs_table(study: Study) -> Table:
    """Build the table of training cost by variant."""
    costs: dict[str, tuple[Callable[[RunRecord], float | None], float, int]] = {
        "parameters": (lambda run: run.parameters, 1, 0),
        "training time [min]": (lambda run: run.seconds, 1 / 60, 1),
        "time per step [ms]": (lambda run: run.seconds_per_step, 1000, 1),
        "peak memory [MiB]": (lambda run: run.peak_memory, 2**-20, 0),
        "throughput [tokens/s]": (lambda run: run.tokens_per_second, 1, 0),
    }  # the cost of a run, and the factor and the decimal places to display it with
    columns, groups = TableColumns(), study.by_variant()
    for name, (cost, scale, digits) in costs.items():
        means = [_mean([cost(run) for run in runs]) for runs in groups.values()]
        columns.add(name, means, digits=digits, scale=scale)
    return columns.table("costs", "Training cost", {"variant": [*groups]}, [INTERVALS])


def comparisons_table(comparisons: Sequence[Comparison], study: Study) -> Table:
    """Build the table of all comparisons; the tests over seeds and over sentences of a pair are adjacent."""
    pairs: dict[tuple[str, str, str], list[Comparison]] = {}
    for each in comparisons:
        pairs.setdefault((each.metric, each.variant, each.reference), []).append(each)
    ordered, noun = [each for pair in pairs.values() for each in pair], study.noun
    metrics = [registry.metric(each.metric) for each in ordered]
    labels = {
        "variant": [each.variant for each in ordered],
        "reference": [each.reference for each in ordered],
        "metric": [metric.heading for metric in metrics],
        "across": [{"sentences": noun, "data": "data sets"}.get(each.over, each.over) for each in ordered],
    }
    stored: dict[str, list[str]] = {
        "metric": [each.metric for each in ordered],
        "across": [each.over for each in ordered],
    }
    fields: dict[str, tuple[str, int | None, Callable[..., str]]] = {
        "seeds": ("seeds", 0, format_estimate),
        noun: ("sentences", 0, format_estimate),
        "data sets": ("data_sets", 0, format_estimate),
        "difference": ("difference", None, format_estimate),
        "95 % CI low": ("low", None, format_estimate),
        "95 % CI high": ("high", None, format_estimate),
        "effect size d_z": ("effect_size", 2, format_estimate),
        "p": ("p", 3, _p_value),
        "p (Holm)": ("p_corrected", 3, _p_value),
    }  # the attribute, and the decimal places; None: in the unit of the row's metric
    columns = TableColumns()
    if not study.models:
        del fields["data sets"]
    for name, (attribute, digits, write) in fields.items():
        scales = [metric.scale if digits is None else 1 for metric in metrics]
        cells = [point(getattr(each, attribute), n) for each, n in zip(ordered, scales, strict=True)]
        columns.values[name] = [None if cell is None else cell.mean for cell in cells]
        columns.text[name] = [
            write(cell, digits=metric.digits if digits is None else digits)
            for cell, metric in zip(cells, metrics, strict=True)
        ]
    size = max((each.family_size for each in ordered), default=0)
    notes = [
        "Differences are variant - reference with uncorrected 95 % intervals. Across seeds: paired t test; "
        f"the conclusion holds for other training runs. Across {noun}: paired bootstrap and approximate "
        "randomisation of the outputs of all seeds together; the conclusion holds for these networks and "
        f"other {noun}.",
        *([ACROSS_DATA] if study.models else []),
        *([f"p (Holm) is corrected for all {size} tests of this report."] if size else []),
    ]
    return columns.table("comparisons", "All comparisons", labels, notes, labels | stored)


def _macro_average(groups: Sequence[Sequence[RunRecord]], metric: registry.Metric) -> Estimate | None:
    """Return the mean over data sets: of each seed if all have the same ones, else of their means."""
    by_seed = [dict(scores_of(runs, metric.logged)) for runs in groups]
    if not all(by_seed):
        return None
    seeds = set.intersection(*(set(scores) for scores in by_seed))
    if len(seeds) > 1 and all(seeds == scores.keys() for scores in by_seed):
        return estimate([fmean(each[seed] for each in by_seed) for seed in sorted(seeds)], metric.bounds)
    return estimate([fmean(scores.values()) for scores in by_seed], metric.bounds)


def _over_sentences(runs: Sequence[RunRecord], metric: str) -> Estimate | None:
    """Return the mean over seeds of a variant with the bootstrap interval over sentences."""
    interval = interval_over_sentences(runs, metric)
    if interval is None:
        return None
    mean = fmean(score for _, score in scores_of(runs, metric))
    return Estimate(mean, *interval, len(runs))


def _mean(values: Sequence[float | None], bounds: Bounds = (0, inf)) -> Estimate | None:
    """Return the mean and interval of the values that are present, and their number if others are not."""
    present = [value for value in values if value is not None]
    if not present:
        return None
    total = None if len(present) == len(values) else len(values)
    return replace(estimate(present, bounds), total=total)


def _or_empty(result: Estimate | None, **options: Any) -> str:
    return format_estimate(result, missing="", **options)


def _interval_only(result: Estimate | None, **options: Any) -> str:
    """Format the interval of an estimate; the mean if the interval has no width."""
    text = _or_empty(result, **options)
    return text.partition(" ")[2] or text


def _p_value(p: Estimate | None, **options: Any) -> str:
    return "< 0.001" if p is not None and p.mean < 0.001 else format_estimate(p, **options)
