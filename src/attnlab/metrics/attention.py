"""What attention looks at, as numbers.

B, T, S as in `attnlab.types`. Every score is a mean over units of its own: target positions, steps between
them, or source positions, of all sentences together.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from attnlab.metrics.scores import Tally


class Measured(NamedTuple):
    """A score before its mean is taken: a value for each unit, and which units count."""

    values: Tensor  # [B, T], [B, T - 1] or [B, S], float64
    counted: Tensor  # of the same shape, bool


def measure(
    weights: Tensor, target_mask: Tensor, source_mask: Tensor, gold: Tensor | None = None
) -> dict[str, Measured]:
    """The scores of attention weights, unit by unit.

    α_ij is the weight of source position j at target position i, as a share of all weights at i: they need
    not sum to 1. A target position with no weight at all, as where a monotonic mechanism has come to the end,
    looks at nothing: it has no part in the first four scores, covers nothing, and is not aligned.

    `entropy`
        H_i = -Σ_j α_ij ln α_ij, in nats: 0 for one position, ln S for all alike.
    `effective_positions`
        exp H_i: how many positions, had all the same weight, would have this entropy.
    `sharpness`
        max_j α_ij.
    `monotonicity`
        Share of steps i - 1 → i in which the expected position Σ_j j α_ij does not go back: 1 for reading
        from left to right, or for not moving at all.
    `coverage`
        min(1, Σ_i α_ij): the inner term of GNMT's coverage penalty (Wu et al. 2016, section 7), its mean
        taken in place of the sum of its logarithms, so that a position never looked at is 0 and no -∞.
    `alignment_accuracy`
        Share of target positions whose largest weight is at a position that gold links them to.
    `alignment_error`
        1 - Σ_j α_ij over the linked j: the share of the weight that lies elsewhere.

    Args:
        weights: [B, T, S] of any float dtype, 0 on padding.
        target_mask: [B, T], True at the positions that count.
        source_mask: [B, S], True at the positions that are to be covered.
        gold: [B, T, S], True where a gold alignment links two tokens. Positions without a link have no part
            in the last two scores, which are left out where it is None.
    """
    weights = weights.double().masked_fill(~target_mask[..., None], 0)  # [B, T, S]
    total = weights.sum(dim=-1)  # [B, T]
    looking = total != 0  # [B, T]; True where it is NaN, for that should show
    shares = weights / total.where(looking, 1)[..., None]  # [B, T, S]
    entropy = torch.special.entr(shares).sum(dim=-1)  # [B, T]
    expected = (shares * torch.arange(shares.size(-1), device=shares.device)).sum(dim=-1)  # [B, T]
    ahead = expected.diff(dim=1) > -1e-6  # [B, T - 1]; rounding is no step back
    sources = source_mask & target_mask.any(dim=1, keepdim=True)  # [B, S]: where something is to cover them
    scores = {
        "entropy": Measured(entropy, looking),
        "effective_positions": Measured(entropy.exp(), looking),
        "sharpness": Measured(shares.amax(dim=-1), looking),
        "monotonicity": Measured(ahead.double(), looking[:, 1:] & looking[:, :-1]),
        "coverage": Measured(shares.sum(dim=1).clamp(max=1), sources),
    }
    if gold is not None:
        linked = gold.any(dim=-1) & target_mask  # [B, T]
        found = gold.gather(-1, shares.argmax(dim=-1, keepdim=True))[..., 0] & looking  # [B, T]
        scores["alignment_accuracy"] = Measured(found.double(), linked)
        scores["alignment_error"] = Measured(1 - (shares * gold).sum(dim=-1), linked)
    return scores


NAMES = (
    "entropy",
    "effective_positions",
    "sharpness",
    "monotonicity",
    "coverage",
    "alignment_accuracy",
    "alignment_error",
)
"""The scores of `measure`, in its order."""


class AttentionScores(Tally):
    """The scores of `measure`, over all batches and processes."""

    full_state_update = False
    sums: Tensor  # [scores] float64
    counts: Tensor  # [scores] int64

    def __init__(self) -> None:
        super().__init__()
        self.add_state("sums", torch.zeros(len(NAMES), dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("counts", torch.zeros(len(NAMES), dtype=torch.int64), dist_reduce_fx="sum")

    def update(
        self, weights: Tensor, target_mask: Tensor, source_mask: Tensor, gold: Tensor | None = None
    ) -> None:
        """Add the weights of a batch; arguments as of `measure`."""
        for place, (values, counted) in enumerate(measure(weights, target_mask, source_mask, gold).values()):
            self.sums[place] += values.where(counted, 0).sum()
            self.counts[place] += counted.sum()

    def compute(self) -> dict[str, Tensor]:
        """The means, but for those of nothing; none at all for a mechanism without weights."""
        if self.counts[0] == 0:
            return {}
        means = (self.sums / self.counts).unbind()
        return {name: mean for name, mean, count in zip(NAMES, means, self.counts, strict=True) if count > 0}
