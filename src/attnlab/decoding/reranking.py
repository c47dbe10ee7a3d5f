"""Reranking of beam hypotheses.

A reranker maps the predictions of one sentence, best first, to the same predictions in another order, with
other scores where the order follows from new scores. The option group `reranking` chooses them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

import torch

from attnlab.files.predictions import Prediction

Reranker = Callable[[Sequence[Prediction]], list[Prediction]]

FLOOR = 1e-10
"""Lower bound of the total weight on a source token, so that its logarithm is finite."""


@dataclass(frozen=True)
class CoveragePenalty:
    """Rank by score + β Σ_j log min(Σ_i α_ij, 1) (Wu et al. 2016, arXiv 1609.08144, equation 14).

    The second term penalises source tokens that received little attention. All hypotheses of a mechanism
    without weights receive the same penalty.
    """

    beta: float

    def __call__(self, predictions: Sequence[Prediction]) -> list[Prediction]:
        """Return the predictions with the penalty added to their scores, best first."""
        scored = [
            replace(prediction, score=(prediction.score or 0.0) + self.beta * self._coverage(prediction))
            for prediction in predictions
        ]
        return sorted(scored, key=lambda prediction: -(prediction.score or 0.0))

    def _coverage(self, prediction: Prediction) -> float:
        weights = torch.as_tensor(prediction.weights)  # [T, S]
        return float(weights.sum(dim=0).clamp(FLOOR, 1).log().sum())


@dataclass(frozen=True)
class AcceptedFirst:
    """Move hypotheses whose text is accepted before all others; the order is otherwise kept."""

    accepts: Callable[[str], bool]

    def __call__(self, predictions: Sequence[Prediction]) -> list[Prediction]:
        """Return the accepted predictions, then the others."""
        return sorted(predictions, key=lambda prediction: not self.accepts(prediction.hypothesis))


@dataclass(frozen=True)
class PreferredFirst:
    """Move hypotheses with a larger value of a function before the others; the order is otherwise kept.

    Args:
        preference: maps a prediction to a number, such as the number of quoted names that it repeats.
    """

    preference: Callable[[Prediction], float]

    def __call__(self, predictions: Sequence[Prediction]) -> list[Prediction]:
        return sorted(predictions, key=lambda prediction: -self.preference(prediction))


@dataclass(frozen=True)
class MinimumBayesRisk:
    """Rank by the mean similarity to all hypotheses of the sentence, which is the new score.

    The mean estimates the expected similarity to the correct text, if every hypothesis is as probable as its
    share of the list: of samples (Eikema & Aziz 2020, arXiv 2005.10283) that is the model's probability, of a
    beam (Kumar & Byrne 2004) an approximation. Equally similar hypotheses keep their order.

    Args:
        similarity: of a text to another one that is taken as the reference.
    """

    similarity: Callable[[str, str], float]

    def __call__(self, predictions: Sequence[Prediction]) -> list[Prediction]:
        """Return the predictions with their mean similarities as scores, best first."""
        texts = [prediction.hypothesis for prediction in predictions]
        scored = [
            replace(prediction, score=fmean(self.similarity(text, other) for other in texts))
            for prediction, text in zip(predictions, texts, strict=True)
        ]
        return sorted(scored, key=lambda prediction: -(prediction.score or 0.0))
