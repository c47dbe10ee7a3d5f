"""Monotonic attention: a head that reads the memory from left to right and never turns back.

Both variants are soft while they train and hard while they decode. In training mode the weights are those of
the head *in expectation*, so that gradients flow; in evaluation mode the head really stops somewhere. That
goes for every pass in evaluation mode, the teacher-forced one that gives the validation loss included: it
scores the network that will decode, and not the one that was just trained.

The head starts where it stopped the time before, and may stop there again. Where it runs past the end, it
stays there: the weights of this step and of all later ones are 0, and the context is the zero vector. So
weights sum to 1 or, as the share of heads that have run out grows, to less.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnlab.nn.attention.additive import Additive
from attnlab.nn.attention.base import weighted_sum
from attnlab.nn.attention.normalisers import SOFTMAX, Normaliser, widened
from attnlab.types import Memory


class Monotonic(Additive):
    """A head that stops at h_j with probability p_j.

    Raffel et al. 2017 (arXiv 1704.00784), sections 2.2 to 2.5. ::

        e_j  = g vᵀ/‖v‖ tanh(W s + U h_j + b) + r
        p_j  = σ(e_j + noise)                              noise ~ N(0, σ²), in training alone
        α_ij = p_j Σ_{k≤j} α_{i-1,k} Π_{k≤l<j} (1 - p_l)   in training
        α_ij = 1 at the first j with p_j > ½, counted from where α_{i-1} is 1, and 0 elsewhere   in evaluation

    The noise drives the energies away from 0, which makes the soft weights of training near those that the
    hard head will have. g starts at 1/√A and r at a negative number, so that the head begins by reaching far;
    the longer the memory, the lower r should start. b stands in two parts, one beside W and one beside U.

    Costs 2·H·A + 4·S·A operations and S·A numbers, as for additive attention, and in training 3·S·log₂ S and
    4·S·log₂ S more; the keys U h_j cost 2·S·D·A and S·A once a sentence. In evaluation all S positions are
    scored, too, although the head needs only those from where it stands to where it stops.

    State: the weights before [B, Q, S], at first all on the first position.

    Args:
        query_size: H.
        memory_size: D.
        size: A.
        offset: r at the start.
        noise: σ.
        normaliser: not asked, since stopping is decided position by position.
    """

    stateful = True

    def __init__(
        self,
        *,
        query_size: int,
        memory_size: int,
        size: int,
        offset: float = -4.0,
        noise: float = 1.0,
        normaliser: Normaliser = SOFTMAX,
    ) -> None:
        super().__init__(
            query_size=query_size, memory_size=memory_size, size=size, bias=True, normaliser=normaliser
        )
        self.gain = nn.Parameter(torch.tensor(1 / math.sqrt(size)))
        self.offset = nn.Parameter(torch.tensor(float(offset)))
        self.noise = noise

    def begin(self, memory: Memory) -> Tensor:
        """The head on the first position: [B, 1, S]."""
        head = widened(torch.zeros_like(memory.states[:, None, :, 0]))  # [B, 1, S]
        head[..., 0] = 1
        return head

    def score(self, query: Tensor, keys: Tensor, state: Any) -> Tensor:
        """Energies [B, Q, S]; the head stops where they are above 0."""
        scale = self.gain / torch.linalg.vector_norm(self.energy.weight)
        return super().score(query, keys, state) * scale + self.offset  # type: ignore[no-any-return]

    def weigh(self, query: Tensor, memory: Memory, keys: Tensor, state: Any) -> Tensor:
        """Where the head stops [B, Q, S]: in expectation while training, for certain otherwise."""
        scores = widened(self.score(query, keys, state))  # [B, Q, S]
        energies = scores.masked_fill(~memory.mask[:, None], -torch.inf)  # [B, Q, S]
        if not self.training:
            return hard_alignment(energies, state)
        return expected_alignment(energies + self.noise * torch.randn_like(energies), state)

    def advance(self, state: Any, weights: Tensor) -> Tensor:
        """The head stands where it stopped."""
        return weights


class MoChA(Monotonic):
    """Softmax over the w positions that end where a monotonic head stops.

    Monotonic chunkwise attention: Chiu & Raffel 2018 (arXiv 1712.05382), section 2. ::

        α   as in `Monotonic`, from energies of its own
        u_j = v'ᵀ tanh(W' s + U' h_j + b')
        β_j = Σ_{j≤k<j+w} α_k exp(u_j) / Σ_{k-w<l≤k} exp(u_l)        the weights

    The windows are laid out and normalised one by one. The paper's moving sums of exp(u) are the same numbers
    in S instead of S·w of memory, but lose every window whose scores lie far below the sentence's largest;
    and they know no normaliser but softmax.

    Costs what `Monotonic` does, 2·H·A + 4·S·A + 5·S·w operations and S·A + 3·S·w numbers; the keys cost
    twice as much as there.

    State: α [B, Q, S], at first all on the first position.

    Args:
        query_size: H.
        memory_size: D.
        size: A, of both scores.
        chunk: w; 1 is `Monotonic`.
        offset: r of the head at the start.
        noise: σ of the head.
        normaliser: from the scores u of a window to weights inside it.

    Raises:
        ValueError: if w < 1.
    """

    def __init__(
        self,
        *,
        query_size: int,
        memory_size: int,
        size: int,
        chunk: int = 2,
        offset: float = -4.0,
        noise: float = 1.0,
        normaliser: Normaliser = SOFTMAX,
    ) -> None:
        super().__init__(
            query_size=query_size,
            memory_size=memory_size,
            size=size,
            offset=offset,
            noise=noise,
            normaliser=normaliser,
        )
        if chunk < 1:
            raise ValueError(f"attention.chunk must be 1 or more, not {chunk}")
        self.inner = Additive(query_size=query_size, memory_size=memory_size, size=size, bias=True)
        self.chunk = chunk

    def project(self, memory: Memory) -> Tensor:
        """Of the head and of the chunk, U h_j and U' h_j: [B, S, 2A]."""
        return torch.cat([super().project(memory), self.inner.project(memory)], dim=-1)

    def score(self, query: Tensor, keys: Tensor, state: Any) -> Tensor:
        """The head's energies [B, Q, S]."""
        return super().score(query, keys.chunk(2, dim=-1)[0], state)

    def attend(self, query: Tensor, memory: Memory, keys: Tensor, state: Any) -> tuple[Tensor, Tensor, Any]:
        """As in `Attention`; the new state is where the head stopped."""
        heads = self.weigh(query, memory, keys, state)  # [B, Q, S]
        scores = self.inner.score(query, keys.chunk(2, dim=-1)[1], None)  # [B, Q, S]
        weights = self._spread(heads, scores, memory.mask[:, None])  # [B, Q, S]
        return weighted_sum(weights, memory), weights, heads

    def _spread(self, heads: Tensor, scores: Tensor, mask: Tensor) -> Tensor:
        """Share out each position's head [B, Q, S] over the window that ends there."""
        before = min(self.chunk, scores.size(-1)) - 1
        windows, real = (F.pad(part, (before, 0)).unfold(-1, before + 1, 1) for part in (scores, mask))
        shares = heads[..., None] * self.normaliser(windows, real)  # [B, Q, S, w]
        # the window's last column lies at its head, the one before a position to the left, and so on
        return sum(shift(share, i - before) for i, share in enumerate(shares.unbind(-1)))  # type: ignore[return-value]


def expected_alignment(energies: Tensor, previous: Tensor) -> Tensor:
    """Where the head is expected to stop: α_i of the energies e_i and of α_{i-1}, all [..., S].

    q_j, the chance that the head comes to position j, follows q_j = (1 - p_{j-1}) q_{j-1} + α_{i-1,j}, and
    α_ij = p_j q_j (equations 13 and 14). The recurrence is solved for all j in log₂ S rounds, each of which
    lets a position see twice as far to the left. The quotient of cumulative products in the paper's appendix
    C needs fewer operations, but divides by what vanishes where p is near 1; here nothing is divided.
    """
    arriving, passing = previous, shift(torch.sigmoid(-energies), 1)  # [..., S]
    reach = 1
    while reach < energies.size(-1):
        arriving = arriving + passing * shift(arriving, reach)
        passing = passing * shift(passing, reach)
        reach *= 2
    return torch.sigmoid(energies) * arriving


def hard_alignment(energies: Tensor, previous: Tensor) -> Tensor:
    """Where the head stops: one-hot at the first energy above 0 from the one-hot `previous` on, or all 0."""
    stops = (energies > 0) & ((previous > 0).cumsum(dim=-1) > 0)  # [..., S]; whole numbers add up exactly
    return (stops & (stops.cumsum(dim=-1) == 1)).to(energies.dtype)


def shift(values: Tensor, places: int) -> Tensor:
    """[..., S] moved to the right, or to the left if `places` < 0; zeros come in."""
    return F.pad(values, (places, -places))
