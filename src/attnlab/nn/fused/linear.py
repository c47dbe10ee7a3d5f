"""Linear layers on the faster CPU backend.

In fp32 on a CPU, PyTorch multiplies with MKL, which leaves AVX-512 unused on CPUs of other makers than Intel.
On one core of an AMD EPYC, oneDNN computed a product of 600 x 512 by 512 x 8004 and both of its gradients in
half the time. `linear` uses oneDNN where it applies, and `torch.nn.functional.linear` in bf16 and fp64, under
autocast, on a GPU, and wherever fused kernels are not active (see `attnlab.nn.fused.kernels`).
"""

from __future__ import annotations

import os
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from attnlab.nn.fused.kernels import Product, active_kernels

# oneDNN compiles one product per number of rows and keeps the last 1,024 by default. This must be set before
# the first product. Batches whose sentences end at different steps need more: compiling again took a sixth of
# a training step.
os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "16384")

MIN_ROWS_TO_COPY = 32
"""With fewer rows, copying the columns of a wider weight takes longer than oneDNN saves."""

MIN_WEIGHT_TO_REORDER = 2**19
"""With fewer elements, reordering a weight takes longer than the steps of a loop save.

Transposed weights are never reordered: that takes four times as long.
"""

MIN_ROWS_TO_PREPACK = 4
"""With fewer rows, a product with a prepacked weight takes hardly less time."""


class Linear(nn.Linear):
    """`torch.nn.Linear` computed by `linear`."""

    def forward(self, input: Tensor) -> Tensor:
        """Map [..., K] to [..., N]."""
        return linear(input, self.weight, self.bias)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Compute x Wᵀ + b, as `torch.nn.functional.linear` does.

    Args:
        x: [..., K].
        weight: [N, K].
        bias: [N].

    Returns:
        [..., N].
    """
    kernels = active_kernels()
    if not kernels.fused:
        return F.linear(x, weight, bias)
    fixed = not torch.is_grad_enabled() and not weight.is_inference() and weight.numel() > 0
    if kernels.prepacked is not None and fixed:
        return _prepacked_linear(kernels.prepacked, x, weight, bias)
    return _linear(x, weight, bias)


def outer(left: Tensor, right: Tensor) -> Tensor:
    """Sum the outer products of the rows [n, N] and [n, K] to [N, K], as in the gradient of a weight."""
    fp32 = left.dtype == right.dtype == torch.float32
    return _multiply(left.T, right.T, None) if fp32 and _onednn(left) else left.T @ right


def prepack(weight: Tensor, bias: Tensor | None, dtype: torch.dtype) -> Product:
    """Return the map x [n, K] → x Wᵀ + b [n, N] in `dtype`, with the weight cast and packed once.

    On a CPU, large weights are reordered into oneDNN's own layout. With the few rows of one step of a loop,
    much of the time of a product is spent on that layout. Reordering took as long as ten steps save.
    """
    weight = weight.to(dtype)
    bias = None if bias is None else bias.to(dtype)
    if not _onednn(weight):
        return lambda x: F.linear(x, weight, bias)
    reorder = weight.numel() >= MIN_WEIGHT_TO_REORDER and weight.is_contiguous()
    packed = torch.ops.mkldnn._reorder_linear_weight(weight) if reorder else _dense(weight)
    return lambda x: _operator(x, packed, bias)


def _linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    if x.dtype != torch.float32 or not _onednn(weight) or torch.is_autocast_enabled("cpu"):
        return F.linear(x, weight, bias)
    if x.numel() < MIN_ROWS_TO_COPY * x.size(-1) and not _is_dense(weight):
        return F.linear(x, weight, bias)
    if not torch.is_grad_enabled():
        return _multiply(x, weight, bias)
    return _Linear.apply(x, weight, bias)  # type: ignore[no-any-return,no-untyped-call]


def _prepacked_linear(
    prepacked: dict[Any, tuple[Tensor, Product]], x: Tensor, weight: Tensor, bias: Tensor | None
) -> Tensor:
    """Multiply by a weight that is prepacked at its first use. An entry also holds the weight itself.

    Holding the weight keeps its address, which is part of the key, from being reused by another tensor.
    """
    kind = weight.device.type
    dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else weight.dtype
    bias_key = None if bias is None else (bias.data_ptr(), bias._version)
    rows = x.to(dtype).reshape(-1, x.size(-1)).contiguous()  # [n, K]
    key = weight.data_ptr(), weight.shape, weight.stride(), weight._version, bias_key, dtype
    if key not in prepacked:
        if len(rows) < MIN_ROWS_TO_PREPACK and dtype == weight.dtype:
            return _linear(x, weight, bias)
        prepacked[key] = weight, prepack(weight.contiguous(), bias, dtype)
    return prepacked[key][1](rows).view(*x.shape[:-1], len(weight))


class _Linear(torch.autograd.Function):
    """`linear` on oneDNN, with its backward pass."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Compute x Wᵀ + b [..., N]."""
        ctx.save_for_backward(x, weight)
        return _multiply(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_output: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """Compute the gradients of x, W and b."""
        x, weight = ctx.saved_tensors
        rows = d_output.reshape(-1, len(weight))  # [n, N]
        d_x = _multiply(d_output, weight.T, None) if ctx.needs_input_grad[0] else None  # [..., K]
        d_weight = outer(rows, x.reshape(-1, x.size(-1))) if ctx.needs_input_grad[1] else None  # [N, K]
        d_bias = rows.sum(dim=0) if ctx.needs_input_grad[2] else None  # [N]
        return d_x, d_weight, d_bias


def _multiply(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Compute x Wᵀ + b [..., N]. Columns of a wider matrix are copied: the operator is slow on them."""
    rows = _dense(x.reshape(-1, x.size(-1)))  # [n, K]
    return _operator(rows, _dense(weight), bias).view(*x.shape[:-1], len(weight))


def _dense(matrix: Tensor) -> Tensor:
    return matrix if _is_dense(matrix) else matrix.contiguous()


def _is_dense(matrix: Tensor) -> bool:
    return matrix.is_contiguous() or matrix.T.is_contiguous()


def _operator(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")  # type: ignore[no-any-return]


def _onednn(weight: Tensor) -> bool:
    """Return whether oneDNN can multiply by this weight, with the operators that torch.compile uses."""
    return weight.device.type == "cpu" and weight.numel() > 0 and _onednn_supports(weight.dtype)


@cache
def _onednn_supports(dtype: torch.dtype) -> bool:
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return False
    if dtype == torch.bfloat16:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return dtype == torch.float32
