"""Properties of all encoders, and all mechanisms over every one of them."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hydra.utils import get_class

from attnlab.nn.decoders import LuongDecoder
from attnlab.nn.encoders import (
    BagEncoder,
    ConvolutionalEncoder,
    Encoder,
    RecurrentEncoder,
    TransformerEncoder,
)
from networks import (
    ATTENTIONS,
    STATE,
    TARGET_WIDTH,
    assemble,
    assert_teacher_forcing_equals_steps,
    encode,
    make_attention,
    random_batch,
    randomise,
    read_options,
    same_sizes,
)

E, SIZE = 6, 4
ENCODERS: dict[str, Callable[..., Encoder]] = {
    name: get_class(option["_target_"]) for name, option in read_options("encoder").items()
}
ENCODERS["TransformerEncoder"] = partial(TransformerEncoder, heads=2)
for positions in ("none", "learned", "rotary", "alibi"):
    ENCODERS[f"TransformerEncoder with {positions} positions"] = partial(
        TransformerEncoder, heads=2, positions=positions
    )
for cell in ("lstm", "gru"):
    ENCODERS[f"RecurrentEncoder with {cell} and layer norm"] = partial(
        RecurrentEncoder, cell=cell, layers=2, layer_norm=True
    )
ENCODERS["BagEncoder with positions"] = partial(BagEncoder, positions="sinusoidal")
every_encoder = pytest.mark.parametrize("name", ENCODERS)


def make(name: str) -> Encoder:
    encoder = ENCODERS[name](input_size=E, size=SIZE)
    randomise(encoder, 0.7)
    return encoder.eval()


@every_encoder
@torch.no_grad()
def test_padding_and_other_sentences_change_nothing(name: str) -> None:
    encoder, lengths = make(name), [2, 5, 1, 3]
    embedded = torch.randn(4, 7, E)  # arbitrary values at padding
    together = encode(encoder, embedded, lengths)
    assert together.states.shape == (4, 7, encoder.memory_size)
    assert together.hidden.shape == (4, encoder.layers, encoder.memory_size)
    for row, length in enumerate(lengths):
        alone = encode(encoder, embedded[row : row + 1, :length], [length])
        torch.testing.assert_close(together.states[row, :length], alone.states[0], rtol=0, atol=1e-5)
        torch.testing.assert_close(together.hidden[row], alone.hidden[0], rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "attention"),
    [([*ENCODERS][(i + j) % len(ENCODERS)], name) for i, name in enumerate(ATTENTIONS) for j in range(2)],
)
@torch.no_grad()
def test_every_mechanism_reads_every_encoder(name: str, attention: str) -> None:
    encoder = make(name)
    size = encoder.memory_size if same_sizes(attention) else STATE
    mechanism = make_attention(attention, size, encoder.memory_size)
    decoder = LuongDecoder(input_size=TARGET_WIDTH, attention=mechanism, size=size, cell="gru")
    network = assemble(encoder, decoder, source_width=E)
    randomise(network, 0.7)
    network.eval()
    weights = assert_teacher_forcing_equals_steps(network, random_batch([3, 5], [2, 1]))
    assert not weights[0, :, 3:].any()


@every_encoder
def test_every_parameter_gets_a_gradient(name: str) -> None:
    encoder = make(name).train()
    memory = encode(encoder, torch.randn(2, 9, E), [9, 7])
    (memory.states.square().sum() + memory.hidden.square().sum()).backward()
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in encoder.parameters())


@torch.no_grad()
def test_convolutional_encoder_equals_the_equations_of_the_paper() -> None:
    encoder: Any = make("ConvolutionalEncoder")
    embedded = torch.randn(1, 6, E)
    x = encoder.input(embedded)[0] + encoder.positions.table.weight[:6]  # [S, D]
    for convolution in encoder.convolutions:
        padded = F.pad(x, (0, 0, 1, 1))
        rows = []
        for j in range(6):
            window = padded[j : j + 3].T  # [D, k]
            a, b = ((convolution.weight * window).sum(dim=(1, 2)) + convolution.bias).chunk(2)
            rows.append(a * torch.sigmoid(b))
        x = (x + torch.stack(rows)) * 0.5**0.5
    torch.testing.assert_close(encode(encoder, embedded, [6]).states[0], x, rtol=0, atol=1e-5)


@torch.no_grad()
def test_bag_known_values() -> None:
    encoder = BagEncoder(input_size=2, size=2)  # equal sizes: no map
    embedded = torch.tensor([[[1.0, 2], [3, 4], [9, 9]]])
    memory = encode(encoder, embedded, [2])
    assert memory.states.tolist() == embedded.tolist()
    assert memory.hidden.tolist() == [[[2, 3]]]


@pytest.mark.parametrize("kind", ["rotary", "alibi"])
@pytest.mark.parametrize("encoder", [BagEncoder, ConvolutionalEncoder])
def test_positions_of_self_attention_are_refused_without_it(encoder: Any, kind: str) -> None:
    with pytest.raises(ValueError, match=f"positions={kind} needs self-attention: .* learned or sinusoidal"):
        encoder(input_size=E, size=SIZE, positions=kind)


@pytest.mark.parametrize(
    "make",
    [
        partial(RecurrentEncoder, layers=2),
        *(ENCODERS[name] for name in ("MinGRUEncoder", "ConvolutionalEncoder", "TransformerEncoder")),
    ],
)
def test_dropout_is_only_in_training(make: Callable[..., Encoder]) -> None:
    encoder, embedded = make(input_size=E, size=SIZE, dropout=0.5), torch.randn(2, 4, E)
    assert not torch.equal(*(encode(encoder, embedded, [4, 3]).states for _ in range(2)))
    encoder.eval()
    assert torch.equal(*(encode(encoder, embedded, [4, 3]).states for _ in range(2)))
