"""Base class of all attention mechanisms: interface, masking, normalisation and weighted sum."""

from collections.abc import Callable
from typing import Any, NotRequired, TypedDict, Unpack

import torch
from torch import Tensor, nn

from attnlab.nn.attention.normalisers import SOFTMAX, Normaliser
from attnlab.nn.attention.numerics import SMALLEST_WEIGHT
from attnlab.types import Memory


class Sizes(TypedDict):
    """Keyword arguments that every attention constructor passes on to `Attention`."""

    query_size: int  # H
    memory_size: int  # D
    normaliser: NotRequired[Normaliser]


class Attention(nn.Module):
    """Base class of attention mechanisms.

    For a query s and memory states h_1 … h_S::

        e_j = score(s, h_j)        implemented by each mechanism
        α   = softmax(e)           or another normaliser, over real positions only
        c   = Σ_j α_j h_j

    Call `keys = attention.project(memory)` once per sentence, then
    `context, weights, state = attention(query, memory, keys, state)` for each query.

    A query is [B, Q, H]: Q queries to the same memory in one call, either target positions or the hypotheses
    of a beam. A mechanism with state sets `stateful = True` and receives one target position per call. Its
    state is a tensor or a tuple of tensors [B, Q, …]; `begin` creates it, each call returns the next one, and
    the module stores nothing.

    A new mechanism implements `score`. It may also override `project` (to transform the memory once per
    sentence), `begin` and `advance` (if it has a state that follows from its weights), `weigh` (if its
    weights are more than normalised scores), or `context` (if its context is not the weighted sum of the
    memory). A constructor with additional arguments takes the shared ones as
    `**sizes: Unpack[Sizes]` and passes them to `super().__init__`.

    Args:
        query_size: H
        memory_size: D
        normaliser: maps scores to weights.
    """

    stateful = False

    def __init__(self, *, query_size: int, memory_size: int, normaliser: Normaliser = SOFTMAX) -> None:
        super().__init__()
        self.normaliser = normaliser
        self.query_size = query_size
        self.memory_size = memory_size

    @property
    def context_size(self) -> int:
        """Width of the context vector: D by default."""
        return self.memory_size

    def project(self, memory: Memory) -> Tensor:
        """Return the keys [B, S, …]: everything in the score that depends on the memory alone."""
        return memory.states

    def begin(self, memory: Memory) -> Any:
        """Return the state before the first target position, tensors [B, 1, …], or None without state."""
        return None

    def score(self, query: Tensor, keys: Tensor, state: Any) -> Tensor:
        """Return unnormalised scores [B, Q, S] of queries [B, Q, H] against keys [B, S, …]."""
        raise NotImplementedError

    def weigh(self, query: Tensor, memory: Memory, keys: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Return the weights [B, Q, S] of the context, 0 at padding, and the next state."""
        weights = self.normaliser(self.score(query, keys, state), memory.mask[:, None])
        return weights, self.advance(state, weights)

    def advance(self, state: Any, weights: Tensor) -> Any:
        """Return the state after a target position whose weights are [B, Q, S]."""
        return state

    def observe(self, state: Any, log_likelihood: Tensor) -> Any:
        """Condition the state on an emitted token, given log p(y_i | s_i, h_j) [B, Q, S].

        Called by `attnlab.nn.marginal` after each target position. Only mechanisms whose alignments depend on
        each other override it.
        """
        return state

    def posterior(
        self, queries: Tensor, memory: Memory, keys: Tensor, weights: Tensor, log_likelihood: Tensor
    ) -> Tensor:
        """Return the alignment given the whole target, p(a_i | y, x) [B, T, S] ∝ α_ij p(y_i | s_i, h_j).

        The arguments are of all target positions: queries [B, T, H], weights α and log p(y_i | s_i, h_j),
        each [B, T, S].
        """
        return SOFTMAX(weights.clamp(min=SMALLEST_WEIGHT).log() + log_likelihood, weights > 0)

    def context(self, weights: Tensor, memory: Memory) -> Tensor:
        """Return the context Σ_j α_j h_j, [B, Q, D], of weights [B, Q, S]."""
        return torch.bmm(weights.to(memory.states.dtype), memory.states)

    def forward(self, query: Tensor, memory: Memory, keys: Tensor, state: Any) -> tuple[Tensor, Tensor, Any]:
        """Attend to a memory.

        Args:
            query: [B, Q, H].
            memory: states [B, S, D] and mask [B, S], True at real tokens and False at padding.
            keys: the result of `project(memory)`.
            state: the result of `begin(memory)` or of the previous call.

        Returns:
            Context [B, Q, D], weights [B, Q, S] and the next state.
        """
        weights, state = self.weigh(query, memory, keys, state)  # [B, Q, S]
        return self.context(weights, memory), weights, state


class ScoreWrapper(Attention):
    """Base class of mechanisms that use the scores e of another, inner mechanism.

    Args:
        score: constructor of the inner mechanism, called with `query_size` and `memory_size`.
        **sizes: `query_size`, `memory_size` and `normaliser` of `Attention`.

    Raises:
        ValueError: if the inner mechanism has state, has no scores, or overrides more than its scores.
    """

    def __init__(self, *, score: Callable[..., Attention], **sizes: Unpack[Sizes]) -> None:
        super().__init__(**sizes)
        self.inner = score(query_size=self.query_size, memory_size=self.memory_size)
        inner = type(self.inner)
        others = ("weigh", "context", "forward")
        only_scores = all(getattr(inner, name) is getattr(Attention, name) for name in others)
        if self.inner.stateful or inner.score is Attention.score or not only_scores:
            raise ValueError(
                f"attention.score cannot be {inner.__name__}: the inner mechanism must have scores, no state "
                "and the default normalisation. Use attention@attention.score=additive, dot or general"
            )

    def project(self, memory: Memory) -> Tensor:
        return self.inner.project(memory)

    def score(self, query: Tensor, keys: Tensor, state: Any) -> Tensor:
        return self.inner.score(query, keys, None)
