"""Linear recurrences whose gates depend on the input alone, so that all positions are computed in parallel.

B, S, E, D as in `attnlab.types` · U units of one direction
"""

from abc import ABC, abstractmethod
from typing import Unpack

import torch
from torch import Tensor, nn

from attnlab.nn.attention.numerics import at_least_float32
from attnlab.nn.encoders.layered import LayeredEncoder, LayerSettings
from attnlab.nn.scan import scan


class LinearRecurrence(nn.Module, ABC):
    """One direction of a layer: h_t = a_t h_{t-1} + b_t."""

    def __init__(self, *, input_size: int, size: int) -> None:
        super().__init__()

    @abstractmethod
    def coefficients(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return a and b, each [B, S, U] in fp32 or wider, of inputs [B, S, E]."""

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Return h [B, S, U] of inputs [B, S, E]; at padding (mask [B, S] False) the state stays as it is."""
        padding = ~mask[..., None]  # [B, S, 1]
        decays, inputs = self.coefficients(x.masked_fill(padding, 0))
        return scan(decays.masked_fill(padding, 1), inputs.masked_fill(padding, 0)).to(x.dtype)


class MinGRU(LinearRecurrence):
    """Minimal GRU (Feng et al., 2024): a GRU whose gate and candidate do not read the state.

    ::

        z_t = σ(W_z x_t + b_z)
        h_t = (1 - z_t) h_{t-1} + z_t g(W_h x_t + b_h)      g(x) = x + ½ if x ≥ 0, else σ(x)

    Feng et al. 2024 (arXiv 2410.01201), section 3.1, with the activation g of appendix B.3. The paper's scan
    computes with logarithms, for which g must be positive; `scan` gives the same numbers.
    """

    def __init__(self, *, input_size: int, size: int) -> None:
        super().__init__(input_size=input_size, size=size)
        self.input = nn.Linear(input_size, 2 * size)

    def coefficients(self, x: Tensor) -> tuple[Tensor, Tensor]:
        gate, candidate = at_least_float32(self.input(x)).chunk(2, dim=-1)  # each [B, S, U]
        candidate = torch.where(candidate >= 0, candidate + 0.5, torch.sigmoid(candidate))
        return torch.sigmoid(-gate), torch.sigmoid(gate) * candidate


class LinearRecurrentEncoder(LayeredEncoder):
    """Layers of a linear recurrence, in one or both directions."""

    recurrence: type[LinearRecurrence]  # Class of the layers' recurrences

    def __init__(self, **settings: Unpack[LayerSettings]) -> None:
        size = settings["size"]
        super().__init__(lambda width: self.recurrence(input_size=width, size=size), **settings)


class MinGRUEncoder(LinearRecurrentEncoder):
    """Encoder with layers of `MinGRU`."""

    recurrence = MinGRU
