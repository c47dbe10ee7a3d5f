"""Products with a weight that is used at every step of a loop."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor


def product(weight: Tensor, bias: Tensor | None, dtype: torch.dtype) -> Callable[[Tensor], Tensor]:
    """The map x [n, K] → x Wᵀ + b [n, N] in `dtype`, its weight cast and laid out once for all its uses.

    On a CPU oneDNN's layout is used: with the few rows of a step, torch's own product spends much of its time
    on laying out the weight, at every step again. For 32 rows and a weight of 2048 x 1536, on cores of an AMD
    EPYC that others used too, that made 1.5 times the speed in fp32 on one core and more on two, and 1.2 to
    1.3 times in bf16; laying out took as long as a few steps save.
    """
    weight = weight.to(dtype)
    bias = None if bias is None else bias.to(dtype)
    if not _onednn(weight):
        return lambda x: F.linear(x, weight, bias)
    packed = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous())
    return lambda x: torch.ops.mkldnn._linear_pointwise(x, packed, bias, "none", [], "")


def _onednn(weight: Tensor) -> bool:
    """Whether oneDNN can multiply by this weight: the operators are those that torch.compile uses."""
    available = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    if not available or weight.device.type != "cpu" or weight.numel() == 0:
        return False
    if weight.dtype == torch.bfloat16:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return weight.dtype == torch.float32
