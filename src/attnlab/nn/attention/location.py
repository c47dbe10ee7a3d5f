"""Location-based attention: scores from the query alone, or from the weights of the previous step."""

import math
from typing import Unpack

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnlab.nn.attention.additive import Additive
from attnlab.nn.attention.base import Attention, Sizes
from attnlab.settings import Odd, Size
from attnlab.types import Memory


class Location(Attention):
    """Location-based attention (Luong et al., 2015).

    ::

        e = W s        one score per position

    Luong, Pham & Manning 2015 (arXiv 1508.04025), section 3.1, equation 8. The scores ignore the memory
    states.

    Args:
        max_length: number of rows of W, and of positions that can be scored; later ones get weight 0.
    """

    def __init__(self, *, max_length: Size, **sizes: Unpack[Sizes]) -> None:
        super().__init__(**sizes)
        self.max_length = max_length
        self.positions = nn.Linear(self.query_size, max_length, bias=False)

    def score(self, query: Tensor, keys: Tensor, state: None) -> Tensor:
        """Return W s, [B, Q, S]; 0 from position `max_length` on, which `weigh` masks."""
        return F.pad(self.positions(query), (0, keys.size(1) - self.max_length))  # negative padding truncates

    def weigh(self, query: Tensor, memory: Memory, keys: Tensor, state: None) -> tuple[Tensor, None]:
        scored = torch.arange(keys.size(1), device=keys.device) < self.max_length  # [S]
        return self.normaliser(self.score(query, keys, state), (memory.mask & scored)[:, None]), None


def scored_positions(network: nn.Module) -> float:
    """Return the number of source positions that `Location` can score; infinity without this attention."""
    parts = (part for part in network.modules() if isinstance(part, Location))
    return min((part.max_length for part in parts), default=math.inf)


class AdditiveWithHistory(Additive):
    """Additive attention with features of the weights at earlier steps.

    ::

        e_j = vᵀ tanh(W s + U h_j + R f_j)

    The features f_j are a function of the state [B, Q, S], which is initially 0. Subclasses implement
    `features` and `advance`.

    Args:
        features: number of features per position.
    """

    stateful = True

    def __init__(self, *, size: int, features: int, feature_bias: bool, **sizes: Unpack[Sizes]) -> None:
        super().__init__(size=size, **sizes)
        self.past = nn.Linear(features, size, bias=feature_bias)

    def begin(self, memory: Memory) -> Tensor:
        return torch.zeros_like(memory.states[..., 0])[:, None]  # [B, 1, S]

    def features(self, state: Tensor) -> Tensor:
        """Return f_j, [B, Q, S, features], in the dtype of the parameters."""
        raise NotImplementedError

    def score(self, query: Tensor, keys: Tensor, state: Tensor) -> Tensor:
        keys = keys[:, None] + self.past(self.features(state))  # [B, Q, S, A]
        return self.energy.score(self.query(query), keys)


class LocationSensitive(AdditiveWithHistory):
    """Location-sensitive attention (Chorowski et al., 2015).

    ::

        e_ij = vᵀ tanh(W s + V h_j + U f_ij + b)        f_i = F * α_{i-1}

    Chorowski et al. 2015 (arXiv 1506.07503), section 2.2, equations 8 and 9. The convolution F of the
    previous weights provides the position relative to the previous focus, which distinguishes memory states
    with the same content. State: the previous weights, 0 at padding.

    Args:
        channels: C, the number of filters (10 in the paper).
        kernel: K, the number of positions that a filter spans (201 in the paper, for speech); odd, so that
            filters are centred.
    """

    def __init__(self, *, size: Size, channels: Size, kernel: Odd, **sizes: Unpack[Sizes]) -> None:
        super().__init__(size=size, features=channels, feature_bias=True, **sizes)
        self.convolution = nn.Conv1d(1, channels, kernel, padding=kernel // 2, bias=False)

    def features(self, state: Tensor) -> Tensor:
        rows = state.flatten(0, 1)[:, None].to(self.convolution.weight.dtype)  # [B·Q, 1, S]
        filtered = self.convolution(rows).transpose(1, 2)  # [B·Q, S, C]
        return filtered.unflatten(0, state.shape[:2])  # type: ignore[no-any-return]

    def advance(self, state: Tensor, weights: Tensor) -> Tensor:
        return weights
