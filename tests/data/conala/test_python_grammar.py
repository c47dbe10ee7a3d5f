"""Outputs restricted to Python: the test of prefixes, and the searches against plain loops."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from attnlab.data.conala.grammar import can_be_continued, is_python
from attnlab.data.conala.python_code import cut, join, parse
from attnlab.data.conala.tokenizer import python
from attnlab.data.corpus import Pair
from attnlab.data.tokenization.vocabularies import Vocabularies
from attnlab.decoding.constraints import Constraints, Grammar, log_probabilities
from attnlab.decoding.translator import Translator
from attnlab.files.predictions import Prediction
from attnlab.types import EOS
from digits import encode_all
from plain_search import FORBIDDEN, make, plain_search, single

SNIPPETS = [
    "sorted(d.items(), key=lambda x: x[1], reverse=True)",
    "r = [int(s) for s in 'a b\\'c'.split(' ') if s is not None]",
    "with open('f.txt', 'rb') as f:\n    for line in f:\n        print(line[1:-1:2])\nx = 1",
    "try:\n    a = {'k': -1, **b}\nexcept (A, B) as e:\n    raise\nelse:\n    pass",
    "@property\ndef f(self, *args, k=None, **kw) -> int:\n    return not a <= b < c if d else (yield)",
    "async def g():\n    await h  # comment\n    x: int = 0x1f\n    del x, y; assert x, '''long'''",
    "from a.b import (c as d, e)",
    "print(f'{x!r}', end='')",
]


@pytest.mark.parametrize("code", SNIPPETS)
def test_every_prefix_of_valid_code_can_be_continued(code: str) -> None:
    pieces = cut(code)
    assert parse(join(pieces)) is not None
    assert [join(pieces[:n]) for n in range(len(pieces) + 1) if not can_be_continued(join(pieces[:n]))] == []


ERRORS = [
    *("x )", "x = = 3", "f(a b", "import import", "x y", "print 'a'", "for x y", "a[1:2)", "'a' b"),
    *("f(a=1 =", "x = 1\n  y", "else", "x for", "print x,", "try:\n    x\ny", "def f x", "x\0"),
    *("x = 'a\nb'", "'\ud800'"),
]


@pytest.mark.parametrize("code", ERRORS)
def test_errors_cannot_be_continued(code: str) -> None:
    assert not can_be_continued(code)


WORDS = ["x", "(", ")", "=", "not", "'", "a"]
PYTHON = python([" ".join(WORDS)], max_size=None)
VOCABULARIES = Vocabularies(PYTHON, PYTHON)
PAIRS = [Pair("x = a", ""), Pair("( x )", ""), Pair("not a", "")]


def restrict(scores: list[float], tokens: list[int]) -> list[float]:
    def is_possible(token: int) -> bool:
        text = PYTHON.decode(tokens if token == EOS else [*tokens, token])
        return parse(text) is not None if token == EOS else can_be_continued(text)

    return [
        score if score > FORBIDDEN and is_possible(token) else FORBIDDEN for token, score in enumerate(scores)
    ]


def searched(seed: int, **options: Any) -> tuple[Any, Any, list[list[Prediction]]]:
    network = make(seed, ends=0.5, vocabulary_size=PYTHON.size)
    batch = encode_all(PAIRS, VOCABULARIES)[[0, 1, 2]]
    translator = Translator(vocabularies=VOCABULARIES, grammar=is_python, max_length=6, **options)
    return network, batch, translator(network, batch, PAIRS, nbest=options["beam_size"])


@given(seed=st.integers(0, 10_000), size=st.sampled_from([1, 3]))
@settings(max_examples=5)
def test_restricted_outputs_equal_those_of_the_plain_loop(seed: int, size: int) -> None:
    network, batch, predictions = searched(seed, beam_size=size)
    for row, of_sentence in enumerate(predictions):
        scores, outputs = zip(*plain_search(network, single(batch, row), size, 6, restrict), strict=True)
        assert [prediction.hypothesis for prediction in of_sentence] == [*map(PYTHON.decode, outputs)]
        assert [prediction.score for prediction in of_sentence] == pytest.approx(scores, abs=1e-4)


def test_hypothesis_ends_without_a_continuation_only_if_no_other_has_one() -> None:
    x, opening, closing = (PYTHON.id_of(token) for token in ("x", "(", ")"))
    constraints = Constraints(
        grammar=Grammar(accepts=is_python, decode=lambda row, ids: PYTHON.decode(ids), count=1)
    )
    logits = torch.zeros(1, 2, PYTHON.size)
    logits[..., EOS] = 5.0
    log_p, sums = log_probabilities(logits, None, must_end=False), torch.tensor([[0.0, -9.0]])
    for histories, ends in (([[x], [opening]], [True, False]), ([[closing], [closing]], [True, True])):
        allowed = constraints(log_p, sums, torch.tensor([0]), 1, lambda rows=histories: torch.tensor([rows]))
        assert allowed[0, :, EOS].isfinite().tolist() == ends
        assert allowed[..., EOS + 1 :].isneginf().all()
