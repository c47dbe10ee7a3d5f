"""Corpus metrics as counts per sentence, for significance tests that resample sentences.

A corpus score is computed from counts that add up over sentences: [N, C] is a table of N sentences and C
counts. sacreBLEU computes the counts and the score from their sum.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sacrebleu.metrics.base import Metric
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from attnlab.metrics import conala

Counts = NDArray[np.float64]
"""Whole numbers, stored as floats because float matrix products are faster."""


@dataclass(frozen=True)
class SentenceCounts:
    """A corpus metric that is a function of counts summed over the sentences.

    Attributes:
        count: maps N hypotheses and N references to counts [N, C].
        value: maps the summed counts [C] to the metric, in the unit in which runs log it.
    """

    count: Callable[[Sequence[str], Sequence[str]], Counts]
    value: Callable[[Counts], float]


def _sacrebleu(metric: Metric, prepare: Callable[[str], str] = str) -> SentenceCounts:
    """Return the counts of a sacreBLEU metric over prepared texts.

    Uses the two methods on which sacreBLEU's own paired tests are built; there is no public equivalent.
    """

    def count(hypotheses: Sequence[str], references: Sequence[str]) -> Counts:
        prepared = [[prepare(text) for text in texts] for texts in (hypotheses, references)]
        return np.array(metric._extract_corpus_statistics(prepared[0], [prepared[1]]), dtype=float)

    def value(total: Counts) -> float:
        return float(metric._compute_score_from_stats(total.astype(int).tolist()).score)

    return SentenceCounts(count, value)


def _matches(tokens: Callable[[str], list[str]]) -> SentenceCounts:
    """Return the counts of the share of hypotheses whose tokens equal those of the reference."""

    def count(hypotheses: Sequence[str], references: Sequence[str]) -> Counts:
        pairs = zip(hypotheses, references, strict=True)
        return np.array(
            [[float(tokens(hypothesis) == tokens(reference)), 1] for hypothesis, reference in pairs]
        )

    return SentenceCounts(count, lambda total: float(total[0] / total[1]))


EXACT_MATCH = _matches(str.split)
CORPUS_BLEU = _sacrebleu(BLEU(force=True))
CORPUS_CHRF = _sacrebleu(CHRF())
CONALA_BLEU = _sacrebleu(conala.bleu_metric(), prepare=conala.spaced)
CONALA_EXACT_MATCH = _matches(conala.tokenize)
