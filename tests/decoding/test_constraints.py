"""Restricted and sampled outputs against plain loops, sentence by sentence."""

from collections import Counter
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from attnlab.data.corpus import Pair
from attnlab.decoding.beam import beam
from attnlab.decoding.constraints import Constraints
from attnlab.decoding.sampling import Sampler
from attnlab.decoding.search import greedy, sample
from attnlab.decoding.translator import Translator
from attnlab.errors import UserError
from attnlab.types import EOS, PAD, Hypotheses
from digits import DIGITS, encode_all
from networks import make_network, random_batch
from plain_search import make, next_log_probabilities, plain_sample, plain_search, restriction, single

WORDS = 6
FORCED = [[4, PAD, 4], [5, 5, 5], [PAD, PAD, PAD], [PAD, 3, PAD]]
"""Forced tokens of four sentences, which also repeat n-grams."""


@given(
    seed=st.integers(0, 10_000),
    size=st.sampled_from([1, 3]),
    ends=st.sampled_from([-2.0, 2.0]),
    min_length=st.integers(0, 5),
    ngram=st.integers(0, 3),
    forces=st.booleans(),
)
@settings(max_examples=12)
def test_restricted_outputs_equal_those_of_the_plain_loop(
    seed: int, size: int, ends: float, min_length: int, ngram: int, forces: bool
) -> None:
    network = make(seed, ends=ends, vocabulary_size=WORDS)
    batch = random_batch([3, 7, 1, 5])
    forced = torch.tensor(FORCED) if forces else None
    constraints = Constraints(min_length=min_length, no_repeat_ngram_size=ngram, forced=forced)
    hypotheses = beam(network, batch, size=size, max_length=5, constraints=constraints)
    for row, (tokens, scores) in enumerate(zip(hypotheses.tokens, hypotheses.scores, strict=True)):
        restrict = restriction(min_length, ngram, FORCED[row] if forces else ())
        expected = plain_search(network, single(batch, row), size, 5, restrict)
        assert tokens == [hypothesis for _, hypothesis in expected]
        assert scores == pytest.approx([score for score, _ in expected], abs=1e-4)


@pytest.mark.parametrize("search", [greedy, partial(beam, size=1), partial(sample, sampler=Sampler())])
def test_eos_is_allowed_where_nothing_else_is(search: Any) -> None:
    network = make(0, ends=-50.0, vocabulary_size=WORDS)
    constraints = Constraints(min_length=8, no_repeat_ngram_size=1)
    [[tokens]] = search(network, random_batch([3]), max_length=8, constraints=constraints).tokens
    assert sorted(tokens) == [3, 4, 5]


@pytest.mark.slow
@given(
    seed=st.integers(0, 10_000),
    temperature=st.sampled_from([0.5, 1.0, 3.0]),
    top_k=st.sampled_from([None, 1, 3]),
    top_p=st.sampled_from([None, 0.3, 0.9]),
)
@settings(max_examples=12)
def test_samples_equal_those_of_the_plain_loop(
    seed: int, temperature: float, top_k: int | None, top_p: float | None
) -> None:
    network = make(seed, vocabulary_size=WORDS)
    batch = random_batch([3, 7, 1, 5])
    sampler = Sampler(temperature=temperature, top_k=top_k, top_p=top_p, seed=seed)
    hypotheses = sample(network, batch, sampler, size=2, max_length=4)
    random = sampler.random_numbers(batch.indices, 2, 5).view(4, 2, 5).tolist()
    for row, (tokens, scores) in enumerate(zip(hypotheses.tokens, hypotheses.scores, strict=True)):
        expected = [
            plain_sample(
                network, single(batch, row), numbers, 4, temperature=temperature, top_k=top_k, top_p=top_p
            )
            for numbers in random[row]
        ]
        expected.sort(key=lambda one: -one[1])
        assert tokens == [ids for ids, _ in expected]
        assert scores == pytest.approx([score for _, score in expected], abs=1e-4)


def drawn(network: Any, batch: Any, seed: int) -> Hypotheses:
    return sample(network, batch, Sampler(seed=seed), size=3, max_length=6)


def test_samples_depend_on_the_seed_and_not_on_other_sentences() -> None:
    network = make(2, spread=0.3)
    batch = random_batch([7, 1, 3, 5, 2, 4])
    together = drawn(network, batch, 1)
    assert drawn(network, batch, 1).tokens == together.tokens
    assert drawn(network, batch, 2).tokens != together.tokens
    for row in range(6):
        alone = single(batch, row, padding=2)._replace(indices=batch.indices[row : row + 1])
        assert drawn(network, alone, 1).tokens == [together.tokens[row]]


def test_samples_of_different_sentences_are_drawn_with_different_numbers() -> None:
    numbers = Sampler(seed=3).random_numbers(torch.tensor([4, 5, 6]), 3, 5)
    assert numbers.shape == (9, 5)
    assert len({*map(tuple, numbers.tolist())}) == 9


def test_frequencies_of_samples_are_the_probabilities() -> None:
    network = make(4, vocabulary_size=WORDS, spread=0.3)
    sentence = random_batch([3])
    many = 1000
    hypotheses = sample(network, sentence, Sampler(), size=many, max_length=1)
    counts = Counter(tokens[0] if tokens else EOS for tokens in hypotheses.tokens[0])
    p = torch.tensor(next_log_probabilities(network, sentence, [])).exp()
    frequencies = torch.tensor([counts[token] / many for token in range(WORDS)])
    torch.testing.assert_close(frequencies, p / p.sum(), rtol=0, atol=4 * 0.5 / many**0.5)


PAIRS = [Pair("3 4 5", "5 4 3"), Pair("6", ""), Pair("7 8 3 4", "9 9 9 9")]


def translated(pairs: list[Pair] = PAIRS, **options: Any) -> list[str]:
    network = make_network(vocabulary_size=DIGITS.target.size, seed=3)
    translator = Translator(vocabularies=DIGITS, **{"max_length": 5, **options})
    results = translator(network, encode_all(PAIRS, DIGITS)[[0, 1, 2]], pairs)
    return [best.hypothesis for best, *_ in results]


@pytest.mark.parametrize("size", [1, 4])
def test_prefixes_of_the_translator(size: int) -> None:
    free = translated(beam_size=size)
    one, two, three = (text.split() for text in translated(beam_size=size, prefix_size=2, min_length=3))
    assert (one[:2], three[:2]) == (["5", "4"], ["9", "9"])
    assert len(two) >= 3
    assert [text.split()[:4] for text in translated(beam_size=size, prefix_size=None)][2] == ["9"] * 4
    assert translated(beam_size=size) == free


def test_tokens_that_a_pair_excludes_are_in_none_of_its_outputs() -> None:
    free = " ".join(translated(min_length=4)).split()
    common = max(set(free), key=free.count)
    pairs = [replace(PAIRS[0], excludes=rf"{common}|4"), PAIRS[1], replace(PAIRS[2], excludes=r"[^<9].*")]
    one, two, three = (text.split() for text in translated(pairs, min_length=4))
    assert {common, "4"}.isdisjoint(one)
    assert two == translated(min_length=4)[1].split()
    assert {*three} == {"9"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"min_length": 6}, "min_length=6 is above search.max_length=5"),
        ({"top_k": 3}, "set search.temperature=1"),
        ({"temperature": 1.0, "grammar": bool}, "needs greedy or beam search"),
    ],
)
def test_contradictory_settings_are_rejected(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        translated(**options)
    valid = Translator(vocabularies=DIGITS, max_length=5)
    with pytest.raises(UserError, match=message):
        replace(valid, **options)
