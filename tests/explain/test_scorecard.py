"""The scorecard of a network: distractors, alignments of two directions, intervals."""

import math
from collections.abc import Callable

import pytest
import torch
from omegaconf import DictConfig

from attnlab.config import build
from attnlab.data.corpus import Pair
from attnlab.explain import scorecard
from attnlab.explain.alignment import Gold
from attnlab.explain.distractors import distract, partners
from attnlab.explain.scorecard import Model, Sums, explain
from attnlab.metrics import registry
from networks import randomise
from tiny_runs import TINY

PAIRS = [Pair("3 4", "4 3"), Pair("5 6 3", "3 6 5"), Pair("4", "4"), Pair("7 3 3 4 5", "5 4 3 3 7")]


def model_of(composed: Callable[..., DictConfig], *overrides: str) -> Model:
    config = composed(*TINY, "data.symbols=5", "data.train_size=9", "data.val_size=3", *overrides)
    corpus = build.build_corpus(config)
    vocabularies = build.build_vocabularies(config, corpus)
    network = build.build_network(config, vocabularies).eval()
    randomise(network)
    return Model(
        network=network,
        vocabularies=vocabularies,
        encode=lambda pairs: build.encode_pairs(config, vocabularies, pairs),
    )


def test_partners_fit_beside_the_sources() -> None:
    assert partners([2, 3, 1, 5], 5) == [1, 2, 0, None]
    assert partners([2], 9) == [None]


def test_weight_on_a_distractor_is_that_of_the_concatenated_source(
    composed: Callable[..., DictConfig],
) -> None:
    model = model_of(composed, "batching.source_eos=true")
    measured = distract(model.network, PAIRS[:1], PAIRS[1:2], model.encode)
    results = []
    for joined, places in (("3 4 5 6 3", slice(2, 5)), ("5 6 3 3 4", slice(0, 3))):
        (plain,) = model.network(model.encode(PAIRS[:1])[[0]]).weights
        decoded = model.network(batch := model.encode([Pair(joined, "4 3")])[[0]])
        log_p = model.network.logits(decoded, None).log_softmax(dim=-1)[0, :2]
        before = model.network.logits(model.network(model.encode(PAIRS[:1])[[0]]), None).log_softmax(dim=-1)
        best, tokens = before[0, :2].max(dim=-1)
        drop = best.exp() - log_p.gather(-1, tokens[:, None])[:, 0].exp()
        weights = decoded.weights[0, :2]
        top = weights.argmax(dim=-1)
        crossing = (top >= places.start) & (top < places.stop)
        results.append((drop.mean().item(), drop, weights[:, places].sum(dim=-1), crossing.float()))
        assert batch.source.size(1) == 6  # with EOS
        assert plain.size(-1) == 3
    _, *expected = min(results, key=lambda result: result[0])
    order = [1, 0]  # units start with the longest prefix
    for ours, theirs in zip((measured.drop, measured.weight, measured.crossing), expected, strict=True):
        torch.testing.assert_close(ours, theirs[order], rtol=1e-4, atol=1e-6)


@torch.no_grad()
def test_copied_words_outside_the_vocabulary_keep_their_identity_beside_a_distractor(
    composed: Callable[..., DictConfig],
) -> None:
    model = model_of(composed, "readout=pointer_generator", "tokenizer=whitespace")
    copied = model.vocabularies.target.size  # of the first word of a source outside the vocabulary

    def probabilities(source: str) -> torch.Tensor:
        batch = model.encode([Pair(source, "99")])[[0]]
        return model.network.logits(model.network(batch), batch.copy_ids)[0, 0].softmax(dim=-1)

    alone = probabilities("99")
    assert alone.argmax() == copied
    beside = probabilities("99 98")[copied], probabilities("98 99")[copied + 1]
    measured = distract(model.network, [Pair("99", "99")], [Pair("98", "98")], model.encode)
    assert measured.drop.item() == pytest.approx((alone[copied] - max(beside)).item(), rel=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(
    "overrides",
    [("attention=general",), ("decoder=transformer", "attention_size=8", "decoder.heads=2")],
    ids=str,
)
def test_scorecard_has_every_measure(composed: Callable[..., DictConfig], overrides: tuple[str, ...]) -> None:
    model = model_of(composed, *overrides)
    gold = [Gold(frozenset({(0, 0)}), frozenset({(0, 0), (1, 1)})) for _ in PAIRS]
    scores = explain(model, PAIRS, steps=4, gold=gold, reverse=model)
    assert [f"explanation/{name}" for name in scores if f"explanation/{name}" in registry.METRICS] == [
        f"explanation/{name}" for name in scores
    ]
    assert {f"explanation/{name}" for name in scores} == set(registry.names("explanation"))
    for name, score in scores.items():
        low, high = registry.metric(f"test/explanation/{name}").bounds
        assert low <= score.value <= high, name
        assert score.low is not None
        assert score.high is not None
        assert score.low - 1e-9 <= score.value <= score.high + 1e-9, name
    assert scores["comprehensiveness"].units == 11  # target tokens of the pairs
    assert scores["gradient_tau"].units == 10  # a single source token has no rank correlation
    # the network of the other direction links the same words: the pairs are read from both ends
    assert scores["symmetrised_alignment_error_rate"].sentences == 4


def test_links_of_the_other_direction_are_turned_round(
    composed: Callable[..., DictConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, reverse = (model_of(composed) for _ in range(2))
    found = {id(model): {(0, 0), (1, 1)}, id(reverse): {(0, 0), (1, 2)}}  # target word 1 to source word 2
    monkeypatch.setattr(scorecard, "_links", lambda of, pairs: {0: frozenset(found[id(of)])})
    gold = [Gold(*[frozenset({(0, 0), (1, 1), (2, 1)})] * 2)]
    scores = explain(model, PAIRS[1:2], measures=["alignment"], gold=gold, reverse=reverse)
    assert scores["alignment_error_rate"].value == pytest.approx(1 - 4 / 5)
    assert scores["symmetrised_alignment_error_rate"].value == 0


def test_scores_are_means_of_units_with_intervals_over_sentences() -> None:
    sums = Sums()
    sums.add("tau", [0, 0, 1, 2], [1.0, 0.0, 0.5, math.nan])
    sums.add("nothing", [0], [math.nan])
    (score,) = sums.scores().values()
    assert score.value == pytest.approx(0.5)
    assert (score.units, score.sentences) == (3, 2)
    assert (score.low, score.high) == (0.5, 0.5)  # every resample has the mean 1/2
