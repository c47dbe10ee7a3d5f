from typing import Any

import pytest
import torch
from torch import nn

from attnlab.nn.encoders import TransformerEncoder
from networks import as_in_torch, encode, randomise

E, D, HEADS, LENGTHS = 3, 8, 2, [5, 2, 1]
KINDS = ("none", "learned", "sinusoidal", "rotary", "alibi")


def make(positions: Any = "sinusoidal", **settings: Any) -> TransformerEncoder:
    encoder = TransformerEncoder(input_size=E, size=D, heads=HEADS, positions=positions, **settings)
    randomise(encoder, 0.7)
    return encoder.eval()


@torch.no_grad()
def test_equals_torch_encoder_with_the_same_weights() -> None:
    ours = make("none")
    layer = nn.TransformerEncoderLayer(D, HEADS, 4 * D, dropout=0.0, norm_first=True, batch_first=True)
    reference = nn.TransformerEncoder(layer, 2, norm=nn.LayerNorm(D), enable_nested_tensor=False).eval()
    names = {
        "self_attn.in_proj_": "attention.input.",
        "self_attn.out_proj.": "attention.output.",
        "linear1.": "feed_forward.0.",
        "linear2.": "feed_forward.2.",
        "norm1.": "attention_norm.",
        "norm2.": "feed_forward_norm.",
    }
    reference.norm.load_state_dict(ours.norm.state_dict())
    for theirs, block in zip(reference.layers, ours.blocks, strict=True):
        theirs.load_state_dict(as_in_torch(block.state_dict(), names))
    embedded = torch.randn(3, 5, E)
    memory = encode(ours, embedded, LENGTHS)
    expected = reference(ours.input(embedded), src_key_padding_mask=~memory.mask)
    torch.testing.assert_close(memory.states[memory.mask], expected[memory.mask], rtol=0, atol=1e-5)
    for row, length in enumerate(LENGTHS):
        mean = expected[row, :length].mean(dim=0)
        torch.testing.assert_close(memory.hidden[row, 0], mean, rtol=0, atol=1e-5)


@pytest.mark.parametrize("positions", KINDS)
@torch.no_grad()
def test_order_of_tokens_matters_exactly_with_positions(positions: str) -> None:
    encoder = make(positions)
    embedded = torch.randn(1, 5, E)
    states = encode(encoder, embedded, [5]).states
    reversed_states = encode(encoder, embedded.flip(1), [5]).states.flip(1)
    assert torch.allclose(states, reversed_states, atol=1e-5) == (positions in ("none", "alibi"))  # |i - j|


def test_settings_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="heads=3 must divide size=8"):
        TransformerEncoder(input_size=E, size=8, heads=3)
    with pytest.raises(ValueError, match="heads of even width, not 3"):
        TransformerEncoder(input_size=E, size=6, heads=2, positions="rotary")
