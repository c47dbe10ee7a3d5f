"""Position encodings of networks that process all positions at once.

B, S, T, H as in `attnlab.types` · N heads · d width of a head
"""

import math
from typing import Literal

import torch
from torch import Tensor, nn

Kind = Literal["none", "learned", "sinusoidal", "rotary", "alibi"]


class Positions(nn.Module):
    """Base class, which encodes no positions: a network without recurrence then sees a set of tokens.

    A kind of positions overrides one of the three methods. The first position has the number 0.
    """

    def add(self, x: Tensor, first: int = 0) -> Tensor:
        """Add the encodings of all positions from `first` on to vectors [..., T, H]."""
        return x

    def rotate(self, x: Tensor, first: int = 0) -> Tensor:
        """Rotate queries or keys [..., T, d] by the angles of all positions from `first` on."""
        return x

    def bias(self, queries: int, keys: int, like: Tensor) -> Tensor | None:
        """Return the bias of the scores of the last T queries and S keys, [N, T, S], or None.

        `like` is a tensor whose device and type the bias gets.
        """
        return None


class Learned(Positions):
    """Learned positions: a vector per position (Gehring et al. 2017, arXiv 1705.03122, section 3.1).

    Positions beyond those in training keep their random vectors.
    """

    def __init__(self, *, size: int, max_positions: int) -> None:
        super().__init__()
        self.table = nn.Embedding(max_positions, size)
        nn.init.normal_(self.table.weight, std=0.1)

    def add(self, x: Tensor, first: int = 0) -> Tensor:
        last = first + x.size(-2)
        if last > len(self.table.weight):
            raise ValueError(
                f"positions=learned has {len(self.table.weight)} positions, but a sentence or an output "
                f"has {last} tokens: set max_positions higher, or use another kind of positions"
            )
        return x + self.table.weight[first:last]


class Sinusoidal(Positions):
    """Sinusoidal positions (Vaswani et al. 2017, arXiv 1706.03762, section 3.5).

    ::

        p_{i,2k} = sin(i / 10000^{2k/H}),  p_{i,2k+1} = cos(i / 10000^{2k/H})
    """

    def add(self, x: Tensor, first: int = 0) -> Tensor:
        angles = _angles(first, x.size(-2), x.size(-1), x.device)  # [T, ⌈H / 2⌉]
        waves = torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)  # [T, H] or [T, H + 1]
        return x + waves[:, : x.size(-1)].to(x.dtype)


class Rotary(Positions):
    """Rotary positions: RoPE (Su et al. 2021, arXiv 2104.09864, section 3.2).

    ::

        (x_{2k}, x_{2k+1}) is rotated by the angle i / 10000^{2k/d}

    The product of a query at position i and a key at position j depends on i - j alone.
    """

    def __init__(self, *, width: int) -> None:
        super().__init__()
        if width % 2:
            raise ValueError(f"positions=rotary needs heads of even width, not {width}: change size or heads")

    def rotate(self, x: Tensor, first: int = 0) -> Tensor:
        angles = _angles(first, x.size(-2), x.size(-1), x.device)  # [T, d / 2]
        sin, cos = angles.sin().to(x.dtype), angles.cos().to(x.dtype)  # [T, d / 2]
        even, odd = x[..., 0::2], x[..., 1::2]  # [..., T, d / 2]
        return torch.stack([even * cos - odd * sin, odd * cos + even * sin], dim=-1).flatten(-2)


class ALiBi(Positions):
    """Attention with linear biases (Press, Smith & Lewis 2022, arXiv 2108.12409, section 3).

    ::

        e_ij of head n gets - |i - j| / 2^{8n/N}      n = 1 … N

    The paper's decoder sees j ≤ i only; an encoder uses the same bias in both directions.
    """

    def __init__(self, *, heads: int) -> None:
        super().__init__()
        self.heads = heads

    def bias(self, queries: int, keys: int, like: Tensor) -> Tensor:
        positions = torch.arange(keys, device=like.device)  # [S]
        distances = (positions[keys - queries :, None] - positions).abs()  # [T, S]
        head = torch.arange(1, self.heads + 1, device=like.device)  # [N]
        return (-distances * torch.exp2(-8 * head / self.heads)[:, None, None]).to(like.dtype)


def make_positions(kind: Kind, *, size: int, heads: int | None, max_positions: int) -> Positions:
    """Build the positions of a network of width H with N heads, None without self-attention."""
    if kind == "learned":
        return Learned(size=size, max_positions=max_positions)
    if kind in ("none", "sinusoidal"):
        return Sinusoidal() if kind == "sinusoidal" else Positions()
    if heads is None:
        raise ValueError(f"positions={kind} needs self-attention: choose none, learned or sinusoidal")
    return Rotary(width=size // heads) if kind == "rotary" else ALiBi(heads=heads)


def max_positions(network: nn.Module, part: str) -> float:
    """Return the number of learned positions of the "encoder" or the "decoder"; infinity if it has none."""
    modules = (module for name, module in network.named_modules() if part in name.split("."))
    return min(
        (len(module.table.weight) for module in modules if isinstance(module, Learned)), default=math.inf
    )


def _angles(first: int, count: int, size: int, device: torch.device) -> Tensor:
    """Return the angles i / 10000^{2k/size} in fp64, [T, ⌈size / 2⌉]; fp32 is inexact at high positions."""
    positions = torch.arange(first, first + count, dtype=torch.float64, device=device)  # [T]
    exponents = torch.arange(0, size, 2, dtype=torch.float64, device=device) / size  # [⌈size / 2⌉]
    return positions[:, None] * torch.exp(-math.log(10000) * exponents)
