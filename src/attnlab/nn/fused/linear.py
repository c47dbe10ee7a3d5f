"""Products with weights, by the faster of the libraries that torch has for them.

In fp32 on a CPU torch multiplies by MKL, which on other makers' CPUs than Intel's leaves AVX-512 unused. What
oneDNN did with the same numbers on a core of an AMD EPYC: a product of 600 x 512 by 512 x 8004, and both of
its gradients, in half the time. `linear` is `torch.nn.functional.linear` by that way where it is open, and
`torch.nn.functional.linear` itself everywhere else: in bf16 and fp64, under autocast, on a GPU.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

# oneDNN compiles a product for each number of rows, and keeps the last 1,024 unless told otherwise before the
# first. Where sentences end at different steps there are more: compiling again took a sixth of a step.
os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "16384")

WORTH_A_COPY = 32
"""For fewer rows than these, copying the columns of a wider weight takes longer than oneDNN saves."""


WORTH_PACKING = 2**19
"""For weights of fewer numbers than these, laying them out takes longer than the steps of a loop save.

So it does for transposed weights, of any size: four times as long as for others.
"""


WORTH_PREPARING = 4
"""For fewer rows than these a product takes hardly less time by a weight laid out than by one as it is."""


class Linear(nn.Linear):
    """Torch's layer by `linear`."""

    def forward(self, input: Tensor) -> Tensor:
        """[..., K] to [..., N]."""
        return linear(input, self.weight, self.bias)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """X Wᵀ + b: [..., K] by a weight [N, K] to [..., N]."""
    known = _LAID_OUT.get()
    if known is not None and not torch.is_grad_enabled() and not weight.is_inference() and weight.numel() > 0:
        return known.product(x, weight, bias)
    return _plain(x, weight, bias)


def _plain(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    if x.dtype != torch.float32 or not _onednn(weight) or torch.is_autocast_enabled("cpu"):
        return F.linear(x, weight, bias)
    if x.numel() < WORTH_A_COPY * x.size(-1) and not _is_dense(weight):
        return F.linear(x, weight, bias)
    if not torch.is_grad_enabled():
        return _multiply(x, weight, bias)
    return _Linear.apply(x, weight, bias)  # type: ignore[no-any-return,no-untyped-call]


def outer(left: Tensor, right: Tensor) -> Tensor:
    """Σ_n left_n ⊗ right_n of rows [n, N] and [n, K]: [N, K], as the gradient of a weight is."""
    fp32 = left.dtype == right.dtype == torch.float32
    return _multiply(left.T, right.T, None) if fp32 and _onednn(left) else left.T @ right


def prepare(weight: Tensor, bias: Tensor | None, dtype: torch.dtype) -> Callable[[Tensor], Tensor]:
    """The map x [n, K] → x Wᵀ + b [n, N] in `dtype`, its weight cast and laid out once for all its uses.

    On a CPU large weights are put into oneDNN's own layout: with the few rows of a loop's step much time goes
    into laying out the weight, at every step again. Laying it out took as long as ten steps save.
    """
    weight = weight.to(dtype)
    bias = None if bias is None else bias.to(dtype)
    if not _onednn(weight):
        return lambda x: F.linear(x, weight, bias)
    packed = weight.numel() >= WORTH_PACKING and weight.is_contiguous()
    layout = torch.ops.mkldnn._reorder_linear_weight(weight) if packed else _dense(weight)
    return lambda x: _operator(x, layout, bias)


@contextmanager
def laid_out() -> Iterator[None]:
    """While it lasts, `linear` casts and lays out each weight once, at the first product without a gradient.

    For many products of few rows, as a search has them: by 8003 x 512 numbers, of 4 rows, in fp32 on a core
    of an AMD EPYC, a quarter of the time. One inside another shares what the outer has laid out.
    """
    if _LAID_OUT.get() is not None:
        yield
        return
    token = _LAID_OUT.set(_LaidOut())
    try:
        yield
    finally:
        _LAID_OUT.reset(token)


class _LaidOut:
    """The weights that were multiplied by so far, in their layouts."""

    def __init__(self) -> None:
        # Beside each product the weight itself, or another could come to lie at its address
        self.products: dict[Any, tuple[Tensor, Callable[[Tensor], Tensor]]] = {}

    def product(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """[..., K] to [..., N]."""
        kind = weight.device.type
        dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else weight.dtype
        offset = None if bias is None else (bias.data_ptr(), bias._version)
        rows = x.to(dtype).reshape(-1, x.size(-1)).contiguous()
        key = weight.data_ptr(), weight.shape, weight.stride(), weight._version, offset, dtype
        if key not in self.products:
            if len(rows) < WORTH_PREPARING and dtype == weight.dtype:
                return _plain(x, weight, bias)
            self.products[key] = weight, prepare(weight.contiguous(), bias, dtype)
        return self.products[key][1](rows).view(*x.shape[:-1], len(weight))


_LAID_OUT: ContextVar[_LaidOut | None] = ContextVar("laid_out", default=None)


class _Linear(torch.autograd.Function):
    """`linear` by oneDNN, and the way back through it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """[..., N]."""
        ctx.save_for_backward(x, weight)
        return _multiply(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_output: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """The gradients of x, W and b."""
        x, weight = ctx.saved_tensors
        rows = d_output.reshape(-1, len(weight))  # [n, N]
        d_x = _multiply(d_output, weight.T, None) if ctx.needs_input_grad[0] else None
        d_weight = outer(rows, x.reshape(-1, x.size(-1))) if ctx.needs_input_grad[1] else None
        d_bias = rows.sum(dim=0) if ctx.needs_input_grad[2] else None
        return d_x, d_weight, d_bias


def _multiply(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """[..., N]. The operator has no fast way for the columns of a wider matrix: those are copied."""
    rows = _dense(x.reshape(-1, x.size(-1)))
    return _operator(rows, _dense(weight), bias).view(*x.shape[:-1], len(weight))


def _dense(matrix: Tensor) -> Tensor:
    return matrix if _is_dense(matrix) else matrix.contiguous()


def _is_dense(matrix: Tensor) -> bool:
    return matrix.is_contiguous() or matrix.T.is_contiguous()


def _operator(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")  # type: ignore[no-any-return]


def _onednn(weight: Tensor) -> bool:
    """Whether oneDNN can multiply by this weight: the operators are those that torch.compile uses."""
    return weight.device.type == "cpu" and weight.numel() > 0 and _onednn_has(weight.dtype)


@cache
def _onednn_has(dtype: torch.dtype) -> bool:
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return False
    if dtype == torch.bfloat16:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return dtype == torch.float32
