import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from attnlab.data.conala import metrics as conala
from attnlab.data.conala.metrics import is_valid_python
from attnlab.decoding.reranking import WordList, by_coverage, minimum_bayes_risk, preferred_first, rerankers
from attnlab.errors import UserError
from attnlab.files.predictions import Prediction
from attnlab.metrics.text.ngrams import similarity

UNIFORM = np.array([[0.5, 0.5], [0.5, 0.5]])  # both source tokens have a total weight of 1
UNEVEN = np.array([[1.0, 0.0], [0.75, 0.25]])  # the second source token has a total weight of 0.25


def prediction(text: str, score: float, weights: np.ndarray = UNIFORM) -> Prediction:
    return Prediction(index=0, source="", hypothesis=text, score=score, weights=weights)


def texts(predictions: list[Prediction]) -> list[str]:
    return [prediction.hypothesis for prediction in predictions]


FOUND = [prediction("uneven", -1.0, UNEVEN), prediction("uniform", -1.5)]


def test_coverage_penalty_matches_a_manual_calculation() -> None:
    reranked = by_coverage(0.5)(FOUND)
    assert texts(reranked) == ["uniform", "uneven"]
    assert [prediction.score for prediction in reranked] == pytest.approx([-1.5, -1.0 + 0.5 * math.log(0.25)])
    assert reranked[0].weights is UNIFORM


def test_small_coverage_penalty_keeps_the_order() -> None:
    assert texts(by_coverage(0.1)(FOUND)) == texts(FOUND)  # -1.14 is still better than -1.5
    assert by_coverage(0)(FOUND) == FOUND


def test_coverage_penalty_without_weights_keeps_the_order() -> None:
    zeros = np.zeros((2, 2))
    reranked = by_coverage(1.0)([prediction("a", -1.0, zeros), prediction("b", -2.0, zeros)])
    assert texts(reranked) == ["a", "b"]
    penalty = 2 * math.log(1e-10)  # of two positions
    assert [each.score for each in reranked] == pytest.approx([-1.0 + penalty, -2.0 + penalty])


def test_accepted_texts_come_first_in_their_order() -> None:
    predictions = [prediction(text, -number) for number, text in enumerate(["f(", "f(x)", "x x", "y"])]
    (accepted_first,) = rerankers(accepts=is_valid_python)
    reranked = accepted_first(predictions)
    assert texts(reranked) == ["f(x)", "y", "f(", "x x"]
    assert [prediction.score for prediction in reranked] == [-1, -3, 0, -2]
    assert preferred_first(lambda _: False)(predictions) == predictions


def test_minimum_bayes_risk_matches_a_manual_calculation() -> None:
    def shared(text: str, other: str) -> float:
        return len(set(text) & set(other))

    found = [prediction("abc", -1), prediction("ab", -2), prediction("bd", -3), prediction("ba", -4)]
    # shared letters with abc, ab, bd, ba: (3, 2, 1, 2), (2, 2, 1, 2), (1, 1, 2, 1), (2, 2, 1, 2)
    ranked = minimum_bayes_risk(shared)(found)
    assert texts(ranked) == ["abc", "ab", "ba", "bd"]
    assert [each.score for each in ranked] == [2, 7 / 4, 7 / 4, 5 / 4]


def test_similarity_prefers_the_text_between_the_others() -> None:
    found = [prediction(code, 0) for code in ("x = f(a, b)", "x = f(a, c)", "y = f(a, c)")]
    assert texts(minimum_bayes_risk(similarity)(found))[0] == "x = f(a, c)"
    assert similarity("x = 1", "x = 1") == pytest.approx(100)
    assert similarity("x = 1", "x = 2") < 100


def test_hypotheses_that_repeat_more_quotations_come_first() -> None:
    quoted = {"quoted": ["names", "age", "a.b", ""]}
    codes = ["sort(age)", "names.sort('age')", "sort(ages)", "a . b(age)", "sort(names)"]
    found = [replace(prediction(code, -1), annotations=quoted) for code in codes]
    ranked = texts(preferred_first(conala.repeated_quotations)(found))
    assert ranked == ["names.sort('age')", "a . b(age)", "sort(age)", "sort(names)", "sort(ages)"]
    assert texts(preferred_first(conala.repeated_quotations)([prediction("b", 0)])) == ["b"]


def test_words_of_a_text_come_first_by_log_p_and_their_number(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("Und unter, unter uns.\n", encoding="utf-8")
    (tmp_path / "list.txt").write_text("unter\nvnter\n", encoding="utf-8")
    prefers = WordList([str(tmp_path / "text.txt"), str(tmp_path / "list.txt")], bonus=2.0, weight=0.5)
    found = [
        replace(prediction(text, 0.0), log_p=log_p)
        for text, log_p in [("vntr", -0.1), ("vnter", -1.0), ("unter", -2.0), ("und", -9.0)]
    ]
    # vntr and und (another case) do not occur, vnter occurs once, unter three times
    assert [prefers(each) for each in found] == pytest.approx([-0.1, 1.0, 0.5 * math.log(3), -9.0])
    assert texts(preferred_first(prefers)(found)) == ["vnter", "unter", "vntr", "und"]


@pytest.mark.parametrize("word", ["ट्रेनने", "e-mail", "aujourd'hui", "e\u0301te\u0301"])
def test_words_with_marks_inside_are_words_of_a_list(tmp_path: Path, word: str) -> None:
    (tmp_path / "text.txt").write_text(f"«{word}», {word}! mail\n", encoding="utf-8")
    prefers = WordList(str(tmp_path / "text.txt"), bonus=2.0, weight=0.5)
    assert prefers(prediction(word, 0.0)) == pytest.approx(2 + 0.5 * math.log(2))
    assert prefers(prediction("mail", 0.0)) >= 2
    assert prefers(prediction("", 0.0)) == 0


def test_word_list_without_a_file_is_one_line() -> None:
    with pytest.raises(UserError, match=r"^reranking\.prefers\.path is not set: name a text file"):
        WordList(None)
