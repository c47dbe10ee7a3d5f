"""Weights that need not sum to 1: with an attention sink, or of each position independently of the others."""

from collections.abc import Callable
from typing import Any, Unpack

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnlab.nn.attention.base import Attention, ScoreWrapper, Sizes
from attnlab.nn.attention.numerics import at_least_float32
from attnlab.types import Memory


class Sink(ScoreWrapper):
    """Attention with a sink (Xiao et al., 2024).

    ::

        α_j = exp(e_j) / (exp(s) + Σ_k exp(e_k))

    e are the scores of the inner mechanism and s is a trained number, initially 0. Xiao et al. 2024 (arXiv
    2309.17453), section 3.3, find that Transformers use the first token as a sink, and train with a zero sink
    (s = 0 for good) or a sink token. A trained score without a token is that of gpt-oss (OpenAI 2025, arXiv
    2508.10925). With another normaliser than softmax, the sink takes part in it in the same way.

    The weights sum to less than 1: a target position may attend to nothing.
    """

    def __init__(self, *, score: Callable[..., Attention], **sizes: Unpack[Sizes]) -> None:
        super().__init__(score=score, **sizes)
        self.sink = nn.Parameter(torch.zeros(()))

    def weigh(self, query: Tensor, memory: Memory, keys: Tensor, state: Any) -> tuple[Tensor, Any]:
        scores = at_least_float32(self.score(query, keys, state))  # [B, Q, S]
        sink = self.sink.to(scores.dtype).expand(*scores.shape[:-1], 1)  # [B, Q, 1]
        mask = F.pad(memory.mask[:, None], (1, 0), value=True)  # [B, 1, S + 1]
        return self.normaliser(torch.cat([sink, scores], dim=-1), mask)[..., 1:], state


class Sigmoid(ScoreWrapper):
    """Sigmoid attention (Ramapuram et al., 2024).

    ::

        α_j = σ(e_j - ln S)

    e are the scores of the inner mechanism, S the number of real positions. Ramapuram et al. 2024 (arXiv
    2409.04431), section 3. Positions do not compete for weight: the weights sum to at most S, and to about 1
    for scores of 0, which is the purpose of ln S. All of them may be 0.

    Args:
        normaliser: not used.
    """

    def weigh(self, query: Tensor, memory: Memory, keys: Tensor, state: Any) -> tuple[Tensor, Any]:
        mask = memory.mask[:, None]  # [B, 1, S]
        length = mask.sum(dim=-1, keepdim=True).clamp(min=1)  # [B, 1, 1]
        return torch.sigmoid(at_least_float32(self.score(query, keys, state)) - length.log()) * mask, state
