"""Erasure of the source tokens with the largest weights: comprehensiveness and sufficiency.

N units · S as in `attnlab.types` · F fractions
"""

import numpy as np
import torch
from torch import Tensor

from attnlab.explain.attributions import erased
from attnlab.explain.units import Units
from attnlab.nn.seq2seq import Seq2Seq

FRACTIONS = (0.1, 0.2, 0.5)
"""Fractions of the source tokens that are erased, or kept alone."""


def erase(network: Seq2Seq, units: Units, scores: Tensor, *, seed: int) -> tuple[Tensor, Tensor]:
    """Return comprehensiveness and sufficiency [N] (DeYoung et al., 2020).

    ::

        comprehensiveness = mean over F of p(x) - p(x without the ⌈F S⌉ tokens with the largest scores)
        sufficiency       = mean over F of p(x) - p(the ⌈F S⌉ tokens with the largest scores alone)

    DeYoung et al. 2020 (arXiv 1911.03429), section 4. High comprehensiveness and low sufficiency speak for
    the scores. A token is erased as in `attnlab.explain.attributions.erased`.

    Args:
        network: in evaluation mode.
        units: N predictions.
        scores: [N, S]. Ties are broken at random.
        seed: seed of the ties; the draw depends on the sentence and the position only.
    """
    top = largest(scores, units.mask, random_scores(units, seed=seed))  # [N, F, S]
    p = units.log_p.exp()[:, None]  # [N, 1]
    without = p - erased(network, units, ~top)  # [N, F]
    alone = p - erased(network, units, top)  # [N, F]
    return without.mean(dim=-1), alone.mean(dim=-1)


def largest(scores: Tensor, mask: Tensor, ties: Tensor) -> Tensor:
    """Return [N, F, S] bool, True at the ⌈F S⌉ largest scores of each row.

    Args:
        scores: [N, S].
        mask: [N, S], True at real tokens.
        ties: [N, S]: of equal scores, those with larger numbers here come first.
    """
    first = ties.argsort(dim=-1, descending=True)  # [N, S]
    order = (
        scores.masked_fill(~mask, -torch.inf).gather(-1, first).argsort(dim=-1, descending=True, stable=True)
    )
    places = first.gather(-1, order)  # [N, S]: positions, largest score first
    ranks = places.argsort(dim=-1)  # [N, S]: the inverse permutation
    fractions = torch.tensor(FRACTIONS, dtype=torch.float64, device=mask.device)  # [F]
    counts = (fractions * mask.sum(dim=-1, keepdim=True)).sub(1e-9).ceil()  # [N, F]
    return (ranks[:, None] < counts[..., None]) & mask[:, None]


def random_scores(units: Units, *, seed: int) -> Tensor:
    """Return random scores [N, S] that depend only on the seed, the sentence and the target position."""
    size = units.mask.size(1)
    scores = np.zeros((len(units.tokens), size))
    for row, key in enumerate(zip(units.batch.indices.tolist(), units.positions.tolist(), strict=True)):
        length = int(units.batch.source_lengths[row])
        scores[row, :length] = np.random.default_rng((seed, *key)).random(length)
    return torch.from_numpy(scores).to(units.mask.device)
