"""Layer normalisation inside a loop, one step at a time, by torch's own operators.

y = γ (x - mean) / std + β over the last dimension, in fp32 or wider. The gradients of γ and β are one sum
over the rows of all steps, after the loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

EPS = 1e-5  # of torch.nn.LayerNorm


class Norm:
    """One layer normalisation with gain γ [W] and bias β [W], and its backward pass.

    Saved for the backward pass are x [N, W], the means [N, 1] and 1 / std [N, 1] of all steps; N is 0 without
    one.
    """

    def __init__(self, gain: Tensor, bias: Tensor, saved: Sequence[Tensor]) -> None:
        self.saved = saved
        self.inputs, self.mean, self.rstd = saved
        self.gain, self.bias = gain.to(self.inputs.dtype), bias.to(self.inputs.dtype)

    @classmethod
    def begin(cls, gain: Tensor | None, bias: Tensor | None, rows: int, dtype: torch.dtype) -> Norm | None:
        """Return the normalisation of rows [N, W], or None without gain and bias."""
        if gain is None or bias is None:
            return None
        inputs = gain.new_empty(rows, len(gain), dtype=dtype)  # [N, W]
        return cls(gain, bias, [inputs, *inputs.new_empty(2, rows, 1)])

    @classmethod
    def resume(cls, gain: Tensor | None, bias: Tensor | None, saved: Any) -> Norm | None:
        """Return the normalisation of saved rows [N, W], or None without gain and bias."""
        return None if gain is None or bias is None else cls(gain, bias, saved)

    def forward(self, rows: slice, x: Tensor) -> Tensor:
        """Normalise the rows of one step, [n, W]."""
        if len(self.inputs) == 0:
            return self._normalise(x.to(self.inputs.dtype))[0]
        inputs = self.inputs[rows].copy_(x)
        y, self.mean[rows], self.rstd[rows] = self._normalise(inputs)
        return y

    def backward(self, rows: slice, d_y: Tensor) -> Tensor:
        """Return the gradient of x [n, W] of one step."""
        return self._backward(rows, d_y, [True, False, False])[0]

    def parameters(self, d_y: Tensor) -> tuple[Tensor, Tensor]:
        """Return the gradients of γ and β [W], given those of y of all steps [N, W]."""
        _, d_gain, d_bias = self._backward(slice(None), d_y, [False, True, True])
        return d_gain, d_bias

    def _normalise(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return torch.native_layer_norm(x, self.gain.shape, self.gain, self.bias, EPS)

    def _backward(self, rows: slice, d_y: Tensor, needed: list[bool]) -> tuple[Tensor, Tensor, Tensor]:
        saved = self.inputs[rows], list(self.gain.shape), self.mean[rows], self.rstd[rows]
        return torch.ops.aten.native_layer_norm_backward(d_y, *saved, self.gain, self.bias, needed)  # type: ignore[no-any-return]
