"""Packing of a batch whose sentences end at different steps."""

import itertools
import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from attnlab.types import PAD

ROUND = 8  # Active batch sizes are rounded up to a multiple of this: oneDNN compiles a product for each size


@dataclass(frozen=True)
class Rows:
    """The rows that each of T steps processes, packed step after step: N = Σ counts rows of all steps.

    Args:
        counts: active sentences of each step, the first ones of the batch, never increasing.
        batch: B
    """

    counts: tuple[int, ...]
    batch: int

    @classmethod
    def of(cls, labels: Tensor) -> "Rows":
        """Return the fewest rows that cover every label [B, T], PAD where there is none.

        They are fewest if the batch is sorted by target length, longest first. On a GPU every step processes
        all sentences, because reading the lengths would synchronise the device.
        """
        size, steps = labels.shape
        if labels.device.type != "cpu":
            return cls((size,) * steps, size)
        numbers = torch.arange(1, size + 1)[:, None]  # [B, 1]
        last = (numbers * (labels != PAD)).amax(dim=0).tolist()  # T numbers
        return cls(tuple(min(size, math.ceil(max(1, count) / ROUND) * ROUND) for count in last), size)

    @property
    def total(self) -> int:
        """N, the rows of all steps together."""
        return sum(self.counts)

    @cached_property
    def slices(self) -> list[slice]:
        """Rows of each step, first step first."""
        ends = itertools.accumulate(self.counts)
        return [slice(end - count, end) for count, end in zip(self.counts, ends, strict=True)]

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
        """Return the positions [N] of the packed rows in a flat [T B]."""
        counts = torch.tensor(self.counts, device=device)[:, None]  # [T, 1]
        return (torch.arange(self.batch, device=device) < counts).flatten().nonzero()[:, 0]
