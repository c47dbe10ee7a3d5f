"""Collecting predictions from all processes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from torch import distributed

from attnlab.files.predictions import Prediction


def gather_predictions(predictions: Sequence[Prediction]) -> list[Prediction]:
    """Return the predictions of all processes on every process, ordered by index.

    Each index occurs once, even if a sampler gave a sentence to two processes.
    """
    shares: list[Sequence[Prediction]] = [predictions]
    if distributed.is_available() and distributed.is_initialized():
        shares = [[] for _ in range(distributed.get_world_size())]
        distributed.all_gather_object(shares, predictions)
    by_index = {prediction.index: prediction for prediction in chain(*shares)}
    return [by_index[index] for index in sorted(by_index)]
