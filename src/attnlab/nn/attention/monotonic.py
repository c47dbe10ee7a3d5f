"""Monotonic attention: a head, or paths, that move over the memory from left to right.

In training mode the weights of a head are its expected position, which is differentiable; in evaluation mode
the head stops at one position, also in the teacher-forced pass of the validation loss.

The head starts at the position where it stopped at the previous step, and may stop there again. When it runs
past the end it stays there, and all weights are 0. In training the weights sum to 1 minus the probability of
that.
"""

import math
from typing import Any, Unpack

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnlab.nn.attention.additive import Additive
from attnlab.nn.attention.base import ScoreWrapper, Sizes
from attnlab.nn.attention.normalisers import Normaliser
from attnlab.nn.attention.numerics import SMALLEST_WEIGHT, at_least_float32
from attnlab.nn.scan import scan
from attnlab.settings import Finite, NotNegative, Size
from attnlab.types import Memory


class Monotonic(Additive):
    """Monotonic attention (Raffel et al., 2017).

    ::

        e_j  = g vᵀ/‖v‖ tanh(W s + U h_j + b) + r
        p_j  = σ(e_j + noise)                 probability of stopping; noise ~ N(0, σ²), only in training
        α_ij = p_j Σ_{k≤j} α_{i-1,k} Π_{k≤l<j} (1 - p_l)                                    in training
        α_ij = 1 at the first j ≥ k with p_j > ½, where α_{i-1,k} = 1; 0 elsewhere          in evaluation

    Raffel et al. 2017 (arXiv 1704.00784), sections 2.2 to 2.5. The noise drives energies away from 0, which
    brings the soft weights of training close to the hard ones of evaluation. g is initialised to 1/√A and r
    to a negative number, so that the head initially moves far; longer sources need a lower r. b is split into
    a bias of W and one of U.

    State: the previous weights, [B, Q, S]; initially all weight on the first position.

    Args:
        offset: initial r, the bias of the energies; choose it lower for longer sources.
        noise: σ, the standard deviation of the noise added to the energies in training.
        normaliser: not used, since each position is decided independently.
    """

    stateful = True

    def __init__(
        self, *, size: Size, offset: Finite = -4.0, noise: NotNegative = 1.0, **sizes: Unpack[Sizes]
    ) -> None:
        super().__init__(size=size, bias=True, **sizes)
        self.gain = nn.Parameter(torch.tensor(1 / math.sqrt(size)))
        self.offset = nn.Parameter(torch.tensor(float(offset)))
        self.noise = noise

    def begin(self, memory: Memory) -> Tensor:
        head = at_least_float32(torch.zeros_like(memory.states[:, None, :, 0]))  # [B, 1, S]
        head[..., 0] = 1
        return head

    def score(self, query: Tensor, keys: Tensor, state: Any) -> Tensor:
        """Return the energies e_j, [B, Q, S]; the head stops where they are above 0."""
        scale = self.gain / torch.linalg.vector_norm(self.energy.weight)
        return super().score(query, keys, state) * scale + self.offset  # type: ignore[no-any-return]

    def weigh(self, query: Tensor, memory: Memory, keys: Tensor, state: Any) -> tuple[Tensor, Any]:
        scores = at_least_float32(self.score(query, keys, state))  # [B, Q, S]
        energies = scores.masked_fill(~memory.mask[:, None], -torch.inf)  # [B, Q, S]
        if self.training:
            head = expected_alignment(energies + self.noise * torch.randn_like(energies), state)
        else:
            head = hard_alignment(energies, state)
        return head, head  # [B, Q, S]


class MoChA(Monotonic):
    """Monotonic chunkwise attention (Chiu & Raffel, 2018).

    ::

        α    as in `Monotonic`, with its own parameters
        u_j = v'ᵀ tanh(W' s + U' h_j + b')
        β_j = Σ_{j≤k<j+w} α_k exp(u_j) / Σ_{k-w<l≤k} exp(u_l)        the weights

    Chiu & Raffel 2018 (arXiv 1712.05382), section 2: softmax over the w positions that end where a monotonic
    head stops. Windows are normalised one by one: the paper's moving sums of exp(u) need less memory, but
    underflow in windows of low scores, and support softmax only. State: α.

    Args:
        size: A, the width of the hidden layers of both scores.
        chunk: w, the number of positions per chunk; 1 is `Monotonic`.
        normaliser: maps the scores u of a window to weights.
    """

    def __init__(
        self,
        *,
        size: Size,
        chunk: Size = 2,
        offset: Finite = -4.0,
        noise: NotNegative = 1.0,
        **sizes: Unpack[Sizes],
    ) -> None:
        super().__init__(size=size, offset=offset, noise=noise, **sizes)
        self.inner = Additive(query_size=self.query_size, memory_size=self.memory_size, size=size, bias=True)
        self.chunk = chunk

    def project(self, memory: Memory) -> Tensor:
        """Return the keys of the head and of the chunks, U h_j and U' h_j: [B, S, 2A]."""
        return torch.cat([super().project(memory), self.inner.project(memory)], dim=-1)

    def score(self, query: Tensor, keys: Tensor, state: Any) -> Tensor:
        return super().score(query, keys.chunk(2, dim=-1)[0], state)

    def weigh(self, query: Tensor, memory: Memory, keys: Tensor, state: Any) -> tuple[Tensor, Any]:
        heads, _ = super().weigh(query, memory, keys, state)  # [B, Q, S]
        scores = self.inner.score(query, keys.chunk(2, dim=-1)[1], None)  # [B, Q, S]
        return self.distribute(heads, scores, memory.mask[:, None]), heads

    def distribute(self, heads: Tensor, scores: Tensor, mask: Tensor) -> Tensor:
        """Distribute the weight of each head position over its chunk; see `chunkwise_weights` for shapes."""
        return chunkwise_weights(heads, scores, mask, self.chunk, self.normaliser)


class MILk(MoChA):
    """Monotonic infinite lookback attention: MILk (Arivazhagan et al., 2019).

    ::

        α    as in `Monotonic`, with its own parameters
        u_j = v'ᵀ tanh(W' s + U' h_j + b')
        β_j = Σ_{k≥j} α_k exp(u_j) / Σ_{l≤k} exp(u_l)        the weights

    Arivazhagan et al. 2019 (arXiv 1906.05218): softmax over all positions up to the one where a monotonic
    head stops, which is `MoChA` with a chunk that starts at the first position. The latency loss of the paper
    is not implemented. State: α.

    Args:
        normaliser: maps the scores u up to the head to weights.
    """

    def __init__(
        self, *, size: Size, offset: Finite = -4.0, noise: NotNegative = 1.0, **sizes: Unpack[Sizes]
    ) -> None:
        super().__init__(size=size, chunk=1, offset=offset, noise=noise, **sizes)

    def distribute(self, heads: Tensor, scores: Tensor, mask: Tensor) -> Tensor:
        S = scores.size(-1)
        before = mask[..., None, :] & mask.new_ones(S, S).tril()  # [B, 1, S, S]
        shares = self.normaliser(scores[..., None, :].expand(-1, -1, S, -1), before)  # [B, Q, S, S]
        return (heads[..., None, :] @ shares)[..., 0, :]


class Forward(ScoreWrapper):
    """Forward attention (Zhang et al., 2018).

    ::

        α_ij ∝ (α_{i-1,j} + α_{i-1,j-1}) y_ij        y = softmax(e), α_0 = (1, 0, …)

    Zhang, Ling & Dai 2018 (arXiv 1807.06736), algorithm 1; e are the scores of the inner mechanism. Only
    alignment paths count that start at the first position and stay or advance by one position per step.
    Unlike `Monotonic`, training and decoding use the same weights, and the weights always sum to 1. Padding
    must come last: paths do not cross a gap in the mask. State: α_{i-1}, [B, Q, S].

    Args:
        normaliser: computes y from the scores of the reachable positions. With a sparse one, gradients can
            occasionally be very large.
    """

    stateful = True

    def begin(self, memory: Memory) -> Tensor:
        start = at_least_float32(memory.states.new_zeros(memory.mask.shape))[:, None]  # [B, 1, S]
        start[..., 0] = 1
        return start

    def weigh(self, query: Tensor, memory: Memory, keys: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        arriving = state + F.pad(state, (1, -1))  # [B, Q, S]
        reachable = memory.mask[:, None] & (arriving > SMALLEST_WEIGHT)
        paths = arriving * self.normaliser(self.score(query, keys, state), reachable)  # [B, Q, S]
        # y sums to 1 over the reachable positions, so the total is 0 only in a fully masked row.
        total = paths.sum(dim=-1, keepdim=True).clamp(min=torch.finfo(paths.dtype).tiny)
        return paths / total, paths / total


def expected_alignment(energies: Tensor, previous: Tensor) -> Tensor:
    """Return the expected position of the head, α_i, for energies e_i and α_{i-1}, all [..., S].

    q_j, the probability that the head reaches position j, satisfies q_j = (1 - p_{j-1}) q_{j-1} + α_{i-1,j},
    and α_ij = p_j q_j (equations 13 and 14). The quotient of cumulative products in appendix C of the paper
    divides by numbers that vanish where p is near 1.
    """
    passing = F.pad(torch.sigmoid(-energies), (1, -1))  # [..., S]: of the position before
    arriving = scan(passing[..., None], previous[..., None])[..., 0]  # [..., S]
    return torch.sigmoid(energies) * arriving


def hard_alignment(energies: Tensor, previous: Tensor) -> Tensor:
    """Return one-hot [..., S] at the first energy above 0 from the one-hot `previous` on, or zeros."""
    stops = (energies > 0) & ((previous > 0).cumsum(dim=-1) > 0)  # [..., S]; sums of integers are exact
    return (stops & (stops.cumsum(dim=-1) == 1)).to(energies.dtype)


def chunkwise_weights(
    heads: Tensor, scores: Tensor, mask: Tensor, chunk: int, normaliser: Normaliser
) -> Tensor:
    """Distribute the weights of windows over their positions; return weights [B, Q, S].

    Args:
        heads: [B, Q, S], the weight of the window that ends at each position.
        scores: [B, Q, S], normalised within each window.
        mask: [B, 1, S], True at real tokens.
        chunk: positions per window.
    """
    before = chunk - 1
    windows, real = (F.pad(part, (before, 0)).unfold(-1, chunk, 1) for part in (scores, mask))
    shares = heads[..., None] * normaliser(windows, real)  # [B, Q, S, w]
    # The last column of a window is at the head's position, the column before it one position to the left, …
    spread: Any = sum(F.pad(share, (i, before - i)) for i, share in enumerate(shares.unbind(-1)))
    return spread[..., before:]  # type: ignore[no-any-return]
