from __future__ import annotations

import math

import pytest
import torch

from attnlab.data.corpus import Pair
from attnlab.decoding.reranking import by_acceptance, by_coverage, rerank
from attnlab.metrics.conala import is_valid_python
from attnlab.types import Hypotheses

EVEN = torch.tensor([[0.5, 0.5], [0.5, 0.5]])  # each source token is looked at once
ONE_SIDED = torch.tensor([[1.0, 0.0], [0.75, 0.25]])  # the first more than once, the second a quarter
FOUND = Hypotheses(
    tokens=[[[7], [8]], [[9]]], scores=[[-1.0, -1.5], [-2.0]], weights=[[ONE_SIDED, EVEN], [EVEN]]
)


def test_coverage_by_hand() -> None:
    half = by_coverage(FOUND, 0.5)
    assert half.tokens == [[[8], [7]], [[9]]]
    assert half.scores[0] == pytest.approx([-1.5, -1.0 + 0.5 * math.log(0.25)])
    assert half.scores[1] == pytest.approx([-2.0])
    assert half.weights[0][0] is EVEN
    little = by_coverage(FOUND, 0.1)  # -1.14 is still better than -1.5
    assert little.tokens == FOUND.tokens


def test_without_weights_the_order_stays() -> None:
    blind = FOUND._replace(weights=[[torch.zeros(2, 2)] * 2, [torch.zeros(2, 2)]])
    assert by_coverage(blind, 1.0).tokens == FOUND.tokens
    assert all(math.isfinite(score) for row in by_coverage(blind, 1.0).scores for score in row)


def test_what_is_accepted_comes_first_and_else_the_order_stays() -> None:
    found = Hypotheses([[[1], [2], [3], [4]]], [[-1.0, -2.0, -3.0, -4.0]], [[EVEN] * 4])
    texts = [["f(", "f(x)", "x x", "y"]]
    assert by_acceptance(found, texts, is_valid_python).tokens == [[[2], [4], [1], [3]]]
    assert by_acceptance(found, texts, is_valid_python).scores == [[-2.0, -4.0, -1.0, -3.0]]
    assert by_acceptance(found, texts, lambda _: False) == found


def test_both_at_once_write_what_a_pairs_slots_stand_for() -> None:
    def write(ids: object, pair: Pair) -> str:
        return "x" if ids == [8] else pair.source

    pairs = [Pair("f(", ""), Pair("x", "")]
    assert rerank(FOUND, pairs, output_text=write) == FOUND
    assert rerank(FOUND, pairs, output_text=write, accepts=is_valid_python).tokens == [[[8], [7]], [[9]]]
    both = rerank(FOUND, pairs, output_text=write, accepts=lambda text: text == "f(", coverage_penalty=0.5)
    assert both.tokens == [[[7], [8]], [[9]]]
