"""Metrics of attention weights: entropy, sharpness, monotonicity, coverage, agreement with gold alignments.

B, T, S as in `attnlab.types`. Every metric is a mean over its own units, of all sentences together: target
positions, pairs of consecutive target positions, or source positions.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from attnlab.metrics import registry
from attnlab.metrics.tokens import SumMetric

NAMES = tuple(name.removeprefix("attention/") for name in registry.names("attention"))
"""Names of the metrics, in the order of the registry and of `measure`."""


class UnitValues(NamedTuple):
    """Values of a metric before averaging, one per unit."""

    values: Tensor  # [B, T], [B, T - 1] or [B, S], float64
    counted: Tensor  # same shape, bool: True where the unit is part of the mean


def measure(
    weights: Tensor, target_mask: Tensor, source_mask: Tensor, gold: Tensor | None = None
) -> dict[str, UnitValues]:
    """Compute the attention metrics of a batch, unit by unit.

    α_ij is the weight of source position j at target position i, divided by the sum of all weights at i, so
    that the weights need not sum to 1. A target position whose weights are all 0, as after the head of a
    monotonic mechanism has passed the end, is left out of the first four metrics, adds 0 to the coverage, and
    counts as not aligned.

    `entropy`
        H_i = -Σ_j α_ij ln α_ij, in nats: 0 for a one-hot distribution, ln S for a uniform one.
    `effective_positions`
        exp H_i: the number of positions of a uniform distribution with the same entropy.
    `sharpness`
        max_j α_ij.
    `monotonicity`
        Share of steps i - 1 → i in which the expected position Σ_j j α_ij does not decrease: 1 for reading
        from left to right, and for not moving at all.
    `coverage`
        min(1, Σ_i α_ij): the inner term of GNMT's coverage penalty (Wu et al. 2016, section 7). Its mean
        replaces the sum of logarithms, so that an unattended position counts 0 instead of -∞.
    `alignment_accuracy`
        Share of target positions whose largest weight is at a position linked to them by gold.
    `alignment_error`
        1 - Σ_j α_ij over the linked j: the share of the weight at positions that are not linked.

    Args:
        weights: [B, T, S] of any float dtype, 0 at padding.
        target_mask: [B, T], True at target positions that count.
        source_mask: [B, S], True at source positions that should be covered.
        gold: [B, T, S], True where a gold alignment links two tokens. Target positions without a link are
            left out of the last two metrics; both are missing from the result if `gold` is None.
    """
    weights = weights.double().masked_fill(~target_mask[..., None], 0)  # [B, T, S]
    total = weights.sum(dim=-1)  # [B, T]
    attending = total != 0  # [B, T]; True at NaN, so that NaN propagates to the metrics
    shares = weights / total.where(attending, 1)[..., None]  # [B, T, S]
    entropy = torch.special.entr(shares).sum(dim=-1)  # [B, T]
    expected = (shares * torch.arange(shares.size(-1), device=shares.device)).sum(dim=-1)  # [B, T]
    ahead = expected.diff(dim=1) > -1e-6  # [B, T - 1]; tolerates rounding errors
    has_target = target_mask.any(dim=1, keepdim=True)  # [B, 1]; without targets nothing can be covered
    sources = source_mask & has_target  # [B, S]
    metrics = {
        "entropy": UnitValues(entropy, attending),
        "effective_positions": UnitValues(entropy.exp(), attending),
        "sharpness": UnitValues(shares.amax(dim=-1), attending),
        "monotonicity": UnitValues(ahead.double(), attending[:, 1:] & attending[:, :-1]),
        "coverage": UnitValues(shares.sum(dim=1).clamp(max=1), sources),
    }
    if gold is not None:
        linked = gold.any(dim=-1) & target_mask  # [B, T]
        correct = gold.gather(-1, shares.argmax(dim=-1, keepdim=True))[..., 0] & attending  # [B, T]
        metrics["alignment_accuracy"] = UnitValues(correct.double(), linked)
        metrics["alignment_error"] = UnitValues(1 - (shares * gold).sum(dim=-1), linked)
    return metrics


class AttentionMetrics(SumMetric):
    """Means of the metrics of `measure` over all batches and processes.

    Args:
        shards: number of partial sums, as of `TokenMetrics`.
    """

    sums: Tensor  # [shards, metrics] float64
    counts: Tensor  # [metrics] int64

    def __init__(self, shards: int = 1) -> None:
        super().__init__()
        self.add_sum("sums", shards, len(NAMES), dtype=torch.float64)
        self.add_sum("counts", len(NAMES), dtype=torch.int64)

    def update(
        self,
        weights: Tensor,
        target_mask: Tensor,
        source_mask: Tensor,
        gold: Tensor | None = None,
        shard: int = 0,
    ) -> None:
        """Add the weights [B, T, S] of a batch to a shard; other arguments and shapes as in `measure`."""
        for place, (values, counted) in enumerate(measure(weights, target_mask, source_mask, gold).values()):
            self.sums[shard, place] += values.where(counted, 0).sum()
            self.counts[place] += counted.sum()

    def compute(self) -> dict[str, Tensor]:
        """Return the means as scalars, for metrics with at least one unit; none without weights."""
        if self.counts[0] == 0:
            return {}
        means = (self.sums.sum(dim=0) / self.counts).unbind()
        return {name: mean for name, mean, count in zip(NAMES, means, self.counts, strict=True) if count > 0}
