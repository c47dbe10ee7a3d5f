"""DeltaNet: linear attention whose state is corrected by the delta rule.

B, S, E, D as in `attnlab.types` · U units of one direction · N heads · d = U / N
"""

from typing import Unpack

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnlab.nn.attention.numerics import at_least_float32
from attnlab.nn.encoders.layered import LayeredEncoder, LayerSettings
from attnlab.settings import Size


class DeltaRule(nn.Module):
    """One direction of a layer of DeltaNet (Yang et al., 2024).

    ::

        q_t, k_t = SiLU(W_q x_t), SiLU(W_k x_t), divided by their norms        v_t = SiLU(W_v x_t)
        β_t, α_t = σ(w_β x_t), exp(-A softplus(w_α x_t + b))                    α_t = 1 without decay
        M_t = α_t M_{t-1} (I - β_t k_t k_tᵀ) + β_t v_t k_tᵀ                    per head, d x d, M_0 = 0
        h_t = R x_t + W_o RMSNorm(M_t q_t)

    M_{t-1} k_t is the value of the key k_t in the memory M; the rule replaces a share β of it by v_t. Yang et
    al. 2024 (arXiv 2406.06484); with the decay, the gated delta rule of Yang, Kautz & Hatamizadeh 2024 (arXiv
    2412.06464). The papers compute chunks of positions in parallel, and have short convolutions before q, k
    and v and further parts of a Transformer's layer; here the positions are a loop, and R is a linear map.

    Args:
        decay: learn the decay α.
    """

    def __init__(self, *, input_size: int, size: int, heads: int, decay: bool) -> None:
        super().__init__()
        if size % heads != 0:
            raise ValueError(f"encoder.heads={heads} must divide encoder.size={size}")
        self.heads = heads
        self.input = nn.Linear(input_size, 3 * size, bias=False)
        self.rate = nn.Linear(input_size, heads)
        self.decay = nn.Linear(input_size, heads) if decay else None
        if decay:
            self.speed = nn.Parameter(torch.zeros(heads))  # log A
        self.norm = nn.RMSNorm(size // heads)
        self.output = nn.Linear(size, size, bias=False)
        self.residual = nn.Linear(input_size, size, bias=False)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Return h [B, S, U] of inputs [B, S, E]; padding (mask [B, S] False) changes no state."""
        mixed = at_least_float32(F.silu(self.input(x)))  # [B, S, 3 U]
        q, k, v = mixed.view(*x.shape[:2], 3, self.heads, -1).unbind(2)  # each [B, S, N, d]
        q, k = F.normalize(q, dim=-1), F.normalize(k, dim=-1)
        rates = torch.sigmoid(at_least_float32(self.rate(x))) * mask[..., None]  # [B, S, N]
        decays = torch.ones_like(rates)  # [B, S, N]
        if self.decay is not None:
            speed = self.speed.exp() * F.softplus(at_least_float32(self.decay(x)))  # [B, S, N]
            decays = (-speed).exp().where(mask[..., None], decays)
        memory = q.new_zeros(len(x), self.heads, q.size(-1), q.size(-1))  # [B, N, d, d]
        read = []
        for t in range(x.size(1)):
            memory = memory * decays[:, t, :, None, None]
            error = v[:, t] - (memory @ k[:, t, :, :, None])[..., 0]  # [B, N, d]
            memory = memory + (rates[:, t, :, None] * error)[..., None] * k[:, t, :, None]
            read.append((memory @ q[:, t, :, :, None])[..., 0])  # [B, N, d]
        outputs = self.norm(torch.stack(read, dim=1)).flatten(-2).to(x.dtype)  # [B, S, U]
        return self.residual(x) + self.output(outputs)  # type: ignore[no-any-return]


class DeltaNetEncoder(LayeredEncoder):
    """Layers of `DeltaRule`, in one or both directions.

    Args:
        heads: N, a divisor of U.
        decay: gated DeltaNet: learn the decay of the memory.
    """

    def __init__(self, *, heads: Size = 4, decay: bool = True, **settings: Unpack[LayerSettings]) -> None:
        sizes = {"size": settings["size"], "heads": heads}
        super().__init__(lambda width: DeltaRule(input_size=width, decay=decay, **sizes), **settings)
