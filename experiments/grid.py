"""Tables of a sweep over attention mechanisms and one other setting, shared by summary.py files.

The variants are named MECHANISM-VALUE, such as "additive-length10".
"""

from collections.abc import Iterable, Mapping, Sequence

import pandas as pd

from attnlab.metrics import registry
from attnlab.report import tables
from attnlab.report.comparison import Comparison, compare_pair, correct
from attnlab.report.record import RunRecord
from attnlab.report.statistics import estimate
from attnlab.report.study import Study

Groups = Mapping[str, Mapping[str, Sequence[RunRecord]]]
"""Runs of each mechanism and value."""


def group(study: Study) -> Groups:
    """Group the runs by mechanism and value."""
    groups: dict[str, dict[str, Sequence[RunRecord]]] = {}
    for variant, runs in sorted(study.by_variant().items()):
        mechanism, _, value = variant.partition("-")
        groups.setdefault(mechanism, {})[value] = runs
    return groups


def table(groups: Groups, values: Mapping[str, str], metric: str, *, scale: float, digits: int = 1) -> str:
    """Return Markdown with the means of a metric and their intervals, of each mechanism at each value."""
    rows = [cells(runs, values, metric, scale=scale, digits=digits) for runs in groups.values()]
    index = pd.Index(groups, name="attention")
    return tables.markdown(pd.DataFrame(rows, columns=[*values.values()], index=index))


def cells(
    runs: Mapping[str, Sequence[RunRecord]],
    values: Iterable[str],
    metric: str,
    *,
    scale: float,
    digits: int = 1,
) -> list[str]:
    """Return the mean of a metric at each value with its interval, as texts."""
    bounds = tuple(scale * end for end in registry.metric(metric).bounds)
    scores = ([scale * run.scores[metric] for run in runs[value]] for value in values)
    return [tables.format_estimate(estimate(each, bounds), digits=digits) for each in scores]


def compare_at_each(
    study: Study, values: Mapping[str, str], ours: str, others: Sequence[str]
) -> list[Comparison]:
    """Compare a mechanism with others at each value over seeds, in all metrics, as one family."""
    pairs = [(f"{ours}-{value}", f"{theirs}-{value}") for value in values for theirs in others]
    return correct([row for pair in pairs for row in compare_pair(study, *pair)])
