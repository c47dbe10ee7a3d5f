"""Linear recurrences whose gates depend on the input alone, so that all positions are computed in parallel.

B, S, E, D as in `attnlab.types` · U units of one direction
"""

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from attnlab.nn.attention.numerics import at_least_float32
from attnlab.nn.dropout import Dropout
from attnlab.nn.encoders.base import Encoder
from attnlab.nn.scan import scan
from attnlab.settings import Fraction, Size
from attnlab.types import Memory


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


class LinearRecurrentEncoder(Encoder):
    """Layers of a linear recurrence, each reading the outputs of both directions of the layer below.

    Padding is skipped: it changes no state, and memory states at padding are zero.

    Args:
        size: U, the number of units in each direction.
        layers: L, the number of layers.
        bidirectional: read the source in both directions; D = 2 x size, otherwise D = size.
    """

    recurrence: type[LinearRecurrence]
    """Class of the layers' recurrences."""

    def __init__(
        self,
        *,
        input_size: int,
        size: Size,
        layers: Size = 2,
        bidirectional: bool = True,
        dropout: Fraction = 0.0,
    ) -> None:
        directions = 2 if bidirectional else 1
        super().__init__(memory_size=size * directions, layers=layers, directions=directions)
        widths = [input_size, *[self.memory_size] * (layers - 1)]
        self.parts = nn.ModuleList(
            self.recurrence(input_size=width, size=size) for width in widths for _ in range(directions)
        )
        self.dropout = Dropout(dropout)

    def forward(self, embedded: Tensor, lengths: Tensor, mask: Tensor) -> Memory:
        states, finals = embedded, []
        last = (lengths - 1).to(mask.device)[:, None, None]  # [B, 1, 1]
        for layer in range(self.layers):
            states = self.dropout(states) if layer > 0 else states
            first, *others = self.parts[layer * self.directions : (layer + 1) * self.directions]
            outputs = [first(states, mask), *(part(states.flip(1), mask.flip(1)).flip(1) for part in others)]
            end = outputs[0].gather(1, last.expand(-1, 1, outputs[0].size(-1)))[:, 0]  # [B, U]
            finals.append(torch.cat([end, *(each[:, 0] for each in outputs[1:])], dim=-1))  # [B, D]
            states = torch.cat(outputs, dim=-1).masked_fill(~mask[..., None], 0)  # [B, S, D]
        return Memory(states=states, mask=mask, hidden=torch.stack(finals, dim=1))


class MinGRUEncoder(LinearRecurrentEncoder):
    """Encoder with layers of `MinGRU`."""

    recurrence = MinGRU
