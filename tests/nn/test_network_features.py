"""Options of conf/features: features of a source apart from its text."""

from collections.abc import Callable

import pytest
import torch

from attnlab.nn.decoders import LuongDecoder
from attnlab.nn.encoders import (
    BagEncoder,
    ConvolutionalEncoder,
    Encoder,
    MinGRUEncoder,
    RecurrentEncoder,
    TransformerEncoder,
)
from attnlab.nn.features import Concatenated, Features, LinearFeatures
from attnlab.nn.seq2seq import Seq2Seq
from networks import (
    SOURCE_WIDTH,
    SOURCE_WORDS,
    UNITS,
    assemble,
    assert_sentences_are_independent,
    forced_logits,
    make_attention,
    make_batch,
    randomise,
)

FIRST_FEATURE = 17
"""Source tokens from here on are features."""
OPTIONS = (Concatenated, LinearFeatures)
ENCODERS: dict[str, Callable[[], Encoder]] = {
    "recurrent": lambda: RecurrentEncoder(input_size=SOURCE_WIDTH, size=UNITS),
    "mingru": lambda: MinGRUEncoder(input_size=SOURCE_WIDTH, size=UNITS),
    "convolutional": lambda: ConvolutionalEncoder(input_size=SOURCE_WIDTH, size=2 * UNITS),
    "bag": lambda: BagEncoder(input_size=SOURCE_WIDTH, size=2 * UNITS, positions="sinusoidal"),
    "transformer": lambda: TransformerEncoder(input_size=SOURCE_WIDTH, size=2 * UNITS, layers=1, heads=1),
}
# Texts of 3, 1 and 2 tokens with 2, 3 and 0 features
SOURCES = [[5, 6, 7, 17, 19], [8, 18, 17, 21], [9, 10]]
TARGETS = [[4, 9], [7], [3, 6, 8]]


def make(option: type[Features], encoder: Callable[[], Encoder] = ENCODERS["recurrent"]) -> Seq2Seq:
    torch.manual_seed(0)
    built = encoder()
    attention = make_attention("Additive", 7, built.memory_size)
    network = assemble(built, LuongDecoder(input_size=5, attention=attention, size=7))
    network.features = option(
        is_feature=torch.arange(SOURCE_WORDS) >= FIRST_FEATURE,
        input_size=SOURCE_WIDTH,
        memory_size=built.memory_size,
    )
    randomise(network, 0.7)
    return network.eval()


@pytest.mark.parametrize("encoder", ENCODERS)
@pytest.mark.parametrize("option", OPTIONS)
@torch.no_grad()
def test_sources_of_a_batch_do_not_affect_each_other(option: type[Features], encoder: str) -> None:
    assert_sentences_are_independent(make(option, ENCODERS[encoder]), SOURCES, TARGETS)


@pytest.mark.parametrize("option", OPTIONS)
@torch.no_grad()
def test_every_feature_changes_the_output(option: type[Features]) -> None:
    network = make(option)
    source, target = [[5, 6, 7, 17, 19]], [[4, 9]]
    before = forced_logits(network, make_batch(source, target))
    for changed in ([5, 6, 7, 18, 19], [5, 6, 7, 17, 20], [5, 6, 7, 17], [5, 6, 7]):
        after = forced_logits(network, make_batch([changed], target))
        assert (after - before).abs().max() > 1e-3


@torch.no_grad()
def test_linear_features_are_added_to_the_states_of_the_text() -> None:
    network = make(LinearFeatures)
    encoded, _ = network.encode(make_batch(SOURCES, TARGETS))
    plain = network.encoder(
        network.source_embedding(torch.tensor([[5, 6, 7]])), torch.tensor([3]), torch.ones(1, 3) == 1
    )
    vectors = network.source_embedding(torch.tensor([17, 19]))  # [2, E]
    shift = (vectors[0] + vectors[1]) @ network.features.map.weight.T  # [D]
    torch.testing.assert_close(encoded.memory.states[0, :3], plain.states[0] + shift)
    torch.testing.assert_close(encoded.memory.hidden[0], plain.hidden[0] + shift)
    assert encoded.memory.mask.tolist() == [
        [True] * 3 + [False] * 2,
        [True] + [False] * 4,
        [True] * 2 + [False] * 3,
    ]
    assert network(make_batch(SOURCES, TARGETS)).weights[0, :, 3:].eq(0).all()


def test_linear_features_are_trained() -> None:
    network = make(LinearFeatures)
    network.train()
    forced_logits(network, make_batch(SOURCES, TARGETS)).square().sum().backward()
    assert all(parameter.grad.any() for parameter in network.features.parameters())
