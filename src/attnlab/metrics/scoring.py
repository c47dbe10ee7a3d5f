"""Scores of decoded texts by the names of their metrics."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import ceil
from typing import NamedTuple

from attnlab.metrics import registry
from attnlab.metrics.texts import Texts, UndefinedScoreError


class Scores(NamedTuple):
    """Scores of texts by metric, and the reasons why the other metrics are undefined."""

    values: dict[str, float]
    undefined: dict[str, str]


class LengthScores(NamedTuple):
    """Scores of the predictions whose lengths are between `shortest` and `longest`, both included."""

    shortest: int
    longest: int
    sentences: int
    scores: dict[str, float | None]  # None: undefined for these predictions


def score(texts: Texts, metrics: Iterable[str] | None = None) -> Scores:
    """Compute the named metrics, by default those of every corpus."""
    scores = Scores({}, {})
    for metric in registry.default_metrics() if metrics is None else metrics:
        try:
            scores.values[metric] = registry.function(metric)(texts)
        except UndefinedScoreError as reason:
            scores.undefined[metric] = str(reason)
    return scores


def score_by_length(
    texts: Texts, lengths: Sequence[int], metrics: Iterable[str], *, bins: int = 10
) -> list[LengthScores]:
    """Compute the metrics separately for short and long sentences.

    Args:
        texts: N predictions.
        lengths: the length of each, [N].
        bins: maximum number of length ranges. All have the same width and start at the shortest length;
            ranges without a sentence are left out. With few distinct lengths each one is a range.
    """
    metrics = list(metrics)
    first, last = min(lengths), max(lengths)
    width = ceil((last - first + 1) / bins)
    rows = []
    for shortest in range(first, last + 1, width):
        longest = min(shortest + width - 1, last)
        chosen = [
            prediction
            for prediction, length in zip(texts.predictions, lengths, strict=True)
            if shortest <= length <= longest
        ]
        if chosen:
            values = score(replace(texts, predictions=chosen), metrics).values
            scores = {metric: values.get(metric) for metric in metrics}
            rows.append(LengthScores(shortest, longest, len(chosen), scores))
    return rows
