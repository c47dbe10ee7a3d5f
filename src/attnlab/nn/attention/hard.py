"""Hard attention: looking at one position at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from attnlab.nn.attention.base import Attention, OverScores
from attnlab.nn.attention.normalisers import SOFTMAX, Normaliser, widened
from attnlab.types import Memory


class Hard(OverScores):
    """One position, drawn in training and the best in evaluation, by the scores of another mechanism.

    ::

        j ~ softmax(e), α = onehot(j)              in training: j = argmax (e_j + g_j), g_j ~ Gumbel(0, 1)
        ∂α/∂e := ∂/∂e normaliser((e + g) / τ)      what gradients see instead of the step
        α = onehot(argmax e)                       in evaluation

    Hard attention is Xu et al. 2015 (arXiv 1502.03044), section 4.1, who train it by REINFORCE; the gradient
    here is that of straight-through Gumbel-softmax, Jang, Gu & Poole 2017 (arXiv 1611.01144), section 2.2:
    biased, and of far less variance. A pass in evaluation mode draws nothing, not even the teacher-forced
    one of validation, so that its loss is that of the network which will decode.

    Costs what the inner mechanism's scores do, and S operations and numbers; in training some 10·S
    operations and 3·S numbers. The context costs what it would if the weights were soft.

    Args:
        query_size: H.
        memory_size: D.
        score: makes the inner mechanism, whose scores are used.
        temperature: τ; the lower, the less biased and the more variable the gradients.
        normaliser: of the soft weights that gradients see.

    Raises:
        ValueError: if the inner mechanism is not one of scores alone, or if τ is not above 0.
    """

    def __init__(
        self,
        *,
        query_size: int,
        memory_size: int,
        score: Callable[..., Attention],
        temperature: float = 1.0,
        normaliser: Normaliser = SOFTMAX,
    ) -> None:
        super().__init__(query_size=query_size, memory_size=memory_size, score=score, normaliser=normaliser)
        if temperature <= 0:
            raise ValueError(f"attention.temperature must be above 0, not {temperature}")
        self.temperature = temperature

    def weigh(self, query: Tensor, memory: Memory, keys: Tensor, state: Any) -> Tensor:
        """One-hot weights [B, Q, S]."""
        scores, mask = widened(self.score(query, keys, state)), memory.mask[:, None]
        if not self.training:
            return largest(scores, mask)
        scores = scores - torch.empty_like(scores).exponential_().log()  # a Gumbel variable is -log of such
        soft = self.normaliser(scores / self.temperature, mask)  # [B, Q, S]
        return largest(scores, mask) + (soft - soft.detach())  # [B, Q, S]


def largest(scores: Tensor, mask: Tensor) -> Tensor:
    """One-hot at the largest of the scores [..., S] where the mask is True; zeros where it nowhere is."""
    best = scores.masked_fill(~mask, -torch.inf).argmax(dim=-1)  # [...]
    return F.one_hot(best, scores.size(-1)).to(scores.dtype) * mask
