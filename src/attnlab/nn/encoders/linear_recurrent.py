"""Linear recurrences whose gates depend on the input alone, so that all positions are computed in parallel.

B, S, E, D as in `attnlab.types` · U units of one direction
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnlab.nn.attention.numerics import at_least_float32
from attnlab.nn.dropout import Dropout
from attnlab.nn.encoders.base import Encoder
from attnlab.nn.scan import scan
from attnlab.settings import Fraction, Size
from attnlab.types import Memory


class LinearRecurrence(nn.Module, ABC):
    """One direction of a layer; a subclass computes a_t and b_t of h_t = a_t h_{t-1} + b_t."""

    def __init__(self, *, input_size: int, size: int) -> None:
        super().__init__()

    @abstractmethod
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return a and b, each [B, S, U] in fp32 or wider, of inputs [B, S, E]."""


class MinGRU(LinearRecurrence):
    """Minimal GRU (Feng et al., 2024): a GRU whose gate and candidate do not read the state.

    ::

        z_t = σ(W_z x_t + b_z)
        h_t = (1 - z_t) h_{t-1} + z_t g(W_h x_t + b_h)      g(x) = x + ½ if x ≥ 0, else σ(x)

    Feng et al. 2024 (arXiv 2410.01201), section 3.1, with the activation g of appendix B.3. The paper's scan
    computes with logarithms, for which g must be positive; `scan` gives the same numbers.

    Args:
        input_size: E.
        size: U.
    """

    def __init__(self, *, input_size: int, size: int) -> None:
        super().__init__(input_size=input_size, size=size)
        self.input = nn.Linear(input_size, 2 * size)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        gate, candidate = at_least_float32(self.input(x)).chunk(2, dim=-1)  # each [B, S, U]
        candidate = torch.where(candidate >= 0, candidate + 0.5, torch.sigmoid(candidate))
        return torch.sigmoid(-gate), torch.sigmoid(gate) * candidate


class RGLRU(LinearRecurrence):
    """Real-gated linear recurrent unit (De et al., 2024).

    ::

        u_t = W x_t + b
        r_t, i_t = σ(W_r u_t + b_r), σ(W_i u_t + b_i)
        a_t = a^{8 r_t}                               a = σ(-λ), one per unit
        h_t = a_t h_{t-1} + √(1 - a_t²) (i_t u_t)

    De et al. 2024 (arXiv 2402.19427), section 2.4, the recurrence of Griffin and RecurrentGemma. Initially
    a⁸ is uniform in [0.9, 0.999], so that units remember some ten to a thousand positions, whereas `MinGRU`
    halves its state at each position.

    Args:
        input_size: E.
        size: U.
    """

    def __init__(self, *, input_size: int, size: int) -> None:
        super().__init__(input_size=input_size, size=size)
        self.input = nn.Linear(input_size, size)
        self.gates = nn.Linear(size, 2 * size)
        slowest = torch.rand(size) * 0.099 + 0.9  # a⁸
        self.decay = nn.Parameter(torch.log(torch.expm1(-slowest.log() / 8)))  # λ, as softplus(λ) = -log a

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        u = self.input(x)  # [B, S, U]
        recurrent, gate = torch.sigmoid(at_least_float32(self.gates(u))).chunk(2, dim=-1)  # each [B, S, U]
        log_decay = -8 * recurrent * F.softplus(at_least_float32(self.decay))  # [B, S, U]
        # The root of a number near 0 has no finite gradient
        scale = (-torch.expm1(2 * log_decay)).clamp(min=1e-12).sqrt()  # [B, S, U]
        return log_decay.exp(), scale * gate * at_least_float32(u)


class LinearRecurrentEncoder(Encoder):
    """Layers of a linear recurrence over the source, in one or both directions.

    Padding is skipped: it changes no state, and memory states at padding are zero.

    Args:
        input_size: E.
        size: U, the number of units in each direction.
        layers: L.
        bidirectional: read the source in both directions; D = 2 x size, otherwise D = size.
        dropout: dropout probability of the output of each layer below the top.
    """

    recurrence: type[LinearRecurrence]
    """Class of the layers' recurrences."""
    solve = staticmethod(scan)
    """Computes h_1 … h_S from a and b; an export replaces it by a function that can be traced."""

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
        padding = ~mask[..., None]  # [B, S, 1]
        for layer in range(self.layers):
            if layer > 0:
                states = self.dropout(states)
            outputs, final = [], []
            for direction in range(self.directions):
                decays, inputs = self.parts[layer * self.directions + direction](states)
                # At padding the state stays as it is: after the end, or 0 before the last word is read
                decays, inputs = decays.masked_fill(padding, 1), inputs.masked_fill(padding, 0)
                if direction == 0:
                    output = self.solve(decays, inputs)  # [B, S, U]
                    final.append(output[:, -1])
                else:
                    output = self.solve(decays.flip(1), inputs.flip(1)).flip(1)  # [B, S, U]
                    final.append(output[:, 0])
                outputs.append(output)
            states = torch.cat(outputs, dim=-1).masked_fill(padding, 0).to(embedded.dtype)  # [B, S, D]
            finals.append(torch.cat(final, dim=-1).to(embedded.dtype))  # [B, D]
        return Memory(states=states, mask=mask, hidden=torch.stack(finals, dim=1))


class MinGRUEncoder(LinearRecurrentEncoder):
    """Encoder with layers of `MinGRU`."""

    recurrence = MinGRU


class RGLRUEncoder(LinearRecurrentEncoder):
    """Encoder with layers of `RGLRU`."""

    recurrence = RGLRU
