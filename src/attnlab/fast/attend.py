"""Attention inside a loop, one step at a time, forward and backward.

Both kinds of scores are covered, additive and dot-product scores of a query q = W s + b and keys k_j::

    e_j = vᵀ tanh(q + k_j)        or        e_j = q · k_j
    α   = softmax(e / τ)          c = Σ_j α_j h_j

with the backward pass::

    dα_j = dc · h_j               de = α (dα - Σ_j α_j dα_j) / τ           dh_j += α_j dc
    du_j = de_j v (1 - tanh²)     dq = Σ_j du_j     dk_j += du_j           dv += Σ_j de_j tanh(q + k_j)
    dq   = Σ_j de_j k_j           dk_j += de_j q                           for dot products

Additive scores are computed as vᵀ tanh(u) = 2vᵀ σ(2u) - Σ v, whose last term does not change the softmax: on
a CPU, torch's sigmoid is much faster than its tanh. So 2q, 2k_j and 2v replace q, k_j and v, in fp32
or wider because σ loses precision near u = 0, and the gradients are those of the doubled values.

Location-sensitive scores add a term of the weights α' of the step before, a convolution over positions with
L [A, K], the product of the filters and their projection. With α'[j], the window of K weights around j::

    e_j = vᵀ tanh(q + k_j + L α'[j])          dL += Σ_j du_j α'[j]ᵀ          dα'[j] += Lᵀ du_j

Only q, α and de of a step are saved: σ(2q + 2k_j) is recomputed in the backward pass, so that memory grows
with B (S + T) A instead of B S T A. The sums over steps that no step needs, dh_j and the dk_j of dot
products, are one product over all steps.
"""

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from attnlab.fast.cells import TWO, identity, sigmoid_backward, widest
from attnlab.fast.linear import Products, is_few, outer, prepack
from attnlab.fast.rows import Rows
from attnlab.nn.attention import additive
from attnlab.types import Memory


class Attended(NamedTuple):
    """What is attended to, and the parameters of additive scores (with `energy`) or of dot products."""

    memory: Tensor  # [B, S, D]
    keys: Tensor  # [B, S, A]
    mask: Tensor | None  # [B, S], True at real positions
    energy: Tensor | None = None  # v [A]; None for dot products
    weight: Tensor | None = None  # W [A, H]; None: q = s
    bias: Tensor | None = None  # b [A]
    location: Tensor | None = None  # L [A, K]; None: no term of earlier weights


class AttentionForward:
    """Forward pass of attention for T queries, one after the other, of the sentences that have not ended.

    Args:
        temperature: τ
        steps: T
        dtype: data type of products with weights, and of contexts. Products of memories and keys, which in
            bf16 would take longer, are in fp32 or wider, and so are weights.
    """

    def __init__(self, attended: Attended, temperature: float, steps: int, dtype: torch.dtype) -> None:
        memory, keys, mask, energy, weight, bias, location = attended
        assert mask is not None
        B, S, D = memory.shape
        wide = widest(dtype)
        self.temperature = temperature
        self.energy = None if energy is None else _double(energy)
        self.query = identity if weight is None else prepack(weight, bias, dtype)
        self.memory = memory.to(wide)  # [B, S, D]
        self.keys = keys.to(wide) if self.energy is None else _double(keys)  # [B, S, A]
        self.mask = mask.to(wide)  # [B, S]
        self.offset = torch.zeros_like(self.mask).masked_fill_(~mask, -3.0e38)  # [B, S]
        # buffer of one step, [B, S, A]
        self.sums = None if self.energy is None else torch.empty_like(self.keys)
        self.queries = memory.new_zeros(steps, B, keys.size(2), dtype=self.keys.dtype)  # [T, B, A]
        self.weights = memory.new_zeros(steps, B, S, dtype=wide)  # [T, B, S]
        self.contexts = memory.new_zeros(steps, B, D, dtype=dtype)  # [T, B, D]
        self.location = None if location is None else _double(location)  # [A, K]

    def step(self, i: int, query: Tensor) -> Tensor:
        """Attend with s [n, H] of the first n sentences; return the context [n, D]."""
        n = len(query)
        queries, keys = self.queries[i, :n], self.keys[:n]  # [n, A], [n, S, A]
        if self.energy is None or self.sums is None:
            queries.copy_(self.query(query))
            scores = torch.bmm(queries[:, None], keys.transpose(1, 2))[:, 0]  # [n, S]
        else:
            torch.mul(self.query(query), TWO, out=queries)
            sums = _sums(queries, keys, self.location, self.weights[i - 1, :n] if i else None, self.sums[:n])
            scores = sums.sigmoid_() @ self.energy
        # in fp32 or wider, as the offset is
        scores = torch.add(self.offset[:n], scores, alpha=1 / self.temperature)  # [n, S]
        weights = torch.softmax(scores, dim=-1, out=self.weights[i, :n]).mul_(self.mask[:n])  # [n, S]
        context = torch.bmm(weights[:, None], self.memory[:n])  # [n, 1, D]
        return self.contexts[i, :n].copy_(context[:, 0])


class AttentionBackward:
    """Backward pass of `AttentionForward`.

    Args:
        queries: q of every step, [T, B, A].
        weights: α of every step, [T, B, S].
    """

    def __init__(
        self, attended: Attended, temperature: float, queries: Tensor, weights: Tensor, dtype: torch.dtype
    ) -> None:
        memory, keys, _, energy, weight, _, location = attended
        self.attended, self.temperature = attended, temperature
        self.energy = None if energy is None else _double(energy)
        self.query = identity if weight is None else prepack(weight.T, None, dtype)
        self.memory = memory.to(weights.dtype)  # [B, S, D]
        self.keys = keys.to(weights.dtype) if self.energy is None else _double(keys)  # [B, S, A]
        self.queries, self.weights = queries, weights
        self.d_queries = queries.new_zeros(queries.shape, dtype=dtype)
        self.d_contexts = queries.new_zeros(*weights.shape[:2], memory.size(2), dtype=dtype)
        self.d_scores = torch.zeros_like(weights)
        if self.energy is not None:
            self.sums, self.d_sums = torch.empty_like(self.keys), torch.empty_like(self.keys)  # [B, S, A]
            self.d_keys, self.d_energy = torch.zeros_like(self.keys), torch.zeros_like(self.energy)
        self.location = None if location is None else _double(location)  # [A, K]
        if self.location is not None:
            self.d_location = torch.zeros_like(self.location)
            self.d_before = torch.zeros_like(weights[0])  # of α, from the scores of the next step, [B, S]

    def step(self, i: int, n: int, d_weights: Tensor | None) -> Tensor:
        """Return the gradient of s [n, H], given that of the context in `d_contexts[i, :n]`."""
        weights, keys = self.weights[i, :n], self.keys[:n]  # [n, S], [n, S, A]
        d_context = self.d_contexts[i, :n, None].to(weights.dtype)  # [n, 1, D]
        d_alpha = torch.bmm(d_context, self.memory[:n].transpose(1, 2))[:, 0]  # [n, S]
        d_alpha = d_alpha if d_weights is None else d_alpha + d_weights[:n]
        d_alpha = d_alpha if self.location is None else d_alpha + self.d_before[:n]
        d_scores = torch._softmax_backward_data(d_alpha, weights, -1, weights.dtype)
        d_scores = torch.div(d_scores, self.temperature, out=self.d_scores[i, :n])  # [n, S]
        d_query = self.d_queries[i, :n]  # [n, A]
        if self.energy is None:
            d_query.copy_(torch.bmm(d_scores[:, None], keys)[:, 0])
        else:
            d_sums = self.d_sums[:n]  # [n, S, A]
            before = self.weights[i - 1, :n] if i else None  # [n, S]
            sums = _sums(self.queries[i, :n], keys, self.location, before, self.sums[:n]).sigmoid_()
            self.d_energy.addmv_(sums.flatten(0, 1).T, d_scores.flatten())
            torch.mul(d_scores[..., None], self.energy, out=d_sums)
            sigmoid_backward(d_sums, sums, grad_input=d_sums)
            self.d_keys[:n].add_(d_sums)
            torch.mul(d_sums.sum(dim=1), TWO, out=d_query)
            if self.location is not None and before is not None:
                self._locate(d_sums, before)
        return self.query(d_query)

    def _locate(self, d_sums: Tensor, before: Tensor) -> None:
        """Compute the gradients of L and of the weights of the step before [n, S]."""
        assert self.location is not None
        (n, S), K = before.shape, self.location.size(1)
        rows = d_sums.flatten(0, 1)  # [n·S, A]
        self.d_location.addmm_(rows.T, _windows(before, K).flatten(0, 1))
        d_windows = (rows @ self.location).view(n, S, K)
        padded = torch.ops.aten.unfold_backward(d_windows, [n, S + K - 1], 1, K, 1)
        self.d_before[:n] = padded[:, K // 2 : K // 2 + S]

    def gradients(self, rows: Rows, queries: Tensor) -> Attended:
        """Return the gradients in the shapes of `Attended`, given the s of every step, [N, H]."""
        d_memory = over_steps(self.weights, self.d_contexts)  # [B, S, D]
        d_queries = rows.pack(self.d_queries)  # [N, A]
        d_weight = None if self.attended.weight is None else outer(d_queries, queries)
        d_bias = None if self.attended.bias is None else d_queries.sum(dim=0, dtype=self.weights.dtype)
        if self.energy is None:
            return Attended(d_memory, over_steps(self.d_scores, self.queries), None, None, d_weight, d_bias)
        d_location = None if self.location is None else self.d_location.mul_(2)
        d_keys, d_energy = self.d_keys.mul_(2), self.d_energy.mul_(2)
        return Attended(d_memory, d_keys, None, d_energy, d_weight, d_bias, d_location)


def over_steps(left: Tensor, right: Tensor) -> Tensor:
    """Sum outer products over the steps: [T, B, S] and [T, B, D] to [B, S, D]."""
    return torch.bmm(left.permute(1, 2, 0), right.to(left.dtype).transpose(0, 1))


class Energy(additive.Energy):
    """Additive scores of many queries that process a few of them at a time, and recompute the tanh.

    Memory grows with B (S + Q) A instead of B Q S A. Without gradients they take fewer operators.
    """

    def score(self, query: Tensor, keys: Tensor) -> Tensor:
        few = query.size(1) == 1 if torch.is_grad_enabled() else is_few(query)
        if few or keys.dim() == 4:
            return super().score(query, keys)
        if torch.is_grad_enabled():
            return _AdditiveScores.apply(query, keys, self.weight[0])  # type: ignore[no-any-return,no-untyped-call]
        return _scores(query, keys, self.weight[0])


class Concat(additive.Concat):
    """Concat attention on the faster CPU backend."""

    products: Products

    def project(self, memory: Memory) -> Tensor:
        weight = self.pair.weight[:, self.query_size :]  # [A, D]
        return self.products.linear(memory.states, weight, self.pair.bias)

    def score(self, query: Tensor, keys: Tensor, state: Any) -> Tensor:
        projected = self.products.linear(query, self.pair.weight[:, : self.query_size])  # [B, Q, A]
        return self.energy.score(projected, keys)


CHUNK = 4  # Queries of additive scores that are processed at a time


def _scores(queries: Tensor, keys: Tensor, energy: Tensor) -> Tensor:
    """Compute the scores [B, Q, S] of queries [B, Q, A], keys [B, S, A] and v [A]."""
    with torch.autocast(queries.device.type, enabled=False):
        wide_keys = keys[:, None].to(widest(keys.dtype))  # [B, 1, S, A]
        twice_energy = _double(energy)[:, None]  # [A, 1]
        parts = torch.split(queries[:, :, None], CHUNK, dim=1)  # each [B, q, 1, A]
        sums = (torch.add(_double(part), wide_keys, alpha=2) for part in parts)  # each [B, q, S, A]
        scores = [part.sigmoid_() @ twice_energy for part in sums]  # each [B, q, S, 1]
        joined = scores[0] if len(scores) == 1 else torch.cat(scores, dim=1)  # [B, Q, S, 1]
        return (joined[..., 0] - energy.sum()).to(queries.dtype)


class _AdditiveScores(torch.autograd.Function):
    """`_scores` with its backward pass."""

    @staticmethod
    def forward(ctx: Any, queries: Tensor, keys: Tensor, energy: Tensor) -> Tensor:
        ctx.save_for_backward(queries, keys, energy)
        return _scores(queries, keys, energy)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_scores: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        queries, keys, energy = ctx.saved_tensors
        with torch.autocast(queries.device.type, enabled=False):
            twice_keys, v, d_scores = _double(keys)[:, None], _double(energy), d_scores.to(widest(keys.dtype))
            d_queries = []
            d_keys, d_energy = torch.zeros_like(twice_keys[:, 0]), torch.zeros_like(v)  # [B, S, A], [A]
            for part, d_part in zip(
                torch.split(queries[:, :, None], CHUNK, dim=1),
                torch.split(d_scores, CHUNK, dim=1),
                strict=True,
            ):
                sigmoid = (_double(part) + twice_keys).sigmoid_()  # [B, q, S, A]
                d_energy.addmv_(sigmoid.flatten(0, 2).T, d_part.flatten())
                d_sums = torch.ops.aten.sigmoid_backward(d_part[..., None] * v, sigmoid)  # [B, q, S, A]
                d_queries.append(d_sums.sum(dim=2))
                d_keys += d_sums.sum(dim=1)
            return torch.cat(d_queries, dim=1).mul_(2), d_keys.mul_(2), d_energy.mul_(2) - d_scores.sum()


def _sums(
    queries: Tensor, keys: Tensor, location: Tensor | None, before: Tensor | None, out: Tensor
) -> Tensor:
    """Write q + k_j + L α'[j] to `out` [n, S, A], given q [n, A], k [n, S, A] and α' [n, S] or None."""
    torch.add(queries[:, None], keys, out=out)
    if location is not None and before is not None:
        out.view(-1, len(location)).addmm_(_windows(before, location.size(1)).flatten(0, 1), location.T)
    return out


def _windows(weights: Tensor, size: int) -> Tensor:
    """Return the weights around each position, 0 outside of the sentence: [n, S] to [n, S, K]."""
    return F.pad(weights, (size // 2, size // 2)).unfold(1, size, 1)


def _double(part: Tensor) -> Tensor:
    return part.to(widest(part.dtype)) * 2
