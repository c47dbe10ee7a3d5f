"""Multi-head attention with any mechanism as its heads."""

from collections.abc import Callable, Sequence
from typing import Any, Unpack

import torch
from torch import Tensor, nn

from attnlab.nn.attention.base import Attention, Sizes
from attnlab.settings import Size
from attnlab.types import Memory


class MultiHead(Attention):
    """Multi-head attention (Vaswani et al., 2017).

    ::

        head_n = attend_n(W_q^n s; W_k^n h_j, W_v^n h_j)      query; keys, which are scored; values
        c      = W_o [head_1; …; head_N]

    Vaswani et al. 2017 (arXiv 1706.03762), section 3.2.2, with d_k = d_v = A / N, for scaled dot products.
    Chen et al. 2018 (arXiv 1804.09849), section 4, use additive heads in a recurrent decoder. Here a head is
    any mechanism with scores, also one with state; heads share no parameters. The returned weights are the
    mean over the heads, for inspection only: the context is not their weighted sum.

    Args:
        size: A, the size of all heads together, a multiple of N.
        heads: N, the number of heads.
        score: constructor of a head, called with `query_size` and `memory_size` (both A / N) and
            `normaliser`.
    """

    def __init__(
        self, *, size: Size, heads: Size, score: Callable[..., Attention], **sizes: Unpack[Sizes]
    ) -> None:
        super().__init__(**sizes)
        if size % heads:
            raise ValueError(f"attention.heads={heads} must divide attention.size={size}")
        self.width = size // heads
        head_sizes: Sizes = {
            "query_size": self.width,
            "memory_size": self.width,
            "normaliser": self.normaliser,
        }
        modules = [score(**head_sizes) for _ in range(heads)]
        if type(modules[0]).score is Attention.score:
            raise ValueError(
                f"attention.score cannot be {type(modules[0]).__name__}: a head must have scores, as with "
                "attention@attention.score=additive"
            )
        self.heads: Sequence[Attention] = nn.ModuleList(modules)  # type: ignore[assignment]
        self.query = nn.Linear(self.query_size, size, bias=False)
        self.key = nn.Linear(self.memory_size, size, bias=False)
        self.value = nn.Linear(self.memory_size, size, bias=False)
        self.output = nn.Linear(size, self.memory_size, bias=False)

    @property
    def stateful(self) -> bool:  # type: ignore[override]
        """True if any head has state."""
        return any(head.stateful for head in self.heads)

    def project(self, memory: Memory) -> Tensor:
        """Return each head's keys, computed from W_k h_j, and values W_v h_j: [B, S, N, K + A / N]."""
        slices = zip(self.heads, self.key(memory.states).split(self.width, dim=-1), strict=True)
        keys = [head.project(Memory(part, memory.mask)) for head, part in slices]  # N times [B, S, K]
        values = self.value(memory.states).unflatten(-1, (-1, self.width))  # [B, S, N, A / N]
        return torch.cat([torch.stack(keys, dim=2), values], dim=-1)

    def begin(self, memory: Memory) -> tuple[Any, ...]:
        return tuple(head.begin(memory) for head in self.heads)

    def forward(
        self, query: Tensor, memory: Memory, keys: Tensor, state: tuple[Any, ...]
    ) -> tuple[Tensor, Tensor, tuple[Any, ...]]:
        queries = self.query(query).split(self.width, dim=-1)  # N times [B, Q, A / N]
        results = []
        for head, head_query, head_keys, head_state in zip(
            self.heads, queries, keys.unbind(2), state, strict=True
        ):
            scored, values = head_keys.tensor_split([-self.width], dim=-1)  # [B, S, K], [B, S, A / N]
            results.append(head(head_query, Memory(values, memory.mask), scored, head_state))
        contexts, weights, states = zip(*results, strict=True)
        return self.output(torch.cat(contexts, dim=-1)), torch.stack(weights).mean(dim=0), states
