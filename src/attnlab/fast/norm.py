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


class NormForward:
    """Forward pass of one layer normalisation.

    Its gain γ and bias β are [W]; `rows` is N, of all steps together, or 0 if there is no backward pass.
    """

    def __init__(self, gain: Tensor, bias: Tensor, rows: int, dtype: torch.dtype) -> None:
        self.gain, self.bias = gain.to(dtype), bias.to(dtype)
        self.inputs = self.gain.new_empty(rows, len(gain))  # x [N, W]
        self.mean, self.rstd = self.gain.new_empty(2, rows, 1)  # each [N, 1]

    @classmethod
    def of(
        cls, gain: Tensor | None, bias: Tensor | None, rows: int, dtype: torch.dtype
    ) -> NormForward | None:
        """Return the normalisation, or None without gain and bias."""
        return None if gain is None or bias is None else cls(gain, bias, rows, dtype)

    @property
    def saved(self) -> list[Tensor]:
        """Tensors that `NormBackward` needs: inputs [N, W], means [N, 1] and 1 / std [N, 1]."""
        return [self.inputs, self.mean, self.rstd]

    def step(self, rows: slice, x: Tensor) -> Tensor:
        """Normalise the rows of one step, [n, W]."""
        if len(self.inputs) == 0:
            return self._normalise(x.to(self.inputs.dtype))[0]
        inputs = self.inputs[rows].copy_(x)
        y, self.mean[rows], self.rstd[rows] = self._normalise(inputs)
        return y

    def _normalise(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return y [n, W], the means [n, 1] and 1 / std [n, 1]."""
        return torch.native_layer_norm(x, self.gain.shape, self.gain, self.bias, EPS)


class NormBackward:
    """Backward pass of `NormForward`."""

    def __init__(self, gain: Tensor, bias: Tensor, saved: Sequence[Tensor]) -> None:
        self.inputs, self.mean, self.rstd = saved
        self.gain, self.bias = gain.to(self.inputs.dtype), bias.to(self.inputs.dtype)

    @classmethod
    def of(cls, gain: Tensor | None, bias: Tensor | None, saved: Any) -> NormBackward | None:
        """Return the backward pass with gain and bias [W], or None without them."""
        return None if gain is None or bias is None else cls(gain, bias, saved)

    def step(self, rows: slice, d_y: Tensor) -> Tensor:
        """Return the gradient of x [n, W] of one step."""
        return self._backward(rows, d_y, [True, False, False])[0]

    def parameters(self, d_y: Tensor) -> tuple[Tensor, Tensor]:
        """Return the gradients of γ and β [W], given those of y of all steps [N, W]."""
        _, d_gain, d_bias = self._backward(slice(None), d_y, [False, True, True])
        return d_gain, d_bias

    def _backward(self, rows: slice, d_y: Tensor, needed: list[bool]) -> tuple[Tensor, Tensor, Tensor]:
        """Return the gradients of x [n, W], γ and β [W], as far as they are needed."""
        return torch.ops.aten.native_layer_norm_backward(  # type: ignore[no-any-return]
            d_y,
            self.inputs[rows],
            list(self.gain.shape),
            self.mean[rows],
            self.rstd[rows],
            self.gain,
            self.bias,
            needed,
        )
