from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import nn

from attnlab.decoding.beam import beam
from attnlab.decoding.search import greedy
from attnlab.deploy.export import graphs
from attnlab.errors import UserError
from attnlab.nn.attention import MultiHead, ScaledDot
from attnlab.nn.bridge import LinearBridge, ZeroBridge
from attnlab.nn.decoders import TransformerDecoder
from attnlab.nn.encoders import TransformerEncoder
from attnlab.nn.seq2seq import Seq2Seq
from attnlab.types import EOS
from networks import (
    ATTENTIONS,
    SOURCE_WIDTH,
    SOURCE_WORDS,
    TARGET_WIDTH,
    TARGET_WORDS,
    as_in_torch,
    assemble,
    assert_sentences_are_independent,
    assert_teacher_forcing_equals_steps,
    forced_logits,
    make_attention,
    make_batch,
    random_batch,
    random_rows,
    randomise,
    stepwise,
)
from plain_search import plain_beam, plain_greedy, single

D, H, HEADS = 8, 12, 2
POSITIONS = ("none", "learned", "sinusoidal", "rotary", "alibi")
TORCH_NAMES = {
    "self_attn.in_proj_": "self_attention.input.",
    "self_attn.out_proj.": "self_attention.output.",
    "linear1.": "feed_forward.0.",
    "linear2.": "feed_forward.2.",
    "norm1.": "self_attention_norm.",
    "norm2.": "attention_norm.",
    "norm3.": "feed_forward_norm.",
}
"""Prefixes of the parameters of a layer in torch, and here."""


def make(
    attention: str = "MultiHead",
    *,
    positions: Any = "sinusoidal",
    size: int = D,
    bridge: Any = LinearBridge,
    vocabulary_size: int = TARGET_WORDS,
    seed: int = 0,
    **settings: Any,
) -> Seq2Seq:
    """Build a Transformer with random weights; its decoder has the size of the memory by default."""
    torch.manual_seed(seed)
    encoder = TransformerEncoder(input_size=SOURCE_WIDTH, size=D, heads=HEADS, positions=positions)
    decoder = TransformerDecoder(
        input_size=TARGET_WIDTH,
        attention=make_attention(attention, size, D),
        size=size,
        heads=HEADS,
        positions=positions,
        **settings,
    )
    network = assemble(encoder, decoder, bridge=bridge, vocabulary_size=vocabulary_size)
    randomise(network, 0.7)
    return network.eval()


@pytest.mark.parametrize(
    ("attention", "settings"),
    [
        *((name, {}) for name in ATTENTIONS),
        *(("MultiHead", {"positions": kind, "size": H, "weights_layer": 2}) for kind in POSITIONS),
    ],
)
@torch.no_grad()
def test_teacher_forcing_equals_steps(attention: str, settings: dict[str, Any]) -> None:
    network = make(attention, **settings)
    assert_teacher_forcing_equals_steps(network, random_batch([3, 7, 1, 5], [4, 2, 5, 3]))


@torch.no_grad()
def test_equals_torch_decoder_with_the_same_weights() -> None:
    layers, T = 2, 5
    network = make(bridge=ZeroBridge, layers=layers, positions="none")
    decoder: Any = network.decoder
    heads = MultiHead(query_size=D, memory_size=D, size=D, heads=HEADS, score=ScaledDot)
    decoder.attention = type(decoder.attention)([heads, deepcopy(heads)])
    randomise(decoder, 0.7)
    layer = nn.TransformerDecoderLayer(D, HEADS, 4 * D, dropout=0.0, norm_first=True, batch_first=True)
    reference = nn.TransformerDecoder(layer, layers, norm=nn.LayerNorm(D)).eval()
    reference.norm.load_state_dict(decoder.norm.state_dict())
    for theirs, ours, attention in zip(
        reference.layers, decoder.blocks, decoder.attention.layers, strict=True
    ):
        cross = [attention.query.weight, attention.key.weight, attention.value.weight]
        theirs.load_state_dict(
            {
                "multihead_attn.in_proj_weight": torch.cat(cross),
                "multihead_attn.in_proj_bias": torch.zeros(3 * D),
                "multihead_attn.out_proj.weight": attention.output.weight,
                "multihead_attn.out_proj.bias": torch.zeros(D),
                **as_in_torch(ours.state_dict(), TORCH_NAMES),
            }
        )
    batch = random_batch([3, 7], [T - 1, T - 1])
    encoded, state = network.encode(batch)
    embedded = network.target_embedding(batch.inputs)
    output = decoder(embedded, state, encoded.memory, decoder.attention.project(encoded.memory))
    expected = reference(
        decoder.input(embedded),
        encoded.memory.states,
        tgt_mask=nn.Transformer.generate_square_subsequent_mask(T),
        memory_key_padding_mask=~batch.source_mask,
    )
    torch.testing.assert_close(output.states, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("positions", ["sinusoidal", "rotary", "alibi"])
@torch.no_grad()
def test_padding_and_other_sentences_change_no_logit(positions: str) -> None:
    network = make("CoverageSee" if positions == "rotary" else "MultiHead", positions=positions)
    sources, targets = random_rows([3, 7, 1, 5], SOURCE_WORDS), random_rows([4, 2, 5, 3], TARGET_WORDS)
    assert_sentences_are_independent(network, sources, targets, padding=2)


@pytest.mark.parametrize(
    ("attention", "positions", "ends"), [("MultiHead", "sinusoidal", 0.0), ("Shift", "rotary", 1.0)]
)
@torch.no_grad()
def test_searches_equal_plain_loops(attention: str, positions: str, ends: float) -> None:
    """Finished sentences leave the batch, and beams are reordered, in the cache and in every layer."""
    network = make(attention, positions=positions, vocabulary_size=7, seed=3, bridge=ZeroBridge)
    network.readout.output.bias[EOS] += ends
    for part in (network.encoder, network.decoder.attention):
        randomise(part, 2.0)  # so that outputs depend on the source
    batch = random_batch([3, 7, 1, 5, 2])
    found = beam(network, batch, size=3, max_length=5)
    best = greedy(network, batch, max_length=5)
    lengths = set()
    for row in range(5):
        sentence = single(batch, row)
        expected = plain_beam(network, sentence, 3, 5, 1.0)
        assert found.tokens[row] == [tokens for _, tokens in expected]
        assert found.scores[row] == pytest.approx([score for score, _ in expected], abs=1e-4)
        assert best.tokens[row] == [plain_greedy(network, sentence, 5)[0]]
        lengths.add(len(best.tokens[row][0]))
        tokens = found.tokens[row][0]
        forced = make_batch([sentence.source[0].tolist()], [tokens])
        weights = stepwise(network, forced)[1][0]
        torch.testing.assert_close(found.weights[row][0], weights, rtol=0, atol=1e-5)
    assert len(lengths) > 1  # some sentences left the batch before others


@torch.no_grad()
def test_weights_are_those_of_a_layer_or_the_mean_over_layers() -> None:
    batch = random_batch([5, 3], [4, 4])
    mean = make()(batch).weights
    each = [make(weights_layer=layer)(batch).weights for layer in (1, 2)]
    assert not torch.allclose(each[0], each[1])
    torch.testing.assert_close(mean, (each[0] + each[1]) / 2)
    with pytest.raises(ValueError, match=r"weights_layer=3 must be in \[1, 2\] or null"):
        make(weights_layer=3)


@torch.no_grad()
def test_start_of_the_bridge_is_read_by_all_positions() -> None:
    """Without attention, the source is seen only through the bridge."""
    for bridge, seen in ((LinearBridge, True), (ZeroBridge, False)):
        network = make("NoAttention", bridge=bridge)
        batch = random_batch([5, 5], [4, 4])
        batch = batch._replace(target=batch.target[:1].expand(2, -1))
        logits = forced_logits(network, batch)
        assert (not torch.allclose(logits[0, -1], logits[1, -1])) == seen


def test_every_parameter_gets_a_gradient_and_dropout_is_only_in_training() -> None:
    network = make(positions="learned", dropout=0.3, max_positions=6).train()
    batch = random_batch([3, 6, 5], [4, 2, 5])
    logits = forced_logits(network, batch)
    logits.square().sum().backward()
    used = dict(network.named_parameters())
    used.pop("encoder.positions.table.weight")  # 256 positions
    assert {name for name, parameter in used.items() if not parameter.grad.any()} == set()
    assert not torch.equal(logits, forced_logits(network, batch))
    network.eval()
    assert torch.equal(forced_logits(network, batch), forced_logits(network, batch))
    with pytest.raises(ValueError, match=r"has 6 positions, but a sentence or an output has 7 tokens: set"):
        network(random_batch([3], [6]))


def test_export_is_refused_in_one_line() -> None:
    with pytest.raises(UserError, match=r"TransformerDecoder.* cannot be exported to ONNX: .*") as raised:
        graphs.export(make(bridge=ZeroBridge))
    assert "\n" not in str(raised.value)
