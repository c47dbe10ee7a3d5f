"""Interventions on attention weights at decoding, to measure how much a trained model depends on them."""

import copy
from collections.abc import Callable
from typing import Any, NamedTuple, get_args

import torch
from torch import Tensor, nn

from attnlab.nn.attention.base import Attention
from attnlab.nn.attention.hard import one_hot_argmax
from attnlab.nn.attention.multihead import MultiHead
from attnlab.nn.attention.numerics import at_least_float32
from attnlab.nn.attention.per_layer import PerLayer
from attnlab.settings import Intervention
from attnlab.types import Memory

INTERVENTIONS: tuple[Intervention, ...] = get_args(Intervention)

MULTIPLIER, MODULUS = 48271, 2**31 - 1
"""Constants of the linear congruential generator of shuffles: Park, Miller & Stockmeyer 1993 (CACM 36:7)."""


def intervene(attention: Attention, intervention: Intervention, *, seed: int = 0) -> Attention:
    """Return `attention` with its weights replaced: see `InterventionWrapper`.

    Raises:
        ValueError: if the attention has no weights to replace.
    """
    return wrap_weights(attention, lambda inner: InterventionWrapper(inner, intervention, seed=seed))


def wrap_weights(attention: Attention, wrap: Callable[[Attention], Attention]) -> Attention:
    """Return `attention` with each of its distributions of weights wrapped in another mechanism.

    In multi-head attention each head is wrapped, so that each head still reads its own values; in a decoder
    with attention in every layer, each layer. The original module is not modified; parameters are shared
    with it.
    """
    if isinstance(attention, PerLayer):
        return PerLayer(wrap_weights(layer, wrap) for layer in attention.mechanisms)
    if not isinstance(attention, MultiHead):
        return wrap(attention)
    wrapped = copy.copy(attention)  # shares the parameters: prepacked weights are cached by address
    wrapped._modules = {**attention._modules, "heads": nn.ModuleList(map(wrap, attention.heads))}
    return wrapped


def has_weights(attention: Attention) -> bool:
    """Return whether a mechanism computes weights from scores, unlike the baselines without attention."""
    if isinstance(attention, PerLayer):
        return all(map(has_weights, attention.mechanisms))
    return isinstance(attention, MultiHead) or type(attention).score is not Attention.score


class InterventionState(NamedTuple):
    """State of an `InterventionWrapper` between two target positions."""

    inner: Any  # state of the inner mechanism
    carried: Tensor | None  # [B, Q, S]: random numbers of "shuffled", previous weights of "previous"


class InterventionWrapper(Attention):
    """Mechanism whose weights α are replaced by α', from which it computes its context.

    ======== ===================================================================================
    uniform  1 / S at each real position
    shuffled α permuted over the real positions, with another permutation at each target position
    argmax   1 at the largest weight
    previous α of the previous target position; at the first position, α
    none     0 everywhere, and so is the context
    ======== ===================================================================================

    The inner mechanism computes its weights α as usual, and its state depends on α. A permutation depends
    only on the seed, the target position and the source positions. The returned weights are max(α', 0).
    """

    def __init__(self, inner: Attention, intervention: Intervention, *, seed: int = 0) -> None:
        super().__init__(
            query_size=inner.query_size, memory_size=inner.memory_size, normaliser=inner.normaliser
        )
        if type(inner).score is Attention.score:
            raise ValueError(
                f"{type(inner).__name__} has no weights for attention_override to replace: choose a run with "
                "another mechanism, such as attention=additive"
            )
        self.inner = inner
        self.intervention = intervention
        self.seed = seed
        self.stateful = inner.stateful or intervention in ("shuffled", "previous")

    def project(self, memory: Memory) -> Tensor:
        return self.inner.project(memory)

    def begin(self, memory: Memory) -> InterventionState:
        carried = None
        if self.intervention == "shuffled":
            # Of a generator on the CPU, so that more padding does not change the numbers of real positions
            generator = torch.Generator().manual_seed(self.seed)
            numbers = torch.randint(1, MODULUS, memory.mask.shape[1:], generator=generator)
            carried = numbers.to(memory.mask.device).expand_as(memory.mask)[:, None]
        elif self.intervention == "previous":  # NaN: there are no previous weights
            carried = torch.full_like(at_least_float32(memory.states[..., 0]), torch.nan)[:, None]
        return InterventionState(self.inner.begin(memory), carried)

    def forward(
        self, query: Tensor, memory: Memory, keys: Tensor, state: InterventionState
    ) -> tuple[Tensor, Tensor, InterventionState]:
        weights, inner = self.inner.weigh(query, memory, keys, state.inner)  # [B, Q, S]
        weights, carried = self._replace(weights, memory.mask[:, None], state.carried)
        context = self.inner.context(weights, memory)  # [B, Q, D]
        return context, weights.clamp(min=0), InterventionState(inner, carried)

    def observe(self, state: InterventionState, log_likelihood: Tensor) -> InterventionState:
        return state._replace(inner=self.inner.observe(state.inner, log_likelihood))

    def _replace(self, weights: Tensor, mask: Tensor, carried: Any) -> tuple[Tensor, Tensor | None]:
        """Return α' [B, Q, S] and the next `carried`; the mask [B, 1, S] is True at real tokens."""
        if self.intervention == "uniform":
            return (mask / mask.sum(dim=-1, keepdim=True).clamp(min=1)).expand_as(weights), None
        if self.intervention == "shuffled":
            numbers = carried.expand_as(weights)
            return permute_weights(weights, mask, numbers), numbers * MULTIPLIER % MODULUS
        if self.intervention == "argmax":
            return one_hot_argmax(weights, mask & (weights > 0)), None
        if self.intervention == "previous":
            return torch.where(carried.isnan(), weights, carried), weights
        return torch.zeros_like(weights), None


def permute_weights(weights: Tensor, mask: Tensor, numbers: Tensor) -> Tensor:
    """Permute weights [B, Q, S] over the real positions (mask [B, 1, S] True), in the order of the numbers.

    The numbers [B, Q, S] are between 1 and `MODULUS` - 1.
    """
    sources = numbers.masked_fill(~mask, MODULUS).argsort(dim=-1, stable=True)  # [B, Q, S], padding last
    targets = (~mask).int().argsort(dim=-1, stable=True).expand_as(sources)  # [B, Q, S], padding last
    return torch.zeros_like(weights).scatter(-1, targets, weights.gather(-1, sources))
