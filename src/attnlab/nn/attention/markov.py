"""First-order alignment: a Markov chain over the source positions."""

from collections.abc import Callable
from typing import Unpack

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnlab.nn.attention.base import Attention, ScoreWrapper, Sizes
from attnlab.nn.attention.numerics import SMALLEST_WEIGHT, at_least_float32
from attnlab.settings import Size
from attnlab.types import Memory

IMPOSSIBLE = -1e30
"""Log-probability of what cannot happen. It is finite, so that sums and gradients are never NaN."""


class Markov(ScoreWrapper):
    """First-order alignment of exact hard attention (Wu & Cotterell, 2019).

    ::

        p(a_i = j | a_{i-1} = k) = softmax_j (e_ij + u_{j-k}ᵀ [s_i; h_k] + b_{j-k}),   k - m ≤ j ≤ k + w
        α_ij = Σ_k f_{i-1,k} p(a_i = j | a_{i-1} = k)
        f_ij ∝ α_ij p(y_i | s_i, h_j)         with readout=marginal, and f = α otherwise

    Wu & Cotterell 2019 (arXiv 1905.06319), section 4; f is the forward distribution p(a_i | y_1 … y_i, x) of
    a hidden Markov model, computed in log space. m is 0 for a monotonic alignment and w otherwise. The paper
    has either the scores e of the positions or those of the jumps; here they are added. The alignment starts
    at the first position, a_0 = 1. In a head of `attention=multihead` f is always α: the outputs tell about
    the mean of the heads only.

    State: log f, [B, Q, S].

    Args:
        window: w, the largest jump.
        monotonic: the alignment never moves back.
        normaliser: computes the probabilities of the jumps from a position.
    """

    stateful = True

    def __init__(
        self,
        *,
        score: Callable[..., Attention],
        window: Size = 10,
        monotonic: bool = True,
        **sizes: Unpack[Sizes],
    ) -> None:
        super().__init__(score=score, **sizes)
        self.back = 0 if monotonic else window  # m
        self.jumps = self.back + window + 1  # W
        self.query = nn.Linear(self.query_size, self.jumps)
        self.key = nn.Linear(self.memory_size, self.jumps, bias=False)

    def project(self, memory: Memory) -> Tensor:
        """Return the keys of the inner mechanism and the jump scores of the positions, [B, S, A + W]."""
        return torch.cat([super().project(memory), self.key(memory.states)], dim=-1)

    def score(self, query: Tensor, keys: Tensor, state: Tensor) -> Tensor:
        return super().score(query, keys[..., : -self.jumps], state)

    def begin(self, memory: Memory) -> Tensor:
        first = torch.full_like(at_least_float32(memory.states[..., 0]), IMPOSSIBLE)  # [B, S]
        first[:, 0] = 0.0
        return first[:, None]  # [B, 1, S]

    def weigh(self, query: Tensor, memory: Memory, keys: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        paths = state[..., None] + self.transitions(query, memory, keys)  # [B, Q, S, W]
        log_weights = self._arriving(paths).logsumexp(dim=-2)  # [B, Q, S]
        return log_weights.exp() * memory.mask[:, None], log_weights

    def observe(self, state: Tensor, log_likelihood: Tensor) -> Tensor:
        return (state + log_likelihood).log_softmax(dim=-1)

    def posterior(
        self, queries: Tensor, memory: Memory, keys: Tensor, weights: Tensor, log_likelihood: Tensor
    ) -> Tensor:
        """Return p(a_i | y, x) [B, T, S] by the backward algorithm."""
        after = torch.zeros_like(log_likelihood[:, :1])  # [B, 1, S]: log p(y_{i+1} … y_T | a_i)
        all_after = [after]
        steps = zip(torch.split(queries, 1, dim=1), torch.split(log_likelihood, 1, dim=1), strict=True)
        for query, likelihood in list(steps)[:0:-1]:
            next_steps = self.transitions(query, memory, keys) + self._reached(after + likelihood)
            after = next_steps.logsumexp(dim=-1)  # [B, 1, S]
            all_after.append(after)
        likelihood = log_likelihood + torch.cat(all_after[::-1], dim=1)
        return super().posterior(queries, memory, keys, weights, likelihood)

    def transitions(self, query: Tensor, memory: Memory, keys: Tensor) -> Tensor:
        """Return log p(a_i = k - m + r | a_{i-1} = k) of queries [B, Q, H], [B, Q, S, W] over k and r."""
        jumps = self.query(query)[:, :, None] + keys[:, None, :, -self.jumps :]  # [B, Q, S, W]
        scores = jumps + self._reached(self.score(query, keys, query))  # [B, Q, S, W]
        reachable = self._reached(memory.mask[:, None])  # [B, 1, S, W]
        p = self.normaliser(scores, reachable)  # [B, Q, S, W]
        return p.clamp(min=SMALLEST_WEIGHT).log().masked_fill(p == 0, IMPOSSIBLE)

    def _reached(self, values: Tensor) -> Tensor:
        """Return the value at the end of each jump, [..., S, W]: that of position k - m + r at [k, r]."""
        padded = F.pad(values, (self.back, self.jumps - 1 - self.back))  # [..., S + W - 1]
        return padded.unfold(-1, self.jumps, 1)

    def _arriving(self, paths: Tensor) -> Tensor:
        """Return the jumps [..., W, S] that end at each position, of jumps [..., S, W] from each position."""
        S, W = paths.shape[-2:]
        rows = F.pad(paths.transpose(-1, -2), (0, W), value=IMPOSSIBLE).flatten(-2)  # [..., W (S + W)]
        # Rows that are one element shorter move row r by r positions to the right
        moved = rows[..., : W * (S + W - 1)].reshape(*rows.shape[:-1], W, S + W - 1)
        return moved[..., self.back : self.back + S]
