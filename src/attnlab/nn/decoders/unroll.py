"""Unroll of a decoder over whole targets whose tokens may be sampled."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from attnlab.nn.decoders.base import Decoder, DecoderOutput
from attnlab.types import Memory


class Unroll:
    """Unroll of a decoder over whole targets: `step` while tokens are sampled, then `finish`.

    Args:
        decoder: the decoder, which contains the attention.
        state: decoder state before the first token.
        memory: encoder outputs.
        keys: projected memory.
    """

    def __init__(self, decoder: Decoder, state: Any, memory: Memory, keys: Tensor) -> None:
        self.decoder = decoder
        self.first = state
        self.current = state
        self.memory = memory
        self.keys = keys

    @torch.no_grad()
    def step(self, embedded: Tensor) -> DecoderOutput:
        """Process one token [B, 1, E] without gradients; return its output [B, 1, …]."""
        inputs = self.decoder.project(embedded)  # [B, 1, …]
        output, self.current = self.decoder.step(inputs, self.current, self.memory, self.keys)
        return output

    def finish(self, embedded: Tensor) -> DecoderOutput:
        """Process the whole target [B, T, E], whose first tokens are those given to `step`."""
        output: DecoderOutput = self.decoder(embedded, self.first, self.memory, self.keys)
        return output
