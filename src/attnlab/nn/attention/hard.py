"""Hard attention: all weight on a single position."""

from collections.abc import Callable
from typing import Any, Unpack

import torch
from torch import Tensor

from attnlab.nn.attention.base import Attention, ScoreWrapper, Sizes
from attnlab.nn.attention.numerics import at_least_float32
from attnlab.settings import Positive
from attnlab.types import Memory


class Hard(ScoreWrapper):
    """Hard attention, trained with straight-through Gumbel-softmax (Xu et al., 2015; Jang et al., 2017).

    ::

        j ~ softmax(e), α = onehot(j)              in training: j = argmax (e_j + g_j), g_j ~ Gumbel(0, 1)
        ∂α/∂e := ∂/∂e normaliser((e + g) / τ)      gradient in place of that of the argmax
        α = onehot(argmax e)                       in evaluation

    e are the scores of the inner mechanism. Hard attention is Xu et al. 2015 (arXiv 1502.03044), section 4.1,
    trained there by REINFORCE. The gradient estimator here is Jang, Gu & Poole 2017 (arXiv 1611.01144),
    section 2.2: biased, with far lower variance. Evaluation mode samples nothing.

    Args:
        temperature: τ of the backward pass; a lower one gives gradients with less bias and more variance.
        normaliser: computes the soft weights of the backward pass.
    """

    def __init__(
        self, *, score: Callable[..., Attention], temperature: Positive = 1.0, **sizes: Unpack[Sizes]
    ) -> None:
        super().__init__(score=score, **sizes)
        self.temperature = temperature

    def weigh(self, query: Tensor, memory: Memory, keys: Tensor, state: Any) -> tuple[Tensor, Any]:
        scores, mask = at_least_float32(self.score(query, keys, state)), memory.mask[:, None]
        if not self.training:
            return one_hot_argmax(scores, mask), state
        scores = scores - torch.empty_like(scores).exponential_().log()  # -log of Exponential(1) is Gumbel
        soft = self.normaliser(scores / self.temperature, mask)  # [B, Q, S]
        return one_hot_argmax(scores, mask) + (soft - soft.detach()), state


def one_hot_argmax(scores: Tensor, mask: Tensor) -> Tensor:
    """Return 1 at the largest real score of each row [..., S] and 0 elsewhere; zeros without a real one."""
    best = scores.masked_fill(~mask, -torch.inf).argmax(dim=-1)  # [...]
    positions = torch.arange(scores.size(-1), device=scores.device)  # [S]
    return (positions == best[..., None]).to(scores.dtype) * mask
