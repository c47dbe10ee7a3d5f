"""Attributions of a prediction to source tokens: gradients, integrated gradients, erasure of one token.

N units · S, E as in `attnlab.types` · f and p = exp f: the explained value, see `attnlab.explain.units`
"""

from collections.abc import Callable
from functools import partial
from typing import Literal, get_args

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from attnlab.explain.units import MAX_ROWS, Units, frozen, log_probability, units_of
from attnlab.nn.seq2seq import Seq2Seq
from attnlab.types import Batch

Method = Literal["gradient", "integrated_gradients", "erasure"]
METHODS: tuple[Method, ...] = get_args(Method)

STEPS = 16  # Default number of nodes of the integral


def attribute(network: Seq2Seq, units: Units, method: Method, *, steps: int = STEPS) -> Tensor:
    """Attribute f to the source tokens, [N, S], 0 at padding.

    "gradient" gives norms, "integrated_gradients" signed values whose sum is known, and "erasure" the drop of
    p if the token is erased.
    """
    methods: dict[Method, Callable[[Seq2Seq, Units], Tensor]] = {
        "gradient": gradient_norms,
        "integrated_gradients": partial(integrated_gradients, steps=steps),
        "erasure": leave_one_out,
    }
    chunks = [methods[method](network, chunk) for chunk in units.chunks()]
    return torch.cat([F.pad(values, (0, units.mask.size(1) - values.size(1))) for values in chunks])


def relevance_map(network: Seq2Seq, batch: Batch, method: Method) -> Tensor:
    """Return the relevance of the source tokens to each token of the target of one sentence, [T, S], 0 to 1.

    For "gradient" and "integrated_gradients" the shares of a target token, which sum to 1; for "erasure" the
    drops of p, or 0 where p rises. The batch holds a single sentence; EOS is explained as well.
    """
    units = units_of(network, batch, of_targets=True)
    values = attribute(network, units, method)  # [T, S], last position first
    values = values.clamp(min=0) if method == "erasure" else values.abs()
    if method != "erasure":
        values = values / values.sum(dim=-1, keepdim=True).clamp(min=torch.finfo(values.dtype).tiny)
    return values.flip(0)


def gradient_norms(network: Seq2Seq, units: Units) -> Tensor:
    """Return ‖∂f / ∂E x_j‖₂, the norm of the gradient with respect to the embedded token j, [N, S].

    Simonyan et al. 2014 (arXiv 1312.6034) and Li et al. 2016 (arXiv 1506.01066).
    """
    embedded = network.source_embedding(units.batch.source)  # [N, S, E]
    norms: Tensor = torch.linalg.vector_norm(gradient(network, units, embedded), dim=-1)  # [N, S]
    return norms.masked_fill(~units.mask, 0)


def integrated_gradients(network: Seq2Seq, units: Units, *, steps: int = STEPS) -> Tensor:
    """Return the integrated gradients of the source tokens, [N, S].

    ::

        a_j = E x_j · ∫₀¹ ∂f(u E x) / ∂(u E x_j) du

    Sundararajan, Taly & Yan 2017 (arXiv 1703.01365), with the zero vector as the baseline of every token, and
    Gauss-Legendre quadrature. Completeness: Σ_j a_j = f(x) - f(0), up to the error of the quadrature.
    """
    nodes, shares = np.polynomial.legendre.leggauss(steps)  # on [-1, 1]
    embedded = network.source_embedding(units.batch.source).detach()  # [N, S, E]
    total = torch.zeros_like(embedded)
    for node, share in zip(nodes.tolist(), shares.tolist(), strict=True):
        total += share / 2 * gradient(network, units, (1 + node) / 2 * embedded)
    values: Tensor = (embedded * total).sum(dim=-1)  # [N, S]
    return values.masked_fill(~units.mask, 0)


def gradient(network: Seq2Seq, units: Units, embedded: Tensor) -> Tensor:
    """Return ∂f / ∂embedded at embedded sources [N, S, E], of the same shape."""
    embedded = embedded.detach().requires_grad_()
    with torch.enable_grad(), frozen(network):
        value = log_probability(network, units, embedded).sum()
    if not value.requires_grad:  # without attention, a decoder may not read the source
        return torch.zeros_like(embedded)
    (result,) = torch.autograd.grad(value, embedded, materialize_grads=True)
    return result


def leave_one_out(network: Seq2Seq, units: Units) -> Tensor:
    """Return the drop of p if source token j is erased, for each j, [N, S]; see `erased`."""
    size = units.mask.size(1)
    keep = ~torch.eye(size, dtype=torch.bool, device=units.mask.device)  # [S, S]
    kept = erased(network, units, keep.expand(len(units.tokens), -1, -1))  # [N, S]
    return (units.log_p.exp()[:, None] - kept).masked_fill(~units.mask, 0)


@torch.no_grad()
def erased(network: Seq2Seq, units: Units, keep: Tensor) -> Tensor:
    """Return p [N, K] with only some of the source tokens; the others are erased.

    The embedding of an erased token is replaced by the zero vector, the baseline of integrated gradients.
    The token keeps its place, since its removal would move all tokens after it.

    Args:
        network: in evaluation mode.
        units: N predictions.
        keep: [N, K, S] bool: K choices for each unit, True at tokens that are kept.
    """
    count = keep.size(1)
    parts = []
    for rows in torch.split(torch.arange(len(keep) * count, device=keep.device), MAX_ROWS):
        part = units.select(rows // count)
        embedded = network.source_embedding(part.batch.source)  # [M, S, E]
        embedded = embedded * keep.flatten(0, 1)[rows, :, None]
        parts.append(log_probability(network, part, embedded))
    return torch.cat(parts).exp().view(-1, count)
