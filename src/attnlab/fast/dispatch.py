"""The one place where fused implementations are chosen, by the exact types of the parts.

A subclass of a supported type may compute something else, so that it takes the plain path. Layers choose
their operators by `attnlab.fast.kernels`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from attnlab.fast.kernels import active_kernels
from attnlab.fast.scores import fused_scores
from attnlab.fast.unroll import FusedUnroll
from attnlab.nn.decoders.bahdanau import BahdanauDecoder
from attnlab.nn.decoders.base import Decoder
from attnlab.nn.decoders.luong import LuongDecoder
from attnlab.nn.decoders.unroll import Unroll
from attnlab.nn.encoders.base import Encoder
from attnlab.nn.encoders.recurrent import RecurrentEncoder
from attnlab.types import Memory

MIN_SENTENCES = 32
"""Fewer sentences are encoded without gradients by torch's network, which took 0.3 to 1.1 of the time."""


def encode(encoder: Encoder, embedded: Tensor, lengths: Tensor, mask: Tensor) -> Memory:
    """Run an encoder, on a CPU with fused layers if it is a `RecurrentEncoder`; arguments as of `Encoder`.

    The fused layers are faster mainly in their backward pass.
    """
    fused = active_kernels().fused and embedded.device.type == "cpu"  # torch's kernels are faster on a GPU
    pays = torch.is_grad_enabled() or len(embedded) >= MIN_SENTENCES
    if fused and pays and type(encoder) is RecurrentEncoder:
        return encoder.run_layers(embedded, lengths, mask)
    memory: Memory = encoder(embedded, lengths, mask)
    return memory


def unroll(
    decoder: Decoder, state: Any, memory: Memory, keys: Tensor, labels: Tensor
) -> Unroll | FusedUnroll:
    """Return the unroll of a decoder over targets: the fused loop if it supports the decoder's parts.

    Args:
        decoder: the decoder, which contains the attention.
        state: decoder state before the first token.
        memory: encoder outputs.
        keys: projected memory.
        labels: [B, T] int64, PAD where there is nothing to predict.
    """
    kernels = active_kernels()
    feeds = type(decoder) is LuongDecoder and decoder.input_feeding
    if not kernels.fused or not (feeds or type(decoder) is BahdanauDecoder):
        return Unroll(decoder, state, memory, keys)
    scores = fused_scores(decoder.attention)
    if scores is None:
        return Unroll(decoder, state, memory, keys)
    combine = decoder.combine.weight if isinstance(decoder, LuongDecoder) else None
    return FusedUnroll(decoder.cells, scores, state, memory, keys, labels, combine)  # type: ignore[arg-type]
