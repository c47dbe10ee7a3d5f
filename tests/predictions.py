"""Predictions of given texts."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from attnlab.files.predictions import Prediction


def predictions_of(*texts: tuple[str, ...]) -> list[Prediction]:
    """Return predictions of (hypothesis, reference, …) tuples; empty references are left out."""
    return [
        Prediction(index=index, source="", references=tuple(filter(None, references)), hypothesis=hypothesis)
        for index, (hypothesis, *references) in enumerate(texts)
    ]


def attention_of(
    weights: ArrayLike, source: Sequence[str], target: Sequence[str], **fields: Any
) -> Prediction:
    """Return a prediction with these tokens and attention weights [T, S], without texts."""
    tokens = {"source_tokens": [*source], "tokens": [*target], "weights": np.array(weights, dtype=float)}
    return Prediction(index=0, source="", hypothesis="", **tokens, **fields)
