"""Packing of a batch whose sentences end at different steps."""

import itertools
import math
from collections.abc import Sequence

import torch
from torch import Tensor

from attnlab.types import PAD

ROUND = 8
"""Active batch sizes are rounded up to a multiple of this: oneDNN compiles a product for each size."""


def active_counts(labels: Tensor) -> list[int]:
    """Return how many sentences each of T steps must process, so that every label is covered.

    Step i processes the first `counts[i]` sentences of the batch. The counts are smallest if the batch is
    sorted by target length, longest first. On a GPU every step processes all sentences, because reading the
    lengths would synchronise the device.

    Args:
        labels: [B, T] int64, PAD where there is no label.
    """
    size, steps = labels.shape
    if labels.device.type != "cpu":
        return [size] * steps
    numbers = torch.arange(1, size + 1)[:, None]  # [B, 1]
    last = (numbers * (labels != PAD)).amax(dim=0)  # [T]
    return [min(size, math.ceil(max(1, count) / ROUND) * ROUND) for count in last.tolist()]


class Rows:
    """The rows that each step processes, packed step after step.

    Step i processes the first `counts[i]` of B sentences; all T steps together have N = Σ counts rows.

    Args:
        counts: active sentences per step, never increasing.
        batch: B
    """

    def __init__(self, counts: Sequence[int], batch: int) -> None:
        self.counts, self.batch = counts, batch
        ends = list(itertools.accumulate(counts))
        self.total = ends[-1]  # N
        self.slices = [slice(end - count, end) for count, end in zip(counts, ends, strict=True)]

    def pack(self, padded: Tensor) -> Tensor:
        """Pack [T, B, …] to [N, …]."""
        flat = padded.flatten(0, 1)  # [T B, …]
        return flat if self.total == len(flat) else flat.index_select(0, self._places(flat.device))

    def pad(self, packed: Tensor) -> Tensor:
        """Unpack [N, …] to [T, B, …], with zeros where a sentence has ended."""
        shape = (len(self.counts), self.batch, *packed.shape[1:])
        if self.total == len(self.counts) * self.batch:
            return packed.view(shape)
        zeros = packed.new_zeros(len(self.counts) * self.batch, *packed.shape[1:])  # [T B, …]
        return zeros.index_copy(0, self._places(packed.device), packed).view(shape)

    def _places(self, device: torch.device) -> Tensor:
        """Positions [N] of the packed rows in a flat [T B]."""
        counts = torch.tensor(self.counts, device=device)[:, None]  # [T, 1]
        return (torch.arange(self.batch, device=device) < counts).flatten().nonzero()[:, 0]
