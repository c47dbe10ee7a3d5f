"""Adversarial attention weights: other weights with nearly the same output.

B, S, V as in `attnlab.types` · Q candidates · N target positions of the sentences of a batch, in the order of
`Batch.target_text`
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from attnlab.nn.attention.base import Attention, weighted_sum
from attnlab.nn.attention.interventions import wrap_weights
from attnlab.nn.seq2seq import Seq2Seq, select
from attnlab.types import Batch, Memory

SHARES = (0.1, 0.25, 0.5, 1.0)
"""How far weights are moved towards a candidate."""


class Adversary(NamedTuple):
    """Results for each target position [N]."""

    divergence: Tensor  # largest Jensen-Shannon divergence of weights with nearly the same output, in bits
    uniform_distance: Tensor  # total variation distance of the output with uniform weights


class MovedWeights(Attention):
    """Mechanism whose weights α are moved towards others: α' = (1 - s) α + s β Σ_j α_j.

    The context is the weighted sum of the memory with α'. The state depends on α.

    Args:
        inner: the mechanism.
        candidates: β, [Q, S], each with sum 1 over the real tokens of a sentence; or [B, Q, S].
        shares: s, [Q].
    """

    def __init__(self, inner: Attention, candidates: Tensor, shares: Tensor) -> None:
        super().__init__(
            query_size=inner.query_size, memory_size=inner.memory_size, normaliser=inner.normaliser
        )
        self.inner = inner
        self.stateful = inner.stateful
        self.candidates = candidates
        self.shares = shares

    def attend(self, query: Tensor, memory: Memory, keys: Tensor, state: Any) -> tuple[Tensor, Tensor, Any]:
        """Return context [B, Q, D] and weights α' [B, Q, S], and the next state."""
        _, weights, state = self.inner(query, memory, keys, state)  # [B, Q, S]
        moved = self.candidates * weights.sum(dim=-1, keepdim=True) - weights  # [B, Q, S]
        weights = weights + self.shares[:, None] * moved
        return weighted_sum(weights, memory), weights, state


@torch.no_grad()
def attack(network: Seq2Seq, batch: Batch, *, epsilon: float) -> Adversary:
    """Search for weights that differ as much as possible while the output stays nearly the same.

    Jain & Wallace 2019 (arXiv 1902.10186), section 4.2.2, maximise the Jensen-Shannon divergence of the
    weights by gradient ascent, subject to a total variation distance of at most ε of the output. Here the
    search is over a fixed set, so that its result is a lower bound of theirs: at one target position, and
    with everything before it unchanged, the weights are moved towards the uniform distribution and towards
    each source token, by each of `SHARES`. The weights of all heads and layers are moved.

    The output with uniform weights is the control of Wiegreffe & Pinter 2019 (arXiv 1908.04626), section 3.2,
    without training again: where it hardly differs, the position does not need attention, and an adversary
    means nothing.

    Args:
        network: in evaluation mode, with an attention that has weights.
        batch: B sentences.
        epsilon: ε.
    """
    S, mask = batch.source.size(1), batch.source_mask
    uniform = (mask / mask.sum(dim=-1, keepdim=True))[:, None]  # [B, 1, S]
    one_hot = torch.eye(S, device=mask.device).expand(len(mask), -1, -1)  # [B, S, S]
    directions = torch.cat([uniform, one_hot], dim=1)  # [B, S + 1, S]
    count = S + 1
    shares = torch.tensor([0.0, *(s for s in SHARES for _ in range(count))], device=mask.device)  # [Q]
    candidates = torch.cat([uniform, directions.repeat(1, len(SHARES), 1)], dim=1)  # [B, Q, S]
    real = torch.cat([mask.new_ones(len(mask), 1), mask], dim=1).repeat(1, len(SHARES))  # [B, Q - 1]
    real = torch.cat([mask.new_ones(len(mask), 1), real], dim=1)  # [B, Q]; no weight is moved to padding
    own = network.decoder.attention
    other = wrap_weights(own, lambda inner: MovedWeights(inner, candidates, shares))
    rows = torch.arange(len(mask), device=mask.device)[:, None].expand(-1, len(shares))  # [B, Q]
    encoded, state = network.encode(batch)
    divergences, distances = [], []
    for tokens in torch.split(batch.inputs, 1, dim=1):  # [B, 1]
        network.decoder.attention = other
        try:
            repeated = select(state, rows, torch.zeros_like(rows))
            logits, weights, _ = network.step(tokens.expand_as(rows), repeated, encoded)  # [B, Q, …]
        finally:
            network.decoder.attention = own
        outputs = logits.float().softmax(dim=-1)  # [B, Q, V]
        distance = (outputs - outputs[:, :1]).abs().sum(dim=-1) / 2  # [B, Q]
        divergence = jensen_shannon(weights.float(), weights[:, :1].float())  # [B, Q]
        similar = real & (distance <= epsilon)
        divergences.append(divergence.where(similar, 0).amax(dim=-1))
        distances.append(distance[:, -count])  # all weights moved to the uniform distribution
        _, _, state = network.step(tokens, state, encoded)
    text = batch.target_text
    return Adversary(torch.stack(divergences, dim=1)[text], torch.stack(distances, dim=1)[text])


def jensen_shannon(first: Tensor, second: Tensor) -> Tensor:
    """Return the Jensen-Shannon divergence of weights [..., S] and [..., S] in bits, 0 to 1.

    Weights are divided by their sums; the divergence from weights that are all 0 is NaN.
    """
    first, second = (weights / weights.sum(dim=-1, keepdim=True) for weights in (first, second))
    entropies = [torch.special.entr(p).sum(dim=-1) for p in ((first + second) / 2, first, second)]
    nats: Tensor = entropies[0] - (entropies[1] + entropies[2]) / 2  # [...]
    return nats.clamp(min=0) / math.log(2)
