"""Adversarial weights and distractors: hand values, and networks whose measures are known."""

from functools import partial

import adversarial
import pytest
import torch
from adversarial import MovedWeights, attack, jensen_shannon
from distractors import distract, partners
from scorecard import encode
from torch import nn

from attnlab.config.compose import compose_run
from attnlab.data.corpus import Pair
from attnlab.nn.attention import Differential, Dot
from attnlab.nn.attention.interventions import intervene
from attnlab.training import build
from attnlab.training.model import Model
from attnlab.types import Batch, Memory

PAIRS = [Pair("3 4", "4 3"), Pair("5 6 3", "3 6 5"), Pair("4", "4"), Pair("7 3 3 4 5", "5 4 3 3 7")]
TINY = (
    *("embedding.size=8", "encoder.size=4", "decoder.size=8", "attention_size=4", "trainer.accelerator=cpu"),
    *("data.symbols=5", "data.train_size=9", "data.val_size=3", "data.test_size=3", "logger=none"),
)
WITHOUT_FEEDING = ("decoder=luong", "decoder.input_feeding=false")


def randomise(module: nn.Module) -> None:
    """Set large weights, so that attention and outputs are far from uniform."""
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.uniform_(-1, 1)


def model_of(*overrides: str) -> Model:
    config = compose_run([*TINY, *overrides])
    vocabularies = build.build_vocabularies(config, build.build_corpus(config))
    network = build.build_network(config, vocabularies).eval()
    randomise(network)
    return Model(
        config=config,
        vocabularies=vocabularies,
        network=network,
        prepare=build.build_preparation(config),
        device=torch.device("cpu"),
    )


def batch_of(model: Model, *rows: int) -> Batch:
    return encode(model, [PAIRS[row] for row in rows])[list(range(len(rows)))]


def test_divergence_by_hand() -> None:
    first = torch.tensor([[1.0, 0.0], [0.5, 0.5], [2.0, 2.0], [1.0, 0.0]])
    second = torch.tensor([[0.0, 1.0], [0.5, 0.5], [1.0, 0.0], [0.5, 0.5]])
    # H(¾, ¼) - ½ H(½, ½) = 0.8113 - 0.5 bits
    expected = [1.0, 0.0, 0.311278, 0.311278]
    assert jensen_shannon(first, second).tolist() == pytest.approx(expected, abs=1e-6)


def test_weights_are_moved_towards_candidates() -> None:
    inner = Dot(query_size=7, memory_size=7)
    memory = Memory(torch.randn(1, 3, 7), torch.ones(1, 3, dtype=torch.bool))
    query = torch.randn(1, 1, 7)
    _, own, _ = inner(query, memory, inner.project(memory), None)
    moved = MovedWeights(inner, torch.tensor([[0.75]]), torch.tensor([[[0.0, 0.25, 0.0]]]))
    context, weights, _ = moved(query, memory, inner.project(memory), None)
    torch.testing.assert_close(weights, 0.75 * own + 0.25 * torch.tensor([0.0, 1.0, 0.0]))
    torch.testing.assert_close(context, weights @ memory.states)


def test_weights_that_are_not_moved_give_the_same_context() -> None:
    inner = Differential(query_size=7, memory_size=7, score=Dot)
    randomise(inner)
    memory = Memory(torch.randn(1, 3, 7), torch.ones(1, 3, dtype=torch.bool))
    query, keys = torch.randn(1, 1, 7), inner.project(memory)
    same = MovedWeights(inner, torch.ones(1, 1), torch.zeros(1, 1, 3))
    for moved, own in zip(
        same(query, memory, keys, None)[:2], inner(query, memory, keys, None)[:2], strict=True
    ):
        torch.testing.assert_close(moved, own)


def test_network_that_ignores_its_context_has_the_largest_divergence() -> None:
    model = model_of(
        "attention=mean", "decoder=luong", "decoder.input_feeding=false", "readout.parts=[input]"
    )
    result = attack(model.network, batch_of(model, 0, 1), epsilon=0.0)
    assert result.uniform_distance.tolist() == [0.0] * 5
    # of a uniform distribution over S from one of its tokens: H of the mean - ½ log2 S
    of_two, of_three = 0.311278, 0.459148
    assert result.divergence.tolist() == pytest.approx([of_two] * 2 + [of_three] * 3, abs=1e-6)


def test_distance_with_uniform_weights_equals_that_of_the_intervention() -> None:
    """Without input feeding, the weights of one position do not change the outputs of another."""
    model = model_of("attention=additive", *WITHOUT_FEEDING)
    network, batch = model.network, batch_of(model, 3, 1)

    def outputs() -> torch.Tensor:
        return network.logits(network(batch), batch.copy_ids).softmax(dim=-1)

    own = outputs()
    result = attack(network, batch, epsilon=0.1)
    network.decoder.attention = intervene(network.decoder.attention, "uniform")
    expected = (own - outputs()).abs().sum(dim=-1)[batch.target_text] / 2
    torch.testing.assert_close(result.uniform_distance, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    "overrides",
    [
        ("attention=additive",),
        ("attention=multihead", "attention.heads=2", "decoder=luong"),
        ("attention=location_sensitive", "decoder=luong", "decoder.input_feeding=false"),
    ],
    ids=str,
)
def test_larger_tolerance_gives_larger_divergence(
    overrides: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = model_of(*overrides)
    network, batch = model.network, batch_of(model, 3, 1)
    own = network.decoder.attention
    strict, loose, unlimited = (attack(network, batch, epsilon=e) for e in (0.0, 0.1, 1.0))
    assert network.decoder.attention is own
    assert (strict.divergence <= loose.divergence).all()
    assert (loose.divergence <= unlimited.divergence).all()
    assert (unlimited.divergence > 0).all()
    assert (unlimited.uniform_distance > 0).any()
    monkeypatch.setattr(adversarial, "MAX_OUTPUTS", 1)  # one sentence at a time
    split = attack(network, batch, epsilon=0.1)
    torch.testing.assert_close(split.divergence, loose.divergence, rtol=1e-4, atol=1e-5)
    alone = attack(network, batch_of(model, 1), epsilon=0.1)  # without padding
    for one, both in zip(alone, loose, strict=True):
        torch.testing.assert_close(one, both[5:], rtol=1e-4, atol=1e-5)


def test_partners_fit_beside_the_sources() -> None:
    assert partners([2, 3, 1, 5], 5) == [1, 2, 0, None]
    assert partners([2], 9) == [None]


def test_weight_on_a_distractor_is_that_of_the_concatenated_source() -> None:
    model = model_of("batching.source_eos=true")
    network = model.network
    measured = distract(network, PAIRS[:1], PAIRS[1:2], partial(encode, model))

    def decode(source: str) -> tuple[torch.Tensor, torch.Tensor]:
        batch = encode(model, [Pair(source, "4 3")])[[0]]
        decoded = network(batch)
        return network.logits(decoded, None)[0, :2].softmax(dim=-1), decoded.weights[0, :2]

    best, tokens = decode("3 4")[0].max(dim=-1)
    results = []
    for joined, places in (("3 4 5 6 3", slice(2, 5)), ("5 6 3 3 4", slice(0, 3))):
        p, weights = decode(joined)
        assert weights.size(1) == 6  # with EOS
        drop = best - p.gather(-1, tokens[:, None])[:, 0]
        top = weights.argmax(dim=-1)
        crossing = (top >= places.start) & (top < places.stop)
        results.append((drop.mean().item(), drop, weights[:, places].sum(dim=-1), crossing.float()))
    _, *expected = min(results, key=lambda result: result[0])
    order = [1, 0]  # units start with the longest prefix
    for ours, theirs in zip((measured.drop, measured.weight, measured.crossing), expected, strict=True):
        torch.testing.assert_close(ours, theirs[order], rtol=1e-4, atol=1e-6)


@torch.no_grad()
def test_copied_words_outside_the_vocabulary_keep_their_identity_beside_a_distractor() -> None:
    model = model_of("readout=pointer_generator", "tokenizer=whitespace")
    copied = model.vocabularies.target.size  # of the first word of a source outside the vocabulary

    def probabilities(source: str) -> torch.Tensor:
        batch = encode(model, [Pair(source, "99")])[[0]]
        return model.network.logits(model.network(batch), batch.copy_ids)[0, 0].softmax(dim=-1)

    alone = probabilities("99")
    assert alone.argmax() == copied
    beside = probabilities("99 98")[copied], probabilities("98 99")[copied + 1]
    measured = distract(model.network, [Pair("99", "99")], [Pair("98", "98")], partial(encode, model))
    assert measured.drop.item() == pytest.approx((alone[copied] - max(beside)).item(), rel=1e-4)
