"""Multi-head attention: several mechanisms side by side, each over a slice of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from attnlab.nn.attention.base import Attention
from attnlab.nn.attention.normalisers import SOFTMAX, Normaliser
from attnlab.nn.fused.linear import Linear
from attnlab.types import Memory


class MultiHead(Attention):
    """N heads of any mechanism, which see other things and look elsewhere.

    ::

        head_n = attend_n(W_q^n s; W_k^n h_j, W_v^n h_j)      query; keys, which are scored; values
        c      = W_o [head_1; …; head_N]

    Vaswani et al. 2017 (arXiv 1706.03762), section 3.2.2, with d_k = d_v = A / N and scaled dot products;
    Chen et al. 2018 (arXiv 1804.09849), section 4, gave additive heads to a recurrent decoder. Here a head
    may be anything that scores, also with state, and has all its parameters to itself. The weights given back
    are the mean over the heads, for people to look at: the context is not their weighted sum.

    Costs what the scores of N heads of width A / N do, 2·H·A + 2·A·D operations and 2·A + S·N numbers, and a
    weighted sum of 2·S·A operations; keys and values cost 4·S·D·A and 2·S·A once a sentence. The heads go one
    after another.

    Args:
        query_size: H.
        memory_size: D.
        size: A, of all heads together.
        heads: N.
        score: makes the mechanism of a head, given `query_size`, `memory_size` (both A / N) and `normaliser`.
        normaliser: from scores to weights.

    Raises:
        ValueError: if N does not divide A, or the mechanism does not score positions.
    """

    def __init__(
        self,
        *,
        query_size: int,
        memory_size: int,
        size: int,
        heads: int,
        score: Callable[..., Attention],
        normaliser: Normaliser = SOFTMAX,
    ) -> None:
        super().__init__(query_size=query_size, memory_size=memory_size, normaliser=normaliser)
        if heads < 1 or size % heads:
            raise ValueError(
                f"attention.heads={heads} must divide attention.size={size}: each head gets as much of it"
            )
        self.width = size // heads
        sizes = {"query_size": self.width, "memory_size": self.width}
        made = [score(**sizes, normaliser=normaliser) for _ in range(heads)]
        if type(made[0]).score is Attention.score:
            raise ValueError(
                f"attention.score cannot be {type(made[0]).__name__}: a head must score positions, "
                "as with attention@attention.score=additive"
            )
        self.heads: Sequence[Attention] = nn.ModuleList(made)  # type: ignore[assignment]
        self.query = Linear(query_size, size, bias=False)
        self.key = Linear(memory_size, size, bias=False)
        self.value = Linear(memory_size, size, bias=False)
        self.output = Linear(size, memory_size, bias=False)

    @property
    def stateful(self) -> bool:  # type: ignore[override]
        """Whether a head has state."""
        return any(head.stateful for head in self.heads)

    def project(self, memory: Memory) -> Tensor:
        """What each head projects of its W_k h_j, and behind it W_v h_j: [B, S, N, K + A / N]."""
        slices = zip(self.heads, self.key(memory.states).split(self.width, dim=-1), strict=True)
        keys = [head.project(Memory(part, memory.mask)) for head, part in slices]  # N times [B, S, K]
        values = self.value(memory.states).unflatten(-1, (-1, self.width))  # [B, S, N, A / N]
        return torch.cat([torch.stack(keys, dim=2), values], dim=-1)

    def begin(self, memory: Memory) -> tuple[Any, ...]:
        """The state of each head."""
        return tuple(head.begin(memory) for head in self.heads)

    def attend(
        self, query: Tensor, memory: Memory, keys: Tensor, state: tuple[Any, ...]
    ) -> tuple[Tensor, Tensor, tuple[Any, ...]]:
        """With each head: context [B, Q, D], mean weights [B, Q, S], the heads' states."""
        queries = self.query(query).split(self.width, dim=-1)  # N times [B, Q, A / N]
        found = []
        for head, part, own, before in zip(self.heads, queries, keys.unbind(2), state, strict=True):
            scored, values = own[..., : -self.width], own[..., -self.width :]  # [B, S, K], [B, S, A / N]
            found.append(head(part, Memory(values, memory.mask), scored, before))
        contexts, weights, after = zip(*found, strict=True)
        return self.output(torch.cat(contexts, dim=-1)), torch.stack(weights).mean(dim=0), after
