"""chrF as sacreBLEU computes it (Popović 2015)."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from attnlab.metrics.registry import text_metric
from attnlab.metrics.texts import Texts, UndefinedScoreError

if TYPE_CHECKING:
    from attnlab.metrics.sentence_counts import SentenceCounts


@cache
def counts(_: str) -> SentenceCounts:
    """Return the counts of `chrf` per sentence."""
    from attnlab.metrics.sentence_counts import chrf_counts

    return chrf_counts()


def signature(_: str) -> str:
    """Return sacreBLEU's signature of `chrf`."""
    from sacrebleu.metrics.chrf import CHRF

    metric = CHRF()
    metric.corpus_score([""], [[""]])  # sacreBLEU sets the number of references when it scores
    return str(metric.get_signature())


@text_metric(
    label="chrF",
    format="points",
    direction="higher",
    signature=signature,
    counts=counts,
    default=True,
    rank=3,
)
def chrf(texts: Texts) -> float:
    """Return corpus chrF2 (0 to 100) as sacreBLEU computes it by default."""
    from sacrebleu.metrics.chrf import CHRF

    if not any(reference.strip() for reference in texts.references):
        raise UndefinedScoreError("all references are empty")
    return float(CHRF().corpus_score(texts.hypotheses, [texts.references]).score)


def similarity(text: str, reference: str) -> float:
    """Return chrF2 (0 to 100) of one text."""
    from sacrebleu.metrics.chrf import CHRF

    return float(CHRF().sentence_score(text, [reference]).score)
