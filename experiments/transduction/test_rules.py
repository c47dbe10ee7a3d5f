"""Rules of normalisation, against values by hand."""

import pytest
from learning_curve import first_tokens
from memorise import memorise
from rules import SHARE, Rules, invent, outputs_of


def test_inserted_letters_belong_to_the_letter_before_them() -> None:
    assert outputs_of("vnnd", "und") in (["u", "n", "", "d"], ["u", "", "n", "d"])
    assert outputs_of("diſem", "diesem") == ["d", "ie", "s", "e", "m"]
    assert outputs_of("b", "ab") == ["ab"]  # before the first letter: with the first one


def test_probabilities_interpolate_larger_and_smaller_contexts() -> None:
    rules = Rules([("vn", "un"), ("vn", "un"), ("va", "va"), ("vi", "vi")])
    shares = rules.distribution("vo", 0)  # o is new: the letter alone, seen in three distinct pairs
    assert shares == pytest.approx({"v": (2 + SHARE) / (3 + SHARE), "u": 1 / (3 + SHARE)})
    shares = rules.distribution("von", 0)
    assert sum(shares.values()) == pytest.approx(1)
    following_n = rules.distribution("vn", 0)
    assert following_n["u"] > shares["u"]
    # the letter with the next one and all larger contexts: one pair, so that 1 + SHARE share the probability
    expected = 1 / (3 + SHARE)
    for _ in range(5):
        expected = (1 + SHARE * expected) / (1 + SHARE)
    assert following_n["u"] == pytest.approx(expected)


def test_unseen_letters_are_copied() -> None:
    assert Rules([("vnd", "und")]).normalise("xyz") == "xyz"


def test_invented_words_repeat_with_the_seed_and_have_known_trigrams() -> None:
    words = ["vnder", "wunder", "ander"]
    invented = invent(words, 50, seed=3)
    assert invented == invent(words, 50, seed=3) != invent(words, 50, seed=4)
    known = {f"##{word}#"[place : place + 3] for word in words for place in range(len(word) + 1)}
    for word in invented:
        assert {f"##{word}#"[place : place + 3] for place in range(len(word) + 1)} <= known


def test_first_tokens_skip_empty_lines_and_ties_keep_the_first_form() -> None:
    assert first_tokens(["a\tb\n", "\n", "c\td\n", "e\tf\n"], 2) == ["a\tb\n", "\n", "c\td\n"]
    assert memorise([("a", "x"), ("a", "y")]) == {"a": "x"}
