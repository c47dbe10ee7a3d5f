"""Official CoNaLa tokens and BLEU, and valid Python."""

import math
import warnings
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnlab.data.conala import metrics as conala
from attnlab.metrics.text import ngrams
from attnlab.metrics.texts import Texts
from predictions import predictions_of

CODE = st.lists(st.sampled_from(["x", "y", "fooBar", "(", ")", " ", "'a'", ".", "= 1"]), max_size=12).map(
    "".join
)


def counts(tokens: list[str], order: int) -> Counter[tuple[str, ...]]:
    return Counter(tuple(tokens[i : i + order]) for i in range(len(tokens) - order + 1))


def official_bleu(hypotheses: list[str], references: list[str]) -> float:
    """Compute BLEU by the formula of the challenge's script."""
    pairs = [(conala.tokenize(h), conala.tokenize(r)) for h, r in zip(hypotheses, references, strict=True)]
    hypothesis_length = sum(len(h) for h, _ in pairs)
    reference_length = sum(len(r) for _, r in pairs)
    precisions = []
    for order in range(1, 5):
        matches = sum((counts(h, order) & counts(r, order)).total() for h, r in pairs)
        possible = sum(counts(h, order).total() for h, _ in pairs)
        precisions.append(matches / possible if possible else 0.0)
    if min(precisions) == 0:
        return 0.0
    ratio = hypothesis_length / reference_length
    brevity = 1.0 if ratio > 1 else math.exp(1 - 1 / ratio)
    return 100 * brevity * math.exp(sum(math.log(p) for p in precisions) / 4)


@pytest.mark.parametrize(
    ("code", "tokens"),
    [
        ("os.getCwd()", ["os", ".", "get", "Cwd", "(", ")"]),
        ("d['a'] = \"b\"", ["d", "[", "`", "a", "`", "]", "=", "`", "b", "`"]),
        ("my_list  \n\t+=1", ["my_list", "+", "=", "1"]),
        ("HTTPServer aB2C", ["HTTPServer", "a", "B2C"]),
        ("größe", ["gr", "ö", "ß", "e"]),
        ("", []),
        (" \n ", []),
    ],
)
def test_tokens_equal_those_of_the_official_script(code: str, tokens: list[str]) -> None:
    assert conala.tokenize(code) == tokens


def bleu(hypotheses: list[str], references: list[str]) -> float:
    texts = Texts(predictions_of(*zip(hypotheses, references, strict=True)))
    return ngrams.corpus_score(conala.bleu_metric(), texts, conala.spaced)


@pytest.mark.parametrize(
    ("hypotheses", "references", "expected"),
    [
        (["a b c d"], ["a b c d e f"], 100 * math.exp(1 - 6 / 4)),  # brevity penalty
        (["a b c d e f"], ["a b c d e f"], 100),
        (["a b c x"], ["a b c d"], 0),  # no match of some order
        (["", ""], ["a b c d", "e"], 0),
    ],
)
def test_bleu_known_values(hypotheses: list[str], references: list[str], expected: float) -> None:
    assert bleu(hypotheses, references) == pytest.approx(expected)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(CODE, CODE.filter(str.strip)), min_size=1, max_size=4))
def test_bleu_equals_the_official_formula(pairs: list[tuple[str, str]]) -> None:
    hypotheses, references = (list(column) for column in zip(*pairs, strict=True))
    assert bleu(hypotheses, references) == pytest.approx(official_bleu(hypotheses, references))


@pytest.mark.parametrize("code", ["x = 1", "for i in y:\n    print(i)", "'\\d' is 'x'", "sorted(l, key=len)"])
def test_valid_python_is_accepted(code: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert conala.is_valid_python(code)


@pytest.mark.parametrize(
    "code",
    [
        "",
        "  \n",
        "# only words",
        "for in x",
        "print 'x'",
        "a\0b",
        "x = '\ud800'",
        "(" * 5000,
        "-" * 10**5 + "1",
    ],
    ids=["empty", "blank", "comment", "syntax", "python2", "nul", "surrogate", "brackets", "deep"],
)
def test_invalid_python_is_rejected(code: str) -> None:
    assert not conala.is_valid_python(code)
