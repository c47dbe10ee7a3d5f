"""Predictions of given texts."""

from __future__ import annotations

from attnlab.files.predictions import Prediction


def predictions_of(*pairs: tuple[str, str]) -> list[Prediction]:
    """Return predictions of (hypothesis, reference) pairs."""
    return [
        Prediction(index=index, source="", reference=reference, hypothesis=hypothesis)
        for index, (hypothesis, reference) in enumerate(pairs)
    ]
