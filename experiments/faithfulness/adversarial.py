"""Adversarial attention weights: other weights with nearly the same output.

`attnlab evaluate RUN --config-dir experiments/faithfulness/conf explain=adversarial`

B, S as in `attnlab.types` · Q candidates · N target positions of the sentences of a batch, in the order of
`Batch.target_text`
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
from scorecard import Values, batches, spread, summarise
from torch import Tensor

from attnlab.data.corpus import Pair
from attnlab.explain.scorecard import Score
from attnlab.nn.attention.base import Attention
from attnlab.nn.attention.interventions import wrap_weights
from attnlab.nn.seq2seq import Encoded, Seq2Seq, select
from attnlab.settings import Fraction, Size
from attnlab.training.model import Model
from attnlab.types import Batch, Memory

SHARES = (0.05, 0.2, 0.5, 1.0)
"""Shares of the way to another distribution by which a move changes the weights."""
ROUNDS = 8
"""Number of moves, each from the best result of the one before."""
MAX_OUTPUTS = 2**25
"""Maximum number of probabilities that are computed together."""


@dataclass(frozen=True, kw_only=True)
class AdversarialWeights:
    """Measures of the weights that nearly the same output allows, on evenly spread sentences of a split.

    Args:
        sentences: number of sentences.
        epsilon: largest change of the output by adversarial weights, as a total variation distance.
    """

    sentences: Size
    epsilon: Fraction

    def __call__(self, model: Model, pairs: Sequence[Pair], *, seed: int) -> dict[str, Score]:
        """Return the means over all target positions; nothing is random."""
        values = []
        for batch in batches(model, [pairs[i] for i in spread(len(pairs), self.sentences)]):
            attacked = attack(model.network, batch, epsilon=self.epsilon)
            sentences = batch.indices[batch.target_text.nonzero()[:, 0]].tolist()  # [N]
            values += [
                Values("adversarial_divergence", sentences, attacked.divergence.tolist()),
                Values("uniform_distance", sentences, attacked.uniform_distance.tolist()),
            ]
        return summarise(values)


class Adversary(NamedTuple):
    """Results for each target position [N]."""

    divergence: Tensor  # largest Jensen-Shannon divergence of weights with nearly the same output, in bits
    uniform_distance: Tensor  # total variation distance of the output with uniform weights


class MovedWeights(Attention):
    """Mechanism with other weights α' = k α + γ Σ_j α_j in place of its weights α, where k + Σ_j γ_j = 1.

    The inner mechanism computes its context from α', and its state from α.

    Args:
        inner: the mechanism.
        kept: k, [B, Q].
        added: γ, [B, Q, S], at least 0 and 0 at padding.
    """

    def __init__(self, inner: Attention, kept: Tensor, added: Tensor) -> None:
        super().__init__(
            query_size=inner.query_size, memory_size=inner.memory_size, normaliser=inner.normaliser
        )
        self.inner = inner
        self.stateful = inner.stateful
        self.kept = kept
        self.added = added

    def forward(self, query: Tensor, memory: Memory, keys: Tensor, state: Any) -> tuple[Tensor, Tensor, Any]:
        weights, state = self.inner.weigh(query, memory, keys, state)  # [B, Q, S]
        weights = self.kept[..., None] * weights + self.added * weights.sum(dim=-1, keepdim=True)
        return self.inner.context(weights, memory), weights.clamp(min=0), state


@torch.no_grad()
def attack(network: Seq2Seq, batch: Batch, *, epsilon: float) -> Adversary:
    """Search for weights that differ as much as possible while the output stays nearly the same.

    Jain & Wallace 2019 (arXiv 1902.10186), section 4.2.2, maximise the Jensen-Shannon divergence of the
    weights by gradient ascent, subject to a total variation distance of at most ε of the output. Here the
    search is greedy, and its result is a lower bound: at one target position, and with everything before it
    unchanged, the weights are moved towards the uniform distribution or towards a source token, by one of
    `SHARES`; the best of these moves is the start of the next of `ROUNDS`. The weights of all heads and
    layers are moved.

    The output with uniform weights is the control of Wiegreffe & Pinter 2019 (arXiv 1908.04626), section 3.2,
    without training again: where it hardly differs, the position does not need attention, and an adversary
    means nothing.
    """
    B, S = batch.source.shape
    outputs = B * (len(SHARES) * (S + 1) + 1) * network.target_embedding.table.num_embeddings  # B Q V
    if outputs > MAX_OUTPUTS and B > 1:
        halves = torch.arange(B, device=batch.source.device).tensor_split(2)
        parts = [attack(network, batch.select(rows), epsilon=epsilon) for rows in halves]
        return Adversary(*(torch.cat(column) for column in zip(*parts, strict=True)))
    encoded, state = network.encode(batch)
    divergences, distances = [], []
    for tokens in torch.split(batch.inputs, 1, dim=1):  # [B, 1]
        divergence, distance = _attack_position(network, encoded, state, tokens, batch.source_mask, epsilon)
        divergences.append(divergence)
        distances.append(distance)
        _, _, state = network.step(tokens, state, encoded)
    text = batch.target_text
    return Adversary(torch.stack(divergences, dim=1)[text], torch.stack(distances, dim=1)[text])


def _attack_position(
    network: Seq2Seq, encoded: Encoded, state: Any, tokens: Tensor, mask: Tensor, epsilon: float
) -> Adversary:
    """Attack one target position of B sentences, whose decoder reads the tokens [B, 1]; results are [B].

    The source mask [B, S] is True at real tokens.
    """
    B, S = mask.shape
    uniform = (mask / mask.sum(dim=-1, keepdim=True))[:, None]  # [B, 1, S]
    targets = torch.cat([uniform, torch.eye(S, device=mask.device).expand(B, -1, -1)], dim=1)  # [B, S + 1, S]
    real = torch.cat([mask.new_ones(B, 1), mask], dim=1)  # [B, S + 1]; no weight is moved to padding
    # candidate 0 is no move; the last S + 1 move all weight
    targets = torch.cat([uniform, targets.repeat(1, len(SHARES), 1)], dim=1)  # [B, Q, S]
    real = torch.cat([mask.new_ones(B, 1), real.repeat(1, len(SHARES))], dim=1)  # [B, Q]
    moved = [0.0, *(share for share in SHARES for _ in range(S + 1))]
    shares = torch.tensor(moved, device=mask.device)  # [Q]
    rows = torch.arange(B, device=mask.device)[:, None].expand(-1, len(shares))  # [B, Q]
    state, tokens = select(state, rows, torch.zeros_like(rows)), tokens.expand_as(rows)
    kept, added = uniform.new_ones(B, 1), torch.zeros_like(uniform)  # [B, 1], [B, 1, S]
    own, attention = None, network.decoder.attention
    for _ in range(ROUNDS):
        keep = kept * (1 - shares)  # [B, Q]
        add = added * (1 - shares[:, None]) + shares[:, None] * targets  # [B, Q, S]
        network.decoder.attention = wrap_weights(attention, partial(MovedWeights, kept=keep, added=add))
        try:
            logits, weights, _ = network.step(tokens, state, encoded)  # [B, Q, …]
        finally:
            network.decoder.attention = attention
        outputs, weights = logits.float().softmax(dim=-1), weights.float()
        if own is None:
            own = outputs[:, :1], weights[:, :1]
            uniform_distance = (outputs[:, -(S + 1)] - outputs[:, 0]).abs().sum(dim=-1) / 2  # [B]
        similar = real & ((outputs - own[0]).abs().sum(dim=-1) / 2 <= epsilon)  # [B, Q]
        divergence, best = jensen_shannon(weights, own[1]).where(similar, 0).max(dim=-1)  # [B]
        kept, added = keep.gather(1, best[:, None]), add[rows[:, :1], best[:, None]]
    return Adversary(divergence, uniform_distance)


def jensen_shannon(first: Tensor, second: Tensor) -> Tensor:
    """Return the Jensen-Shannon divergence of weights [..., S] and [..., S] in bits, 0 to 1.

    Weights are divided by their sums; the divergence from weights that are all 0 is NaN.
    """
    first, second = (weights / weights.sum(dim=-1, keepdim=True) for weights in (first, second))
    entropies = [torch.special.entr(p).sum(dim=-1) for p in ((first + second) / 2, first, second)]
    nats: Tensor = entropies[0] - (entropies[1] + entropies[2]) / 2  # [...]
    return nats.clamp(min=0) / math.log(2)
