"""One attention mechanism in each layer of a decoder."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from attnlab.nn.attention.base import Attention
from attnlab.types import Memory


class PerLayer(Attention):
    """L mechanisms of one kind, one for each layer of a decoder.

    The decoder calls `mechanisms[l]` with the query of layer l, `keys[:, l]` and `state[l]`; it does not call
    this module.
    """

    def __init__(self, layers: Iterable[Attention]) -> None:
        modules = list(layers)
        first = modules[0]
        super().__init__(
            query_size=first.query_size, memory_size=first.memory_size, normaliser=first.normaliser
        )
        self.layers = nn.ModuleList(modules)

    @property
    def mechanisms(self) -> list[Attention]:
        """The mechanism of each layer, first layer first."""
        return list(self.layers)  # type: ignore[arg-type]

    @property
    def stateful(self) -> bool:  # type: ignore[override]
        """True if any layer has state."""
        return any(layer.stateful for layer in self.mechanisms)

    def project(self, memory: Memory) -> Tensor:
        return torch.stack([layer.project(memory) for layer in self.mechanisms], dim=1)

    def begin(self, memory: Memory) -> tuple[Any, ...]:
        return tuple(layer.begin(memory) for layer in self.mechanisms)
