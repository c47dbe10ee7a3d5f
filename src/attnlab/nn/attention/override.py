"""Interventions: a trained attention whose weights are replaced, to see what a model needs them for."""

from __future__ import annotations

import copy
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor, nn

from attnlab.nn.attention.base import Attention, weighted_sum
from attnlab.nn.attention.hard import largest
from attnlab.nn.attention.multihead import MultiHead
from attnlab.nn.attention.normalisers import widened
from attnlab.types import Memory

Intervention = Literal["uniform", "shuffled", "argmax", "previous", "none"]
INTERVENTIONS: tuple[Intervention, ...] = get_args(Intervention)

MULTIPLIER, MODULUS = 48271, 2**31 - 1
"""Of the random numbers that shuffle: Park, Miller & Stockmeyer 1993 (CACM 36, no. 7, p. 108)."""


def override(attention: Attention, how: Intervention, *, seed: int = 0) -> Attention:
    """An attention that is `attention` but for its weights, which an `Override` replaces.

    Of multi-head attention they are the weights of each head, so that what a head reads is still what it has
    learned to read. The original is left as it is; parameters may be shared with it.

    Raises:
        ValueError: if the attention has no weights to replace.
    """
    if not isinstance(attention, MultiHead):
        return Override(attention, how, seed=seed)
    attention = copy.deepcopy(attention)
    heads = [Override(head, how, seed=seed) for head in attention.heads]
    attention.heads = nn.ModuleList(heads)  # type: ignore[assignment]
    return attention


class OverrideState(NamedTuple):
    """What one target position hands to the next."""

    inner: Any
    held: Tensor | None  # [B, Q, S]: of "shuffled" the random numbers, of "previous" the weights before


class Override(Attention):
    """The weights α of another mechanism, replaced by α' as the model decodes; c = Σ_j α'_j h_j.

    ======== =====================================================================================
    uniform  1 / S at each real position
    shuffled α dealt out anew to the real positions, in another random order at each target position
    argmax   1 at the largest weight
    previous α of the target position before; at the first, its own
    none     0, and so is the context
    ======== =====================================================================================

    The inner mechanism computes its weights as ever, and its state goes on by these. The order of a shuffle
    follows from the seed, the target position and the source position alone: it is the same whatever the
    padding, the batch mates and the search. The context is the weighted sum of the memory also if the inner
    mechanism's own is something else; for multi-head attention there is `override`. In the weights' place
    the α' are given back.

    Args:
        inner: the mechanism.
        how: which intervention.
        seed: of the shuffles.

    Raises:
        ValueError: if the inner mechanism has no weights to replace.
    """

    def __init__(self, inner: Attention, how: Intervention, *, seed: int = 0) -> None:
        super().__init__(
            query_size=inner.query_size, memory_size=inner.memory_size, normaliser=inner.normaliser
        )
        if type(inner).score is Attention.score:
            raise ValueError(
                f"{type(inner).__name__} has no weights for attention_override to replace: give a run that "
                "has some, as with attention=additive"
            )
        self.inner = inner
        self.how = how
        self.seed = seed
        self.stateful = inner.stateful or how in ("shuffled", "previous")

    def project(self, memory: Memory) -> Tensor:
        """The inner mechanism's keys."""
        return self.inner.project(memory)

    def begin(self, memory: Memory) -> OverrideState:
        """The inner mechanism's state, and what the intervention holds, [B, 1, S]."""
        held = None
        if self.how == "shuffled":
            held = self._draw(memory.mask.size(1)).to(memory.mask.device).expand_as(memory.mask)[:, None]
        elif self.how == "previous":  # nothing yet
            held = torch.full_like(widened(memory.states[..., 0]), torch.nan)[:, None]
        return OverrideState(self.inner.begin(memory), held)

    def attend(
        self, query: Tensor, memory: Memory, keys: Tensor, state: OverrideState
    ) -> tuple[Tensor, Tensor, OverrideState]:
        """With weights other than the inner mechanism's: context [B, Q, D], weights [B, Q, S]."""
        _, weights, after = self.inner(query, memory, keys, state.inner)  # [B, Q, S]
        weights, held = self._replace(weights, memory.mask[:, None], state.held)
        return weighted_sum(weights, memory), weights, OverrideState(after, held)

    def _replace(self, weights: Tensor, mask: Tensor, held: Any) -> tuple[Tensor, Tensor | None]:
        """The new weights [B, Q, S], and what to hold on to; the mask is [B, 1, S]."""
        if self.how == "uniform":
            return (mask / mask.sum(dim=-1, keepdim=True).clamp(min=1)).expand_as(weights), None
        if self.how == "shuffled":
            numbers = held.expand_as(weights)
            return deal(weights, mask, numbers), numbers * MULTIPLIER % MODULUS
        if self.how == "argmax":
            return largest(weights, mask & (weights > 0)), None
        if self.how == "previous":
            return torch.where(held.isnan(), weights, held), weights
        return torch.zeros_like(weights), None

    def _draw(self, positions: int) -> Tensor:
        """The random number of each position [S], the same however many come after it."""
        generator = torch.Generator().manual_seed(self.seed)
        return torch.randint(1, MODULUS, (positions,), generator=generator)


def deal(weights: Tensor, mask: Tensor, numbers: Tensor) -> Tensor:
    """Weights [B, Q, S] dealt out to the real positions in the order of the numbers [B, Q, S]."""
    taken = numbers.masked_fill(~mask, MODULUS).argsort(dim=-1, stable=True)  # [B, Q, S], padding last
    given = (~mask).int().argsort(dim=-1, stable=True).expand_as(taken)  # [B, Q, S], padding last
    return torch.zeros_like(weights).scatter(-1, given, weights.gather(-1, taken))
