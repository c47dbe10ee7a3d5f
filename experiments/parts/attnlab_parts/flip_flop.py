"""Encoder whose units are flip-flops."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnlab.nn.encoders.linear_recurrent import LinearRecurrence, LinearRecurrentEncoder
from attnlab_parts.bits import sign


class FlipFlop(LinearRecurrence):
    """A JK flip-flop in each unit: hold, set, reset or toggle a bit.

    ::

        J_t, K_t = [W [x_{t-1}; x_t] + b ≥ 0]        0 or 1; the gradient is that of ½ tanh (straight-through)
        h_t = (1 - J_t - K_t) h_{t-1} + J_t - K_t    ±1, and 0 before the first set or reset

    x_0 = 0. A bit that is set or reset keeps its value over any number of positions, and one that is toggled
    counts modulo 2, since the recurrence has the factors 1, 0 and -1. Without the negative factor a linear
    recurrence with a diagonal matrix cannot compute parity (Grazzi et al. 2024, arXiv 2411.12537).
    """

    def __init__(self, *, input_size: int, size: int) -> None:
        super().__init__(input_size=input_size, size=size)
        self.input = nn.Linear(2 * input_size, 2 * size)

    def coefficients(self, x: Tensor) -> tuple[Tensor, Tensor]:
        previous = F.pad(x, (0, 0, 1, -1))  # [B, S, E]: x_{t-1}
        logits = self.input(torch.cat([previous, x], dim=-1)).float()  # [B, S, 2U]
        sets, resets = ((1 + sign(logits)) / 2).chunk(2, dim=-1)  # J and K, each [B, S, U]
        return 1 - sets - resets, sets - resets


class FlipFlopEncoder(LinearRecurrentEncoder):
    """Encoder with layers of `FlipFlop`."""

    recurrence = FlipFlop
