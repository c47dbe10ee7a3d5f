"""What every attention mechanism shares: the interface, the masking and the weighted sum."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from attnlab.nn.attention.normalisers import SOFTMAX, Normaliser
from attnlab.types import Memory


class Attention(nn.Module):
    """Weights over a memory, and the context they give.

    For a query s and memory states h_1 … h_S::

        e_j = score(s, h_j)        the variant's own
        α   = softmax(e)           or another normaliser, over real positions only
        c   = Σ_j α_j h_j

    Use it in two moves: `keys = attention.project(memory)` once a sentence, then
    `context, weights, state = attention(query, memory, keys, state)` for each query.

    A query is [B, Q, H]: Q queries to the same memory at once, which may be target positions or the
    hypotheses of a beam. State, where a variant has one, is a tensor or tuple of tensors [B, Q, …], made by
    `begin` and handed in and out; nothing is kept on the module. A variant with state sets
    `stateful = True`, and is then asked one target position at a time.

    A variant of your own overrides `project` if it maps the memory, and `score`; `weigh` only if its weights
    are more than normalised scores, and `attend` only if its context is more than a weighted sum.

    What a variant's docstring says it costs is for one sentence, each query and the forward pass: operations,
    a multiply-add being two and a tanh, exp or root one; and numbers of memory, most of them kept for the way
    back. To all come the normaliser's share and the weighted sum, 2·S·D operations and S numbers.

    Args:
        query_size: H.
        memory_size: D.
        normaliser: from scores to weights.
    """

    stateful = False

    def __init__(self, *, query_size: int, memory_size: int, normaliser: Normaliser = SOFTMAX) -> None:
        super().__init__()
        self.normaliser = normaliser
        self.query_size = query_size
        self.memory_size = memory_size

    @property
    def context_size(self) -> int:
        """The width of the context: D, unless a variant says otherwise."""
        return self.memory_size

    def project(self, memory: Memory) -> Tensor:
        """Whatever of the score depends on the memory alone: keys [B, S, …]."""
        return memory.states

    def begin(self, memory: Memory) -> Any:
        """The state before the first target position, tensors [B, 1, …]; None if the variant has none."""
        return None

    def score(self, query: Tensor, keys: Tensor, state: Any) -> Tensor:
        """Unnormalised scores [B, Q, S] of a query [B, Q, H] against keys [B, S, …]."""
        raise NotImplementedError

    def weigh(self, query: Tensor, memory: Memory, keys: Tensor, state: Any) -> Tensor:
        """Weights [B, Q, S]: the normalised scores."""
        return self.normaliser(self.score(query, keys, state), memory.mask[:, None])

    def advance(self, state: Any, weights: Tensor) -> Any:
        """The state after attending with `weights` [B, Q, S]."""
        return state

    def attend(self, query: Tensor, memory: Memory, keys: Tensor, state: Any) -> tuple[Tensor, Tensor, Any]:
        """Context [B, Q, D], weights [B, Q, S] and the new state of a query [B, Q, H]."""
        weights = self.weigh(query, memory, keys, state)  # [B, Q, S]
        return weighted_sum(weights, memory), weights, self.advance(state, weights)

    def forward(
        self, query: Tensor, memory: Memory, keys: Tensor, state: Any = None
    ) -> tuple[Tensor, Tensor, Any]:
        """Attend.

        Args:
            query: [B, Q, H], or [B, H] for one query a sentence.
            memory: states [B, S, D], mask [B, S] True at real positions.
            keys: what `project(memory)` gave.
            state: what `begin` or the call before gave; None for the first.

        Returns:
            context [B, Q, D] and weights [B, Q, S] (without Q if the query had none), and the new state.
        """
        state = self.begin(memory) if state is None else state
        if query.dim() == 3:
            return self.attend(query, memory, keys, state)
        context, weights, state = self.attend(query[:, None], memory, keys, state)
        return context[:, 0], weights[:, 0], state


def weighted_sum(weights: Tensor, memory: Memory) -> Tensor:
    """Σ_j α_j h_j: the context [B, Q, D] of weights [B, Q, S]."""
    return torch.bmm(weights.to(memory.states.dtype), memory.states)


class OverScores(Attention):
    """A variant that puts the scores e of another, its inner variant, to a use of its own.

    Args:
        query_size: H.
        memory_size: D.
        score: makes the inner variant, from the two sizes.
        normaliser: from scores to weights.

    Raises:
        ValueError: if the inner variant has state, or no scores, or does more than normalise them.
    """

    def __init__(
        self,
        *,
        query_size: int,
        memory_size: int,
        score: Callable[..., Attention],
        normaliser: Normaliser = SOFTMAX,
    ) -> None:
        super().__init__(query_size=query_size, memory_size=memory_size, normaliser=normaliser)
        self.inner = score(query_size=query_size, memory_size=memory_size)
        variant = type(self.inner)
        shared = (variant.weigh, variant.attend, variant.forward)
        plain = shared == (Attention.weigh, Attention.attend, Attention.forward)
        if self.inner.stateful or variant.score is Attention.score or not plain:
            raise ValueError(
                f"the score inside another mechanism cannot be {variant.__name__}, which is more or less "
                "than scores: use attention@attention.score=additive, dot or general"
            )

    def project(self, memory: Memory) -> Tensor:
        """The inner variant's keys."""
        return self.inner.project(memory)

    def score(self, query: Tensor, keys: Tensor, state: Any) -> Tensor:
        """The inner variant's scores: [B, Q, S]."""
        return self.inner.score(query, keys, None)
