"""Bridges: map the encoder's final states to the decoder's initial state.

A bridge is constructed for a decoder of L layers of size H with `states_per_layer` tensors each (LSTM: h and
c; GRU: h). It maps a memory to L states of tensors [B, 1, H].
"""

from typing import Literal, TypedDict, Unpack

import torch
from torch import Tensor, nn

from attnlab.nn.cells import CellState
from attnlab.types import Memory


def final_states(memory: Memory, count: int) -> list[Tensor]:
    """Return the final hidden state and, if count = 2, the cell state (or h again), each [B, L, D]."""
    if memory.hidden is None:
        raise ValueError("This encoder has no final states to start the decoder from: use bridge=zero")
    cell = memory.hidden if memory.cell is None else memory.cell  # [B, L, D]
    return [memory.hidden, cell][:count]


class Sizes(TypedDict):
    """Arguments of every bridge."""

    memory_size: int  # D
    encoder_layers: int  # L of the encoder
    size: int  # H
    layers: int  # L of the decoder
    states_per_layer: int  # 2 for LSTM, 1 for GRU


class ZeroBridge(nn.Module):
    """Zero bridge: s_0 = 0."""

    def __init__(self, **sizes: Unpack[Sizes]) -> None:
        super().__init__()
        self.sizes = sizes

    def forward(self, memory: Memory) -> tuple[CellState, ...]:
        """Return L states of zeros [B, 1, H]."""
        zeros = memory.states.new_zeros(memory.states.size(0), 1, self.sizes["size"])  # [B, 1, H]
        return ((zeros,) * self.sizes["states_per_layer"],) * self.sizes["layers"]


class CopyBridge(nn.Module):
    """Copy bridge: s_0 of layer l is the final state [forward; backward] of the encoder's layer l."""

    def __init__(self, **sizes: Unpack[Sizes]) -> None:
        super().__init__()
        if (sizes["memory_size"], sizes["encoder_layers"]) != (sizes["size"], sizes["layers"]):
            raise ValueError(
                "bridge=copy needs equal sizes: the encoder has {encoder_layers} final states of size "
                "{memory_size}, the decoder {layers} layers of size {size}; make them equal or use "
                "bridge=linear".format(**sizes)
            )
        self.states_per_layer = sizes["states_per_layer"]

    def forward(self, memory: Memory) -> tuple[CellState, ...]:
        """Return L states [B, 1, H]."""
        finals = [final.unbind(dim=1) for final in final_states(memory, self.states_per_layer)]
        return tuple(tuple(state[:, None] for state in layer) for layer in zip(*finals, strict=True))


class LinearBridge(nn.Module):
    """Linear bridge: s_0 = f(W m + b), with separate W and b for h and for c.

    m is the final state [forward; backward] of a layer of the encoder. In Bahdanau et al. 2014, section
    A.2.2, it is the backward half alone, which has just read the first word, and f = tanh.

    Args:
        activation: f.
        layers_from: "top": all decoder layers start from the same s_0, of the top encoder layer; "each":
            layer l from layer l, with its own maps.
        half: "both" directions of the final states, or "backward" alone.
    """

    def __init__(
        self,
        *,
        activation: Literal["tanh", "identity"] = "tanh",
        layers_from: Literal["top", "each"] = "top",
        half: Literal["both", "backward"] = "both",
        **sizes: Unpack[Sizes],
    ) -> None:
        super().__init__()
        encoder_layers, layers = sizes["encoder_layers"], sizes["layers"]
        if encoder_layers == 0:
            raise ValueError("This encoder has no final states to start the decoder from: use bridge=zero")
        if layers_from == "each" and encoder_layers != layers:
            raise ValueError(
                f"bridge.layers_from=each needs as many layers in the encoder ({encoder_layers}) as in the "
                f"decoder ({layers}); make them equal or use bridge.layers_from=top"
            )
        self.layers = layers
        self.reads_half = half == "backward"
        self.skip = sizes["memory_size"] // 2 if self.reads_half else 0
        self.activation = torch.tanh if activation == "tanh" else nn.Identity()
        self.top_only = layers_from == "top"
        self.maps = nn.ModuleList(
            nn.ModuleList(
                nn.Linear(sizes["memory_size"] - self.skip, sizes["size"])
                for _ in range(sizes["states_per_layer"])
            )
            for _ in range(1 if self.top_only else layers)
        )

    def forward(self, memory: Memory) -> tuple[CellState, ...]:
        """Return L states [B, 1, H]."""
        finals = final_states(memory, len(self.maps[0]))  # type: ignore[arg-type]
        first = finals[0].size(1) - len(self.maps)  # the first encoder layer that is used
        states = tuple(
            tuple(
                self.activation(linear(final[:, first + layer, self.skip :]))[:, None]  # [B, 1, H]
                for linear, final in zip(maps, finals, strict=True)  # type: ignore[call-overload]
            )
            for layer, maps in enumerate(self.maps)
        )
        return states * self.layers if self.top_only else states
