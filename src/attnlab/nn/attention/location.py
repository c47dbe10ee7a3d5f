"""Attention by place: from the query alone, or from where the step before looked."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnlab.nn.attention.additive import Additive, additive_energy
from attnlab.nn.attention.base import Attention
from attnlab.nn.attention.normalisers import SOFTMAX, Normaliser
from attnlab.types import Memory


class Location(Attention):
    """e = W s, a score a position: Luong, Pham & Manning 2015 (arXiv 1508.04025), section 3.1, equation 8.

    What the memory holds is not looked at. W knows `max_length` positions: it is cut to shorter sentences,
    and positions of longer ones beyond it get weight 0.

    Costs 2·H·max_length operations and max_length numbers; no keys.

    Args:
        query_size: H.
        memory_size: D.
        max_length: positions that can be scored.
        normaliser: from scores to weights.
    """

    def __init__(
        self, *, query_size: int, memory_size: int, max_length: int, normaliser: Normaliser = SOFTMAX
    ) -> None:
        super().__init__(query_size=query_size, memory_size=memory_size, normaliser=normaliser)
        self.max_length = max_length
        self.positions = nn.Linear(query_size, max_length, bias=False)

    def score(self, query: Tensor, keys: Tensor, state: None) -> Tensor:
        """[B, Q, S]; 0 from position `max_length` on, where `weigh` masks it."""
        return F.pad(self.positions(query), (0, keys.size(1) - self.max_length))  # a negative pad cuts

    def weigh(self, query: Tensor, memory: Memory, keys: Tensor, state: None) -> Tensor:
        """[B, Q, S]."""
        known = torch.arange(keys.size(1), device=keys.device) < self.max_length  # [S]
        return self.normaliser(self.score(query, keys, state), (memory.mask & known)[:, None])


class AdditiveWithPast(Additive):
    """e_j = vᵀ tanh(W s + U h_j + R f_j): additive attention that knows where it has looked before.

    f_j, the `features` of position j, come from a state [B, Q, S] that begins as zeros. A variant owns its
    features, and `advance`, which says what the state is.

    Args:
        query_size: H.
        memory_size: D.
        size: A.
        features: how many of them each position has.
        bias: add an offset to R f_j.
        normaliser: from scores to weights.
    """

    stateful = True

    def __init__(
        self,
        *,
        query_size: int,
        memory_size: int,
        size: int,
        features: int,
        bias: bool,
        normaliser: Normaliser,
    ) -> None:
        super().__init__(query_size=query_size, memory_size=memory_size, size=size, normaliser=normaliser)
        self.past = nn.Linear(features, size, bias=bias)

    def begin(self, memory: Memory) -> Tensor:
        """Zeros [B, 1, S]."""
        return torch.zeros_like(memory.states[..., 0])[:, None]  # [B, 1, S]

    def features(self, state: Tensor) -> Tensor:
        """f_j: [B, Q, S, features], in the type of the parameters."""
        raise NotImplementedError

    def score(self, query: Tensor, keys: Tensor, state: Tensor) -> Tensor:
        """[B, Q, S]."""
        informed = keys[:, None] + self.past(self.features(state))  # [B, Q, S, A]
        return additive_energy(self.query(query), informed, self.energy)


class LocationSensitive(AdditiveWithPast):
    """e_ij = vᵀ tanh(W s + V h_j + U f_ij + b), f_i = F * α_{i-1}: Chorowski et al. 2015 (arXiv 1506.07503).

    Section 2.2, equations 8 and 9: a convolution F of the weights of the step before says what lies where it
    looked, so that of two memory states alike the nearer one can be preferred. State: those weights. They
    are 0 on padding, and beyond both ends the convolution reads zeros, so padding is silent here, too.

    Costs 2·H·A + S·(2·C·K + 2·C·A + 6·A) operations, C channels of K taps, and S·(A + C) numbers; the keys
    V h_j cost 2·S·D·A and S·A once a sentence.

    Args:
        query_size: H.
        memory_size: D.
        size: A.
        channels: C, the convolution's filters.
        kernel: K, how many positions a filter spans; odd, so that it has a centre.
        normaliser: from scores to weights.

    Raises:
        ValueError: if K is even.
    """

    def __init__(
        self,
        *,
        query_size: int,
        memory_size: int,
        size: int,
        channels: int,
        kernel: int,
        normaliser: Normaliser = SOFTMAX,
    ) -> None:
        super().__init__(
            query_size=query_size,
            memory_size=memory_size,
            size=size,
            features=channels,
            bias=True,
            normaliser=normaliser,
        )
        if kernel % 2 == 0:
            raise ValueError(f"attention.kernel must be odd, not {kernel}: a filter is centred on a position")
        self.convolution = nn.Conv1d(1, channels, kernel, padding=kernel // 2, bias=False)

    def features(self, state: Tensor) -> Tensor:
        """F * α_{i-1}: [B, Q, S, C]."""
        rows = state.flatten(0, 1)[:, None].to(self.convolution.weight.dtype)  # [B·Q, 1, S]
        filtered = self.convolution(rows).transpose(1, 2)  # [B·Q, S, C]
        return filtered.unflatten(0, state.shape[:2])  # type: ignore[no-any-return]

    def advance(self, state: Tensor, weights: Tensor) -> Tensor:
        """α_i: [B, Q, S]."""
        return weights
