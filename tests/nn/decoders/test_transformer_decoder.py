from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from attnlab.decoding.beam import beam
from attnlab.nn.attention import MultiHead, ScaledDot
from attnlab.nn.attention.interventions import intervene
from attnlab.nn.bridge import ZeroBridge
from attnlab.nn.decoders import TransformerDecoder
from attnlab.nn.encoders import TransformerEncoder
from attnlab.nn.seq2seq import Seq2Seq, select
from attnlab.types import SOS
from networks import (
    ATTENTIONS,
    SOURCE_WIDTH,
    TARGET_WIDTH,
    assemble,
    forced_logits,
    make_attention,
    make_batch,
    make_network,
    random_batch,
    random_rows,
    randomise,
    stepwise,
)

D, H, HEADS = 6, 8, 2
POSITIONS = ("none", "learned", "sinusoidal", "rotary", "alibi")


def make(
    attention: str = "MultiHead", *, positions: Any = "sinusoidal", size: int = D, **settings: Any
) -> Seq2Seq:
    """Build a Transformer with random weights, whose decoder has the size of the memory if `size` is D."""
    torch.manual_seed(0)
    encoder = TransformerEncoder(input_size=SOURCE_WIDTH, size=D, heads=HEADS, positions=positions)
    decoder = TransformerDecoder(
        input_size=TARGET_WIDTH,
        attention=make_attention(attention, size, D),
        size=size,
        heads=HEADS,
        positions=positions,
        **settings,
    )
    network = assemble(encoder, decoder)
    randomise(network, 0.7)
    return network.eval()


@pytest.mark.parametrize("attention", ATTENTIONS)
@torch.no_grad()
def test_teacher_forcing_equals_steps_for_every_mechanism(attention: str) -> None:
    network = make(attention)
    batch = random_batch([3, 7, 1], [4, 2, 5])
    decoded = network(batch)
    logits, weights = stepwise(network, batch)
    torch.testing.assert_close(network.readout(decoded.features), logits, rtol=0, atol=1e-5)
    torch.testing.assert_close(decoded.weights, weights, rtol=0, atol=1e-5)


@pytest.mark.parametrize("positions", POSITIONS)
@torch.no_grad()
def test_teacher_forcing_equals_steps_for_all_positions(positions: str) -> None:
    network = make(positions=positions, size=H, weights_layer=2)
    batch = random_batch([3, 7, 1], [4, 2, 5])
    decoded = network(batch)
    logits, weights = stepwise(network, batch)
    torch.testing.assert_close(network.readout(decoded.features), logits, rtol=0, atol=1e-5)
    torch.testing.assert_close(decoded.weights, weights, rtol=0, atol=1e-5)
