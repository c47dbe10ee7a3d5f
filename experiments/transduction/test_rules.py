"""Rules of normalisation, against values by hand."""

from itertools import product
from math import exp, prod

import pytest
from learning_curve import preferred, prepare
from memorise import memorise
from rules import SHARE, Rules, invent, more_pairs, outputs_of


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


def test_most_probable_outputs_are_those_of_all_combinations() -> None:
    rules = Rules([("vnd", "und"), ("vns", "uns"), ("von", "von"), ("oder", "oder"), ("yn", "in")])
    shares = [rules.distribution("vyd", place) for place in range(3)]
    products = {
        "".join(outputs): prod(share[output] for share, output in zip(shares, outputs, strict=True))
        for outputs in product(*shares)
    }
    best = rules.best("vyd", 3)
    assert [text for _, text in best] == sorted(products, key=products.__getitem__)[:-4:-1]
    assert best[0][1] == rules.normalise("vyd")
    assert [exp(score) for score, _ in best] == pytest.approx(sorted(products.values())[:-4:-1])


def test_modern_words_get_old_spellings() -> None:
    pairs = [("vnd", "und"), ("vns", "uns"), ("vnder", "unter")]
    more = more_pairs(pairs, ["unser", "rund"], count=40, seed=1)
    assert more[:39] == pairs * 13
    invented = more[39:]
    assert {norm for _, norm in invented} == {"unser", "rund"}
    assert ("vnser", "unser") in invented
    assert more == more_pairs(pairs, ["unser", "rund"], count=40, seed=1)


def test_tokens_are_prepared_as_for_the_published_systems() -> None:
    pairs = [
        ("Vnd", "Und"),
        (",", ","),
        ("1482", "1482"),
        ("2t", "zweit"),
        ("aus z", "aus"),
        ("u\u0308", "ü"),
    ]
    assert prepare(pairs) == [("vnd", "und"), ("0000", "0000"), ("2t", "zweit"), ("aus÷z", "aus"), ("ü", "ü")]


def test_listed_words_are_preferred_and_ties_keep_the_first_form() -> None:
    scored = [(-1.0, "vnd"), (-4.5, "und"), (-9.0, "rund")]
    assert preferred(scored, {"und", "rund"}) == "und"
    assert preferred(scored, {"rund"}) == "vnd"
    assert memorise([("a", "x"), ("a", "y")]) == {"a": "x"}
