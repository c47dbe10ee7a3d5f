"""Metrics of decoded texts: functions of a list of predictions, listed in `attnlab.metrics.registry`.

All functions raise ValueError if there are no predictions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import ceil
from typing import NamedTuple

from sacrebleu.metrics.base import Metric as SacreMetric
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from attnlab.files.predictions import Prediction
from attnlab.metrics import registry
from attnlab.metrics.registry import DEFAULT_METRICS

MIN_BLEU_TOKENS = 4
"""Number of tokens of the shortest reference that contains a 4-gram."""

TextMetric = Callable[[Sequence[Prediction]], float]


class LengthScores(NamedTuple):
    """Scores of the predictions whose lengths are between `shortest` and `longest`, both included.

    The score is None if the metric does not exist for these predictions.
    """

    shortest: int
    longest: int
    sentences: int
    scores: dict[str, float | None]


def score(predictions: Sequence[Prediction], metrics: Iterable[str] = DEFAULT_METRICS) -> dict[str, float]:
    """Compute the named metrics.

    Raises:
        UserError: if a name is not a text metric of the registry.
    """
    return {metric: registry.function(metric)(predictions) for metric in metrics}


def score_by_length(
    predictions: Sequence[Prediction],
    lengths: Sequence[int],
    metrics: Iterable[str] = DEFAULT_METRICS,
    *,
    bins: int = 10,
) -> list[LengthScores]:
    """Compute the metrics separately for short and long sentences.

    Args:
        predictions: N predictions.
        lengths: the length of each, [N].
        metrics: names of text metrics.
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
            for prediction, length in zip(predictions, lengths, strict=True)
            if shortest <= length <= longest
        ]
        if chosen:
            scores = {
                metric: value if exists(metric, chosen) else None
                for metric, value in score(chosen, metrics).items()
            }
            rows.append(LengthScores(shortest, longest, len(chosen), scores))
    return rows


def exists(metric: str, predictions: Sequence[Prediction]) -> bool:
    """Return whether a metric exists: BLEU needs a reference of four tokens, the edit distance one token."""
    if metric == "edit_distance":
        return any(reference.split() for _, reference in text_pairs(predictions))
    counts = registry.sentence_counts(metric) if metric.endswith("bleu") else None
    return counts is None or bool(counts.count(*columns(predictions))[:, 1].max() >= MIN_BLEU_TOKENS)


def exact_match(predictions: Sequence[Prediction]) -> float:
    """Return the share (0 to 1) of hypotheses whose white-space tokens equal those of the reference."""
    return mean(hypothesis.split() == reference.split() for hypothesis, reference in text_pairs(predictions))


def edit_distance(predictions: Sequence[Prediction]) -> float:
    """Return the insertions, deletions and substitutions of white-space tokens per reference token."""
    from torchmetrics.functional.text import word_error_rate  # imports torch

    return word_error_rate(*columns(predictions)).item()


def bleu(predictions: Sequence[Prediction]) -> float:
    """Return corpus BLEU (0 to 100) as sacreBLEU computes it by default."""
    return _corpus_score(_bleu_metric(), predictions)


def bleu_signature() -> str:
    """Return sacreBLEU's signature of `bleu`."""
    return _signature(_bleu_metric())


def chrf(predictions: Sequence[Prediction]) -> float:
    """Return corpus chrF2 (0 to 100) as sacreBLEU computes it by default."""
    return _corpus_score(CHRF(), predictions)


def chrf_signature() -> str:
    """Return sacreBLEU's signature of `chrf`."""
    return _signature(CHRF())


def similarity(text: str, reference: str) -> float:
    """Return chrF2 (0 to 100) of one text."""
    return float(CHRF().sentence_score(text, [reference]).score)


def text_pairs(predictions: Sequence[Prediction]) -> list[tuple[str, str]]:
    """Return (hypothesis, reference) of each prediction.

    Raises:
        ValueError: if there are no predictions.
    """
    if not predictions:
        raise ValueError("No predictions to score: the corpus, or the part of it that was decoded, is empty")
    return [(prediction.hypothesis, prediction.reference) for prediction in predictions]


def columns(predictions: Sequence[Prediction]) -> tuple[list[str], list[str]]:
    """Return the hypotheses and the references as two lists."""
    hypotheses, references = zip(*text_pairs(predictions), strict=True)
    return list(hypotheses), list(references)


def mean(values: Iterable[bool]) -> float:
    """Return the share of true values."""
    listed = list(values)
    return sum(listed) / len(listed)


def _bleu_metric() -> BLEU:
    return BLEU(force=True)  # no warning about tokenised text, which is common here


def _corpus_score(metric: SacreMetric, predictions: Sequence[Prediction]) -> float:
    hypotheses, references = columns(predictions)
    return float(metric.corpus_score(hypotheses, [references]).score)


def _signature(metric: SacreMetric) -> str:
    metric.corpus_score([""], [[""]])  # sacreBLEU sets the number of references when it scores
    return str(metric.get_signature())
