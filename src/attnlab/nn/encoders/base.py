"""Abstract base class of encoders."""

from abc import ABC, abstractmethod

from torch import Tensor, nn

from attnlab.types import Memory


class Encoder(nn.Module, ABC):
    """Computes the memory of embedded source sentences.

    A subclass calls `super().__init__` with its sizes and implements `forward`; `input_size` is passed in.

    Args:
        memory_size: D
        layers: L of `Memory.hidden`, from which the bridge starts the decoder; 0 if there are no final
            states, in which case only `bridge=zero` fits.
        directions: how many directions are concatenated in D: 2 if its first half comes from a forward and
            its second half from a backward pass, otherwise 1.
        input_size: E; where E is not D, encoders without recurrence have a linear map W.
        size: D, the size of a memory state.
        dropout: dropout probability of the output of each layer below the top.
        positions: "none", "learned" or "sinusoidal", see `attnlab.nn.positions`.
        max_positions: longest source with `positions="learned"`, in tokens.
    """

    def __init__(self, *, memory_size: int, layers: int = 0, directions: int = 1) -> None:
        super().__init__()
        self.memory_size = memory_size
        self.layers = layers
        self.directions = directions

    def check_bridge(self, bridge: nn.Module) -> None:
        """Raise `ValueError` if a bridge reads a part of the final states that this encoder does not have."""
        if getattr(bridge, "reads_half", False) and self.directions == 1:
            raise ValueError(
                "bridge.half=backward needs an encoder with two directions: encoder.bidirectional=true"
            )

    @abstractmethod
    def forward(self, embedded: Tensor, lengths: Tensor, mask: Tensor) -> Memory:
        """Encode a batch of sources.

        Neither padding nor the other sentences of the batch may change the states of a sentence.

        Args:
            embedded: [B, S, E]; padding may hold any values.
            lengths: [B] int64, on the CPU, each at least 1.
            mask: [B, S], True at real tokens.

        Returns:
            States [B, S, D], `mask` itself, and final states [B, L, D] if the encoder has any.
        """


def mean_state(states: Tensor, mask: Tensor) -> Tensor:
    """Return the mean of the real states [B, S, D], the final state [B, 1, D] without recurrence.

    Xu et al. 2015 (arXiv 1502.03044), section 3.1.2, start a recurrent decoder from this mean.
    """
    total = (states * mask[..., None]).sum(dim=1, keepdim=True)  # [B, 1, D]
    return total / mask.sum(dim=1)[:, None, None].clamp(min=1)
