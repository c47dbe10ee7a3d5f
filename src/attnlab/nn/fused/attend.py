"""Attending inside a loop, a step at a time, forward and then back.

Both kinds of scores are covered, sums and products of a query q = W s + b and keys k_j::

    e_j = vᵀ tanh(q + k_j)        or        e_j = q · k_j
    α   = softmax(e / τ)          c = Σ_j α_j h_j

and the way back::

    dα_j = dc · h_j               de = α (dα - Σ_j α_j dα_j) / τ           dh_j += α_j dc
    du_j = de_j v (1 - tanh²)     dq = Σ_j du_j     dk_j += du_j           dv += Σ_j de_j tanh(q + k_j)
    dq   = Σ_j de_j k_j           dk_j += de_j q                           for products

Sums are computed as vᵀ tanh(u) = 2vᵀ σ(2u) - Σ v, whose last term the softmax does not see: torch's σ took a
tenth of the time of its tanh on a CPU. So 2q, 2k_j and 2v stand in the place of q, k_j and v, in fp32 or
wider, since σ has no finer numbers near u = 0; what comes back is the gradients of the doubles.

Of a step only q, α and de are kept: σ(2q + 2k_j) is computed again on the way back, so that memory grows
with B (S + T) A and not with B S T A. What sums over steps and is needed by none of them, dh_j and the dk_j
of products, is one product over all steps.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from attnlab.nn.fused.layer import sigmoid_backward, widest
from attnlab.nn.fused.linear import outer, prepare
from attnlab.nn.fused.rows import Rows


class Scores(NamedTuple):
    """Parameters of additive scores (with `energy`) or of dot-product scores (without)."""

    temperature: float
    energy: Tensor | None = None  # v [A]; None: products
    weight: Tensor | None = None  # W [A, H]; None: the query is compared as it is
    bias: Tensor | None = None  # b [A]


class Attend:
    """Attention over a memory for T queries, one after the other, of the sentences that go on.

    Args:
        scoring: how.
        memory: [B, S, D].
        keys: [B, S, A].
        mask: [B, S], True at real positions.
        steps: T.
        dtype: of products, contexts and scores. Weights are in fp32 or wider.
    """

    def __init__(
        self, scoring: Scores, memory: Tensor, keys: Tensor, mask: Tensor, steps: int, dtype: torch.dtype
    ) -> None:
        B, S, D = memory.shape
        wide = widest(dtype)
        self.temperature = scoring.temperature
        self.energy = None if scoring.energy is None else _double(scoring.energy)
        self.query = _identity if scoring.weight is None else prepare(scoring.weight, scoring.bias, dtype)
        self.memory = memory.to(dtype)
        self.keys = keys.to(dtype) if self.energy is None else _double(keys)
        self.mask = mask
        self.offset = torch.zeros_like(mask, dtype=wide).masked_fill_(~mask, -3.0e38)  # [B, S]
        self.sums = None if self.energy is None else torch.empty_like(self.keys)  # [B, S, A], of one step
        self.queries = memory.new_zeros(steps, B, keys.size(2), dtype=self.keys.dtype)
        self.weights = memory.new_zeros(steps, B, S, dtype=wide)
        self.contexts = memory.new_zeros(steps, B, D, dtype=dtype)

    def step(self, i: int, query: Tensor) -> Tensor:
        """Attend with s [n, H] of the first n sentences; returns the context [n, D]."""
        n = len(query)
        queries, keys = self.queries[i, :n], self.keys[:n]  # [n, A], [n, S, A]
        if self.energy is None or self.sums is None:
            queries.copy_(self.query(query))
            scores = torch.bmm(queries[:, None], keys.transpose(1, 2))[:, 0]  # [n, S]
        else:
            torch.mul(self.query(query), 2, out=queries)
            scores = torch.add(queries[:, None], keys, out=self.sums[:n]).sigmoid_() @ self.energy
        # In fp32 or wider, as the offset is
        scores = torch.add(self.offset[:n], scores, alpha=1 / self.temperature)
        weights = torch.softmax(scores, dim=-1, out=self.weights[i, :n]).mul_(self.mask[:n])  # [n, S]
        context = torch.bmm(weights[:, None].to(self.memory.dtype), self.memory[:n])  # [n, 1, D]
        return self.contexts[i, :n].copy_(context[:, 0])


class AttendBack:
    """The way back through an `Attend`.

    Args:
        scoring: as there.
        memory: as there.
        keys: as there.
        queries: q of every step, [T, B, A].
        weights: [T, B, S].
        dtype: as there.
    """

    def __init__(
        self,
        scoring: Scores,
        memory: Tensor,
        keys: Tensor,
        queries: Tensor,
        weights: Tensor,
        dtype: torch.dtype,
    ) -> None:
        self.scoring = scoring
        self.energy = None if scoring.energy is None else _double(scoring.energy)
        self.query = _identity if scoring.weight is None else prepare(scoring.weight.T, None, dtype)
        self.memory = memory.to(dtype)
        self.keys = keys.to(dtype) if self.energy is None else _double(keys)
        self.queries, self.weights = queries, weights
        self.d_queries = queries.new_zeros(queries.shape, dtype=dtype)
        self.d_contexts = queries.new_zeros(*weights.shape[:2], memory.size(2), dtype=dtype)
        self.d_scores = torch.zeros_like(weights)
        if self.energy is not None:
            self.sums, self.d_sums = torch.empty_like(self.keys), torch.empty_like(self.keys)  # [B, S, A]
            self.d_keys, self.d_energy = torch.zeros_like(self.keys), torch.zeros_like(self.energy)

    def back(self, i: int, n: int, d_weights: Tensor | None) -> Tensor:
        """The gradient of s [n, H], that of the context being in `d_contexts[i, :n]`."""
        weights, keys = self.weights[i, :n], self.keys[:n]  # [n, S], [n, S, A]
        d_alpha = torch.bmm(self.d_contexts[i, :n, None], self.memory[:n].transpose(1, 2))[:, 0]  # [n, S]
        d_alpha = d_alpha.to(weights.dtype) if d_weights is None else d_alpha + d_weights[:n]
        d_scores = torch._softmax_backward_data(d_alpha, weights, -1, weights.dtype)
        d_scores = torch.div(d_scores, self.scoring.temperature, out=self.d_scores[i, :n])  # [n, S]
        d_query = self.d_queries[i, :n]  # [n, A]
        if self.energy is None:
            d_query.copy_(torch.bmm(d_scores[:, None].to(keys.dtype), keys)[:, 0])
        else:
            sums, d_sums = self.sums[:n], self.d_sums[:n]  # [n, S, A]
            torch.add(self.queries[i, :n, None], keys, out=sums).sigmoid_()
            self.d_energy.addmv_(sums.flatten(0, 1).T, d_scores.flatten())
            torch.mul(d_scores[..., None], self.energy, out=d_sums)
            sigmoid_backward(d_sums, sums, grad_input=d_sums)
            self.d_keys[:n] += d_sums
            torch.mul(d_sums.sum(dim=1), 2, out=d_query)
        return self.query(d_query)

    def memories(self) -> tuple[Tensor, Tensor]:
        """The gradients of the memory and of the keys, each of all steps in one product."""
        d_memory = over_steps(self.weights, self.d_contexts)  # [B, S, D]
        if self.energy is None:
            return d_memory, over_steps(self.d_scores, self.queries)
        return d_memory, self.d_keys.mul_(2)

    def parameters(self, rows: Rows, queries: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """The gradients of v, W and b, from the s of every step, [N, H]."""
        scoring, d_queries = self.scoring, rows.pack(self.d_queries)  # [N, A]
        d_energy = None if scoring.energy is None else self.d_energy.mul_(2)
        d_weight = None if scoring.weight is None else outer(d_queries, queries)
        d_bias = None if scoring.bias is None else d_queries.sum(dim=0, dtype=self.weights.dtype)
        return d_energy, d_weight, d_bias


def over_steps(left: Tensor, right: Tensor) -> Tensor:
    """Σ_t left_t ⊗ right_t: [T, B, S] and [T, B, D] to [B, S, D]."""
    return torch.bmm(left.to(right.dtype).permute(1, 2, 0), right.transpose(0, 1))


def sum_energies(queries: Tensor, keys: Tensor, energy: Tensor) -> Tensor:
    """vᵀ tanh(q + k_j) [B, Q, S] of many queries [B, Q, A] at once, keys [B, S, A] and v [A].

    A few queries' tanh is computed at a time, and again on the way back: memory grows with B (S + Q) A.
    """
    return _SumEnergies.apply(queries, keys, energy)  # type: ignore[no-any-return,no-untyped-call]


class _SumEnergies(torch.autograd.Function):
    """`sum_energies`, and the way back through it."""

    AT_ONCE = 4

    @staticmethod
    def forward(ctx: Any, queries: Tensor, keys: Tensor, energy: Tensor) -> Tensor:
        """[B, Q, S]."""
        ctx.save_for_backward(queries, keys, energy)
        with torch.autocast(queries.device.type, enabled=False):
            twice_keys, v = _double(keys)[:, None], _double(energy)
            parts = torch.split(queries[:, :, None], _SumEnergies.AT_ONCE, dim=1)  # each [B, q, 1, A]
            scores = [(_double(part) + twice_keys).sigmoid_() @ v[:, None] for part in parts]  # [B, q, S, 1]
            return (torch.cat(scores, dim=1)[..., 0] - energy.sum()).to(queries.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_scores: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The gradients of q, k and v, as in the loop."""
        queries, keys, energy = ctx.saved_tensors
        with torch.autocast(queries.device.type, enabled=False):
            twice_keys, v, d_scores = _double(keys)[:, None], _double(energy), d_scores.to(widest(keys.dtype))
            d_queries = []
            d_keys, d_energy = torch.zeros_like(twice_keys[:, 0]), torch.zeros_like(v)
            for part, d_part in zip(
                torch.split(queries[:, :, None], _SumEnergies.AT_ONCE, dim=1),
                torch.split(d_scores, _SumEnergies.AT_ONCE, dim=1),
                strict=True,
            ):
                sigmoid = (_double(part) + twice_keys).sigmoid_()  # [B, q, S, A]
                d_energy.addmv_(sigmoid.flatten(0, 2).T, d_part.flatten())
                d_sums = torch.ops.aten.sigmoid_backward(d_part[..., None] * v, sigmoid)  # [B, q, S, A]
                d_queries.append(d_sums.sum(dim=2))
                d_keys += d_sums.sum(dim=1)
            return torch.cat(d_queries, dim=1).mul_(2), d_keys.mul_(2), d_energy.mul_(2) - d_scores.sum()


def _identity(query: Tensor) -> Tensor:
    return query


def _double(part: Tensor) -> Tensor:
    return part.to(widest(part.dtype)) * 2
