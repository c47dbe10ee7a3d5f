"""The rows that each step of a loop reads, where sentences end at different steps."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
from torch import Tensor


class Rows:
    """Of B sentences step i reads the first `counts[i]`; all T steps together N, packed step after step.

    Args:
        counts: none more than of the step before; N = Σ counts.
        batch: B.
    """

    def __init__(self, counts: Sequence[int], batch: int) -> None:
        self.counts, self.batch = counts, batch
        ends = list(itertools.accumulate(counts))
        self.total = ends[-1]  # N
        self.slices = [slice(end - count, end) for count, end in zip(counts, ends, strict=True)]

    def pack(self, padded: Tensor) -> Tensor:
        """[T, B, …] to [N, …]."""
        flat = padded.flatten(0, 1)
        return flat if self.total == len(flat) else flat.index_select(0, self._places(flat.device))

    def pad(self, packed: Tensor) -> Tensor:
        """[N, …] to [T, B, …], zeros where a sentence has ended."""
        shape = (len(self.counts), self.batch, *packed.shape[1:])
        if self.total == len(self.counts) * self.batch:
            return packed.view(shape)
        zeros = packed.new_zeros(len(self.counts) * self.batch, *packed.shape[1:])
        return zeros.index_copy(0, self._places(packed.device), packed).view(shape)

    def _places(self, device: torch.device) -> Tensor:
        """[N]: where the packed rows lie in a flat [T · B]."""
        counts = torch.tensor(self.counts, device=device)[:, None]  # [T, 1]
        return (torch.arange(self.batch, device=device) < counts).flatten().nonzero()[:, 0]
