"""Linear recurrences whose gates depend on the input alone, so that all positions are computed in parallel.

B, S, E, D as in `attnlab.types` · U units of one direction
"""

from abc import ABC, abstractmethod
from typing import Unpack

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnlab.nn.attention.numerics import at_least_float32
from attnlab.nn.encoders.layered import LayeredEncoder, LayerSettings
from attnlab.nn.scan import scan


class LinearRecurrence(nn.Module, ABC):
    """One direction of a layer: h_t = a_t h_{t-1} + b_t.

    Args:
        input_size: E
        size: U
    """

    solve = staticmethod(scan)
    """Computes h_1 … h_S from a and b; an export replaces it by a function that can be traced."""

    def __init__(self, *, input_size: int, size: int) -> None:
        super().__init__()

    @abstractmethod
    def coefficients(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return a and b, each [B, S, U] in fp32 or wider, of inputs [B, S, E]."""

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Return h [B, S, U] of inputs [B, S, E]; at padding (mask [B, S] False) the state stays as it is."""
        padding = ~mask[..., None]  # [B, S, 1]
        decays, inputs = self.coefficients(x.masked_fill(padding, 0))
        return self.solve(decays.masked_fill(padding, 1), inputs.masked_fill(padding, 0)).to(x.dtype)


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
    """

    def __init__(self, *, input_size: int, size: int) -> None:
        super().__init__(input_size=input_size, size=size)
        self.input = nn.Linear(input_size, size)
        self.gates = nn.Linear(size, 2 * size)
        slowest = torch.rand(size) * 0.099 + 0.9  # a⁸
        self.decay = nn.Parameter(torch.log(torch.expm1(-slowest.log() / 8)))  # λ, as softplus(λ) = -log a

    def coefficients(self, x: Tensor) -> tuple[Tensor, Tensor]:
        u = self.input(x)  # [B, S, U]
        recurrent, gate = torch.sigmoid(at_least_float32(self.gates(u))).chunk(2, dim=-1)  # each [B, S, U]
        log_decay = -8 * recurrent * F.softplus(at_least_float32(self.decay))  # [B, S, U]
        # The root of a number near 0 has no finite gradient
        scale = (-torch.expm1(2 * log_decay)).clamp(min=1e-12).sqrt()  # [B, S, U]
        return log_decay.exp(), scale * gate * at_least_float32(u)


class LinearRecurrentEncoder(LayeredEncoder):
    """Layers of a linear recurrence, in one or both directions."""

    recurrence: type[LinearRecurrence]
    """Class of the layers' recurrences."""

    def __init__(self, **settings: Unpack[LayerSettings]) -> None:
        size = settings["size"]
        super().__init__(lambda width: self.recurrence(input_size=width, size=size), **settings)


class MinGRUEncoder(LinearRecurrentEncoder):
    """Encoder with layers of `MinGRU`."""

    recurrence = MinGRU


class RGLRUEncoder(LinearRecurrentEncoder):
    """Encoder with layers of `RGLRU`."""

    recurrence = RGLRU
