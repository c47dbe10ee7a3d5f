"""From batches of sources to predictions."""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch

from attnlab.data.corpus import Pair
from attnlab.data.tokenization.train import whitespace
from attnlab.data.tokenization.vocabularies import Vocabularies
from attnlab.decoding.beam import beam
from attnlab.decoding.reranking import preferred_first
from attnlab.decoding.translator import Translator
from attnlab.errors import UsageError
from attnlab.fast import linear, make_plain, parts, search_precision
from attnlab.files.predictions import Prediction
from attnlab.nn.seq2seq import Seq2Seq
from attnlab.types import EOS
from digits import DIGITS, encode_all
from networks import make_network

PAIRS = [
    Pair("3 4 5", "5 4 3", ((2, 0), (1, 1), (0, 2)), annotations={"quoted": ["3"]}),
    Pair("6", "6 6"),
    Pair("7 8 3 4", "9", postprocess=str.upper, reference="ONE"),
]
TRANSLATOR = Translator(vocabularies=DIGITS, beam_size=3, max_length=4)


@pytest.fixture(scope="module")
def network() -> Seq2Seq:
    network = make_network(vocabulary_size=DIGITS.target.size, seed=3)
    with torch.no_grad():
        network.readout.output.bias[EOS] -= 1  # longer outputs
    return network


def batch_of(pairs: Sequence[Pair]):
    return encode_all(pairs, DIGITS)[list(range(len(pairs)))]


def scores_of(predictions: list[list[Prediction]]) -> list[float]:
    return [prediction.score for row in predictions for prediction in row]


def test_predictions_hold_texts_tokens_scores_and_weights(network: Seq2Seq) -> None:
    batch = batch_of(PAIRS)
    hypotheses = beam(network, batch, size=3, max_length=4)
    results = TRANSLATOR(network, batch, PAIRS, nbest=3)
    assert [len(row) for row in results] == [3, 3, 3]
    for row, predictions in enumerate(results):
        for rank, prediction in enumerate(predictions):
            ids = hypotheses.tokens[row][rank]
            assert prediction.index == row
            assert prediction.rank == rank + 1
            assert prediction.source == PAIRS[row].source
            assert prediction.source_tokens == PAIRS[row].source.split()
            assert prediction.hypothesis == DIGITS.output_text(ids, PAIRS[row])
            assert prediction.tokens == [*DIGITS.target.tokens(ids), "<eos>"]
            assert prediction.score == hypotheses.scores[row][rank]
            assert prediction.log_p == pytest.approx(sum(hypotheses.log_p[row][rank]), abs=1e-4)
            beam_p = [np.exp(sum(log_p)) for log_p in hypotheses.log_p[row]]
            assert prediction.p_beam == pytest.approx(beam_p[rank] / sum(beam_p), abs=1e-4)
            np.testing.assert_array_equal(prediction.weights, hypotheses.weights[row][rank].numpy())
            assert prediction.weights.shape == (len(prediction.tokens), len(prediction.source_tokens))
    assert [row[0].references for row in results] == [("5 4 3",), ("6 6",), ("ONE",)]
    assert results[0][0].annotations == {"quoted": ["3"]}
    assert results[0][0].alignment is not None
    assert results[1][0].alignment is None


def test_source_tokens_outside_the_vocabulary_keep_their_spelling() -> None:
    vocabularies = Vocabularies(whitespace(["3 4"]), DIGITS.target)
    network, pairs = make_network(vocabulary_size=DIGITS.target.size), [Pair("3 zwei", "3")]
    batch = encode_all(pairs, vocabularies, source_eos=True)[[0]]
    ((prediction,),) = Translator(vocabularies=vocabularies)(network, batch, pairs)
    assert prediction.source_tokens == ["3", "<unk:zwei>", "<eos>"]


def test_encoded_sources_are_not_encoded_again(network: Seq2Seq, monkeypatch: pytest.MonkeyPatch) -> None:
    batch = batch_of(PAIRS)
    for translator in (TRANSLATOR, replace(TRANSLATOR, beam_size=1)):
        expected = translator(network, batch, PAIRS)
        with torch.no_grad():  # as in validation: with gradients, other kernels encode few sentences
            encoded = network.encode(batch)
        with monkeypatch.context() as patch:
            patch.setattr(network, "encode", None)
            assert translator(network, batch, PAIRS, encoded=encoded) == expected


def test_predictions_without_weights(network: Seq2Seq) -> None:
    expected = TRANSLATOR(network, batch_of(PAIRS), PAIRS, nbest=2)
    found = TRANSLATOR(network, batch_of(PAIRS), PAIRS, nbest=2, weights=False)
    assert found == [[replace(each, weights=None) for each in row] for row in expected]


def test_search_in_bfloat16(network: Seq2Seq) -> None:
    batch, dtypes = batch_of(PAIRS), []
    handle = network.readout.output.register_forward_hook(
        lambda _, inputs, output: dtypes.append(output.dtype)
    )
    results = replace(TRANSLATOR, precision="bf16")(network, batch, PAIRS)
    handle.remove()
    assert set(dtypes) == {torch.bfloat16}
    for row, (best,) in zip(TRANSLATOR(network, batch, PAIRS), results, strict=True):
        assert best.score == pytest.approx(row[0].score, abs=0.02)
        assert best.score != row[0].score


def test_search_in_int8(network: Seq2Seq) -> None:
    batch, plain, translator = batch_of(PAIRS), deepcopy(network), replace(TRANSLATOR, precision="int8")
    make_plain(plain)
    with pytest.raises(UsageError, match=r"search\.precision=int8 needs fused=true"):
        translator(plain, batch, PAIRS)
    fast, seen = deepcopy(network), []
    products = fast.readout.output.products
    fast.readout.output.register_forward_hook(lambda *_: seen.append(products.int8))
    translator(fast, batch, PAIRS)
    assert set(seen) == {True}
    assert not products.int8


def test_first_search_in_int8_has_the_scores_of_later_ones(
    network: Seq2Seq, monkeypatch: pytest.MonkeyPatch
) -> None:
    for limit in ("MIN_WEIGHT", "MIN_WEIGHT_OF_FEW_ROWS"):
        monkeypatch.setattr(linear, limit, 1)
    translator, fast = replace(TRANSLATOR, precision="int8"), deepcopy(network)
    first, second = (scores_of(translator(fast, batch_of(PAIRS), PAIRS, nbest=3)) for _ in range(2))
    assert first == pytest.approx(second, abs=1e-6)


@pytest.mark.parametrize("limit", [0, 10])
def test_search_in_the_fastest_precision(
    limit: float, network: Seq2Seq, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"NARROW_SHARE": limit, "MIN_WEIGHT": 1, "MIN_WEIGHT_OF_FEW_ROWS": 1}.items():
        monkeypatch.setattr(linear, name, value)
    # The timing of this limit: a second one could choose the other of bf16 and int8
    monkeypatch.setattr(parts, "narrow_precision", cache(linear.narrow_precision.__wrapped__))
    precision, batch = search_precision(network), batch_of(PAIRS)
    assert precision is None if limit == 0 else precision in ("bf16", "int8")
    auto, same, fp32 = (
        scores_of(replace(TRANSLATOR, precision=name)(deepcopy(network), batch, PAIRS))
        for name in ("auto", precision, None)
    )
    assert auto == same
    assert (auto == fp32) == (limit == 0)
    monkeypatch.setattr(linear, "MIN_WEIGHT", 10**6)
    assert search_precision(network) is None  # without large weights
    make_plain(plain := deepcopy(network))
    assert search_precision(plain) is None


def test_rerankers_see_all_hypotheses_and_are_applied_in_order(network: Seq2Seq) -> None:
    batch = batch_of(PAIRS)
    predictions = TRANSLATOR(network, batch, PAIRS, nbest=3)
    last = {row[-1].hypothesis for row in predictions}
    seen: list[list[Prediction]] = []

    def record(predictions: Sequence[Prediction]) -> list[Prediction]:
        seen.append(list(predictions))
        return list(predictions)

    translator = replace(
        TRANSLATOR, reranking=[preferred_first(lambda each: each.hypothesis in last), record]
    )
    results = translator(network, batch, PAIRS)
    assert [len(row) for row in results] == [1, 1, 1]
    assert all(row[0].hypothesis in last and row[0].rank == 1 for row in results)
    assert [[prediction.hypothesis for prediction in row] for row in seen] == [
        sorted((prediction.hypothesis for prediction in row), key=lambda text: text not in last)
        for row in predictions
    ]
