"""Copying with the pointer-generator: mixture, batches, search and decoded text."""

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn

from attnlab.data.conala.tokenizer import python
from attnlab.data.corpus import Pair
from attnlab.data.examples import Examples
from attnlab.data.features import with_features
from attnlab.data.tokenization.tokenizer import Tokenizer
from attnlab.data.tokenization.train import characters, symbols, whitespace, words
from attnlab.data.tokenization.vocabularies import Vocabularies
from attnlab.decoding.beam import beam
from attnlab.decoding.constraints import Constraints
from attnlab.decoding.sampling import Sampler
from attnlab.decoding.search import greedy, sample
from attnlab.decoding.translator import Translator
from attnlab.nn.decoders import DecoderOutput
from attnlab.nn.readout import PointerGenerator
from attnlab.types import EOS, PAD, SOS, UNK
from digits import encode_all
from networks import assert_teacher_forcing_equals_steps, let_copy, make_network

VOCABULARIES = Vocabularies(
    whitespace(["a b c a b c"], max_size=None), whitespace(["a b a b"], max_size=None)
)
A, B, V = 4, 5, 6
SIZES = {"state_size": 2, "context_size": 1, "input_size": 1, "vocabulary_size": 3}


def encoded(*pairs: Pair, vocabularies: Vocabularies = VOCABULARIES, **settings: Any) -> Examples:
    return encode_all(pairs, vocabularies, **{"source_eos": True, **settings}, with_copy_ids=True)


def test_oov_tokens_are_numbered_from_v_in_each_sentence() -> None:
    batch = encoded(Pair("a x c x", "x c"), Pair("y b", "b q y"))[[0, 1]]
    assert batch.copy_ids.tolist() == [[A, V, V + 1, V, EOS], [V, B, EOS, 0, 0]]
    # c is in the source's vocabulary but not in the target's; q is in no source and stays unknown
    assert batch.target.tolist() == [[SOS, V, V + 1, EOS, 0], [SOS, B, UNK, V, EOS]]


def test_features_are_never_copied() -> None:
    """Neither ⟨x⟩, which only the source has, nor ⟨b⟩, which a shared vocabulary has."""
    text = with_features("ab", "x;b")
    shared = characters([text], max_size=99)
    for target in (characters(["ab"], max_size=9), shared):
        vocabularies = Vocabularies(shared, target)
        batch = encoded(Pair(text, "ba"), vocabularies=vocabularies)[[0]]
        a, b = target.id_of("a"), target.id_of("b")
        assert batch.copy_ids.tolist() == [[a, b, PAD, PAD, EOS]]
        assert vocabularies.oov_tokens(text) == []


def test_equal_subwords_are_copied() -> None:
    source = words(["low lows"] * 5, max_size=9, drop=[], split=["signs"], subwords=True)
    target = python(["low.lows()"] * 5, max_size=20, subwords=True)
    vocabularies = Vocabularies(source, target)
    batch = encoded(Pair("low blows", "lows(low)"), vocabularies=vocabularies, source_eos=False)[[0]]
    assert source.spell("low blows") == ["low", "<unk>", "<unk>", "##ow", "##s"]
    assert target.tokens(batch.copy_ids[0].tolist()) == ["low", "<unk>", "<unk>", "##ow", "##s"]
    assert target.tokens(batch.target[0].tolist()) == ["<sos>", "lows", "(", "low", ")", "<eos>"]


def test_truncated_source_tokens_cannot_be_copied() -> None:
    """x remains and y is cut off; a is in the vocabulary."""
    batch = encoded(Pair("x a y", "y x a"), source_eos=False, max_source_length=2)[[0]]
    assert batch.copy_ids.tolist() == [[V, A]]
    assert batch.target.tolist() == [[SOS, UNK, V, A, EOS]]


def test_copied_words_are_decoded() -> None:
    assert VOCABULARIES.oov_tokens("a x c x") == ["x", "c"]
    assert VOCABULARIES.decode([V + 1, A, V], "a x c x") == "c a x"
    assert VOCABULARIES.tokens([V, B], "y b") == ["y", "b"]


def test_mixture_on_a_small_example() -> None:
    """V = 3, two source positions: an out-of-vocabulary token (id 3) and token 1."""
    readout = PointerGenerator(**SIZES, parts=["state"])
    with torch.no_grad():
        readout.generator.output.weight.zero_()
        readout.generator.output.bias.copy_(torch.tensor([0.5, 0.25, 0.25]).log())
        readout.switch.weight.zero_()
        readout.switch.bias.fill_(torch.tensor(0.8).logit().item())  # generates with 0.8, copies with 0.2
    one = torch.ones(1, 1, 1)
    decoded = DecoderOutput(states=torch.ones(1, 1, 2), contexts=one, weights=torch.tensor([[[0.7, 0.3]]]))
    features = readout.features(decoded, one)
    p = readout(features, decoded.weights, torch.tensor([[[3, 1]]])).exp()
    torch.testing.assert_close(p[0, 0], torch.tensor([0.4, 0.2 + 0.06, 0.2, 0.14, 0.0]))


def test_pointer_generator_rejects_batches_without_copy_ids() -> None:
    readout = PointerGenerator(**SIZES, parts=["state"])
    with pytest.raises(ValueError, match="needs copy_ids"):
        readout(torch.ones(1, 3), torch.ones(1, 2), None)


def pointing_network(**settings: Any):
    """Return a network that always copies, so that its output consists of source words."""
    network = make_network(**settings)
    let_copy(network, switch=-50.0)
    return network.eval()


def copying_batch(network):
    vocabulary = network.target_embedding.table.num_embeddings
    batch = encoded(Pair("a x c x", "x c"), Pair("y b", "b y"))[[0, 1]]
    copy_ids = batch.copy_ids.where(batch.copy_ids < V, batch.copy_ids - V + vocabulary)
    target = batch.target.where(batch.target < V, batch.target - V + vocabulary)
    return batch._replace(copy_ids=copy_ids, target=target)


@pytest.mark.parametrize(
    "search", [greedy, partial(beam, size=9), partial(sample, sampler=Sampler(temperature=50.0), size=40)]
)
def test_outputs_contain_only_copied_words_of_their_sentence(search: Any) -> None:
    network = pointing_network()
    batch = copying_batch(network)
    vocabulary = network.target_embedding.table.num_embeddings
    words = [{id for id in row.tolist() if id >= vocabulary} for row in batch.copy_ids]
    distinct = Constraints(min_length=20, no_repeat_ngram_size=1)  # every possible token
    outputs = search(network, batch, max_length=20, constraints=distinct)
    for row, hypotheses in enumerate(outputs.tokens):
        assert {id for ids in hypotheses for id in ids if id >= vocabulary} == words[row]


@torch.no_grad()
@pytest.mark.parametrize("target", [VOCABULARIES.target, symbols(["3"], count=3)], ids=["words", "closed"])
def test_network_that_copies_outputs_unk_only_where_it_is_forced(target: Tokenizer) -> None:
    vocabularies = Vocabularies(VOCABULARIES.source, target)
    network = pointing_network(vocabulary_size=VOCABULARIES.source.size)
    network.readout.generator.output = nn.Linear(network.readout.generator.output.in_features, target.size)
    network.readout.switch.bias.fill_(50.0)  # always generates
    network.readout.generator.output.bias[UNK] = 50.0
    pairs = [Pair("a x c x", "3"), Pair("b", "3 4 3")]
    batch = encoded(*pairs, vocabularies=vocabularies)[[0, 1]]
    translator = Translator(vocabularies=vocabularies, beam_size=2, max_length=4)
    label = target.tokens([UNK])[0]
    for predictions in translator(network, batch, pairs, nbest=2):
        assert all((label in prediction.tokens) == (label == "3") for prediction in predictions)
    forced = replace(translator, prefix_size=1)(network, batch, pairs)
    assert [prediction.tokens.count(label) >= 1 for (prediction,) in forced] == [True, True]
    without_copying = batch._replace(copy_ids=None)
    network.readout = network.readout.generator
    assert [row[0].tokens for row in translator(network, without_copying, pairs)] == [
        [label] * 4 + ["<eos>"]
    ] * 2


@torch.no_grad()
def test_teacher_forcing_equals_steps_with_copying() -> None:
    network = pointing_network()
    torch.nn.init.constant_(network.readout.switch.bias, 0.0)
    batch = copying_batch(network)
    assert_teacher_forcing_equals_steps(network, batch)
    p = network.logits(network(batch), batch.copy_ids).exp()
    torch.testing.assert_close(p.sum(dim=-1), torch.ones(p.shape[:2]))


def test_copied_words_are_embedded_as_unk() -> None:
    network = pointing_network()
    embedding = network.target_embedding
    vocabulary = embedding.table.num_embeddings
    torch.testing.assert_close(embedding(torch.tensor([[vocabulary + 2]])), embedding(torch.tensor([[UNK]])))
