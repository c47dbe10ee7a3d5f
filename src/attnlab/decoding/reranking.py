"""Reranking of beam hypotheses.

A reranker maps the predictions of one sentence, best first, to the same predictions in another order, with
other scores where the order follows from new scores. The option group `reranking` chooses them.
"""

import re
import string
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from math import log
from statistics import fmean

import torch

from attnlab.errors import UserError
from attnlab.files.predictions import Prediction
from attnlab.files.reading import read_lines
from attnlab.settings import NotNegative

Reranker = Callable[[Sequence[Prediction]], list[Prediction]]

PUNCTUATION = string.punctuation + "«»„“”‘’…¿¡।॥"  # Not part of a word at its ends
FLOOR = 1e-10  # Lower bound of the total weight on a source token, so that its logarithm is finite


def rerankers(
    *,
    coverage_penalty: NotNegative = 0.0,
    similarity: Callable[[str, str], float] | None = None,
    prefers: Callable[[Prediction], float] | None = None,
    accepts: Callable[[str], bool] | None = None,
) -> list[Reranker]:
    """Return the configured rerankers, in the order in which they are applied.

    Args:
        coverage_penalty: β of `by_coverage`; 0 for none.
        similarity: as of `minimum_bayes_risk`.
        prefers: preference of `preferred_first`.
        accepts: `preferred_first` for hypotheses whose text is accepted.
    """
    chosen: list[Reranker] = [by_coverage(coverage_penalty)] if coverage_penalty > 0 else []
    if similarity is not None:
        chosen.append(minimum_bayes_risk(similarity))
    if prefers is not None:
        chosen.append(preferred_first(prefers))
    if accepts is not None:
        chosen.append(preferred_first(lambda each: accepts(each.hypothesis)))
    return chosen


def by_coverage(beta: float) -> Reranker:
    """Rank by score + β Σ_j log min(Σ_i α_ij, 1) (Wu et al. 2016, arXiv 1609.08144, equation 14).

    The second term penalises source tokens that received little attention. All hypotheses of a mechanism
    without weights receive the same penalty.
    """

    def score(prediction: Prediction) -> float:
        coverage = torch.as_tensor(prediction.weights).sum(dim=0)  # [S]
        return (prediction.score or 0.0) + beta * float(coverage.clamp(FLOOR, 1).log().sum())

    return lambda predictions: _by_score(predictions, map(score, predictions))


def minimum_bayes_risk(similarity: Callable[[str, str], float]) -> Reranker:
    """Rank by the mean similarity to all hypotheses of the sentence, which is the new score.

    The mean estimates the expected similarity to the correct text, if every hypothesis is as probable as its
    share of the list: of samples (Eikema & Aziz 2020, arXiv 2005.10283) that is the model's probability, of a
    beam (Kumar & Byrne 2004) an approximation. Equally similar hypotheses keep their order. The second
    argument of `similarity` is taken as the reference.
    """

    def rerank(predictions: Sequence[Prediction]) -> list[Prediction]:
        texts = [prediction.hypothesis for prediction in predictions]
        return _by_score(predictions, (fmean(similarity(text, other) for other in texts) for text in texts))

    return rerank


def _by_score(predictions: Sequence[Prediction], scores: Iterable[float]) -> list[Prediction]:
    scored = [replace(each, score=score) for each, score in zip(predictions, scores, strict=True)]
    return sorted(scored, key=lambda prediction: -(prediction.score or 0.0))


def preferred_first(preference: Callable[[Prediction], float]) -> Reranker:
    """Move hypotheses with a larger preference before the others; the order is otherwise kept."""
    return lambda predictions: sorted(predictions, key=lambda each: -preference(each))


class WordList:
    """Preference for words of a text: log p + bonus + weight · log n for a word that occurs n times.

    Args:
        path: UTF-8 text file, or several: running text, or a word on each line.
        bonus: added for a word that occurs.
        weight: of log n.

    Raises:
        UserError: if `path` is None, or a file cannot be read.
    """

    def __init__(self, path: str | Sequence[str] | None, bonus: float = 6.0, weight: float = 0.3) -> None:
        if path is None:
            raise UserError("reranking.prefers.path is not set: name a text file of the target language")
        self.counts: Counter[str] = Counter()
        self.bonus, self.weight = bonus, weight
        for each in [path] if isinstance(path, str) else path:
            for line in read_lines(each, setting="reranking.prefers.path"):
                words = re.findall(r"\w+", line)
                whole = (word.strip(PUNCTUATION) for word in line.split())
                others = [word for word in whole if word and word not in words]  # e-mail, and vowel signs
                self.counts.update([*words, *others])

    def __call__(self, prediction: Prediction) -> float:
        count = self.counts[prediction.hypothesis]
        return (prediction.log_p or 0.0) + (self.bonus + self.weight * log(count) if count else 0.0)
