import logging
import math
from dataclasses import replace
from itertools import pairwise

import pytest
import sacrebleu
from hypothesis import given
from hypothesis import strategies as st
from torchmetrics.functional.text.helper import _edit_distance

from attnlab.data.tokenization.train import characters
from attnlab.files.predictions import Prediction
from attnlab.metrics import registry
from attnlab.metrics.registry import LengthScores, names, score, score_by_length
from attnlab.metrics.text.ngrams import guess_tokenizer
from attnlab.metrics.texts import Texts
from predictions import predictions_of

words = st.lists(st.sampled_from(["a", "b", "ab", "ba", "abc"]), max_size=7)


def values_of(*pairs: tuple[str, str], metrics: list[str] | None = None) -> dict[str, float]:
    """Return the scores of pairs (hypothesis, reference)."""
    return score(Texts(predictions_of(*pairs)), metrics).values


def test_exact_match_compares_tokens() -> None:
    pairs = [("a  b", "a b"), ("a", "A"), ("", "a"), ("a b", "b a")]
    assert values_of(*pairs, metrics=["exact_match", "wer"]) == {"exact_match": 0.25, "wer": 75}


def test_edit_distance_counts_target_tokens() -> None:
    texts = Texts(predictions_of(("kitten", "sitting"), ("ab", "ba")), tokenize=list)
    assert score(texts, ["ser"]).values == {"ser": pytest.approx((3 + 2) / (7 + 2))}


@given(words, words)
def test_edit_distance_equals_that_of_torchmetrics(one: list[str], other: list[str]) -> None:
    pair = (" ".join(one), " ".join([*other, "end"]))
    expected = _edit_distance(one, [*other, "end"]) / (len(other) + 1)
    assert values_of(pair, metrics=["edit_distance"]) == {"edit_distance": pytest.approx(expected)}


def test_perfect_and_empty_hypotheses_have_extreme_scores() -> None:
    text = "the cat sat on the mat ."
    perfect = {"exact_match": 1, "edit_distance": 0, "bleu": pytest.approx(100), "chrf": pytest.approx(100)}
    assert values_of((text, text)) == perfect
    nothing = {"exact_match": 0, "edit_distance": 1, "bleu": 0, "chrf": 0}
    assert values_of(("", text), ("", text)) == nothing


CHINESE = ["我们今天去北京看长城。", "他的书在桌子上面吗？", "猫坐在红色的垫子上。"]


def test_perfect_chinese_has_the_largest_bleu_and_a_wrong_character_that_of_sacrebleu() -> None:
    tokenizer = guess_tokenizer(CHINESE)
    perfect = Texts(predictions_of(*[(text, text) for text in CHINESE]), bleu_tokenizer=tokenizer)
    assert score(perfect, ["bleu"]).values == {"bleu": pytest.approx(100)}
    wrong = [text[:4] + "狗" + text[5:] for text in CHINESE]
    texts = Texts(predictions_of(*zip(wrong, CHINESE, strict=True)), bleu_tokenizer=tokenizer)
    # 31 characters, of which 3 are wrong, and the n-grams that contain them
    precisions = [28 / 31, 22 / 28, 16 / 25, 10 / 22]
    expected = 100 * math.prod(precisions) ** (1 / 4)
    assert score(texts, ["bleu"]).values["bleu"] == pytest.approx(expected)
    assert sacrebleu.corpus_bleu(wrong, [CHINESE], tokenize="zh").score == pytest.approx(expected)


@pytest.mark.parametrize(
    ("references", "tokenizer"),
    [
        (["the cat"], "13a"),
        (["кошка", "बिल्ली", "고양이가 앉았다", "القطة"], "13a"),
        ([""], "13a"),
        (["12 + 3"], "13a"),
        (CHINESE, "zh"),
        (["我 爱 你"], "zh"),
        (["用 PyTorch 训练翻译模型"], "13a"),  # most letters are Latin
        (["日本語の文です"], "char"),
        (["カタカナ"], "char"),
        (["แมวนั่งบนเสื่อ"], "char"),
        (["ສະບາຍດີ"], "char"),
        (["ភាសាខ្មែរ"], "char"),
        (["မြန်မာစာ"], "char"),
    ],
)
def test_tokenizer_of_bleu_follows_the_script(references: list[str], tokenizer: str) -> None:
    assert guess_tokenizer(references) == tokenizer


def test_tokenised_text_logs_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        values_of(*[("a b c .", "a b c .")] * 150)
    assert not caplog.records


def test_code_metrics_match_a_manual_calculation() -> None:
    values = values_of(("x = 'abc'", 'x = "abc"'), ("x = (", "x = 1"), metrics=["conala_bleu", "parses"])
    # x = ` abc ` on both sides; then 7 of 8 tokens, 5 of 6 bigrams, 3 of 4 trigrams and 2 of 2 4-grams match
    precisions = [7 / 8, 5 / 6, 3 / 4, 2 / 2]
    assert values["conala_bleu"] == pytest.approx(100 * math.prod(precisions) ** (1 / 4))
    assert values["parses"] == 0.5


def test_conala_exact_match_compares_official_tokens() -> None:
    pairs = [("f( 'a' )", 'f("a")'), ("f(a)", 'f("a")')]
    expected = {"conala_exact_match": 0.5, "exact_match": 0.0}
    assert values_of(*pairs, metrics=["conala_exact_match", "exact_match"]) == expected


def test_scores_of_a_corpus_match_a_manual_calculation() -> None:
    """Sentences of 6, 1 and 4 tokens: a mean over sentences would differ from a sum over their tokens."""
    pairs = [("a b c d e x", "a b c d e f"), ("g h", "g"), ("i j k l", "i j k l")]
    # n-grams of characters 1 to 6: of all hypotheses (without "gh", as its reference
    # has no bigram), of all references, and those that match
    hypotheses, references, matches = (12, 8, 6, 4, 2, 1), (11, 8, 6, 4, 2, 1), (10, 7, 5, 3, 1, 0)
    precision = sum(match / count for match, count in zip(matches, hypotheses, strict=True)) / 6
    recall = sum(match / count for match, count in zip(matches, references, strict=True)) / 6
    bleu = 100 * (10 / 12 * 7 / 9 * 5 / 6 * 3 / 4) ** (1 / 4)  # here, tokens are characters
    expected = {
        "bleu": bleu,
        "conala_bleu": bleu,
        "chrf": 100 * 5 * precision * recall / (4 * precision + recall),
        "edit_distance": (1 + 1 + 0) / (6 + 1 + 4),
        **dict.fromkeys(("ser", "per", "cer"), (1 + 1 + 0) / (6 + 1 + 4)),
        "exact_match": 1 / 3,
        "conala_exact_match": 1 / 3,
        "wer": 100 * 2 / 3,
        "parses": 0,  # "g" is valid, but no hypothesis is
        "slot_accuracy": (3 + 1 + 0) / (4 + 1 + 0),  # "f" is missing, and no reference has "z"
    }
    assert set(expected) == set(names("text"))
    quoted = (["e", "f", "a", "d"], ["g"], ["z"])
    predictions = [
        replace(prediction, annotations={"quoted": texts})
        for prediction, texts in zip(predictions_of(*pairs), quoted, strict=True)
    ]
    assert score(Texts(predictions), expected).values == pytest.approx(expected)
    assert values_of(("x = 1", ""), ("x =", ""), ("(", ""), metrics=["parses"]) == {"parses": 1 / 3}


def test_slot_accuracy_counts_repeated_quotations() -> None:
    def accuracy(*predictions: Prediction) -> dict[str, float]:
        return score(Texts(predictions), ["slot_accuracy"]).values

    correct = Prediction(
        index=0,
        source="",
        references=("sorted(names, key=lambda x: x['age'] + x.age, reverse=my_list[0])",),
        hypothesis='my_list [ 0 ]; names; "age"; age; age',
        annotations={"quoted": ["names", "age", "my_list[0]", "unused", ""]},
    )
    assert accuracy(correct) == {"slot_accuracy": 1.0}
    assert accuracy(replace(correct, hypothesis="age(names)(names)")) == {"slot_accuracy": 2 / 4}
    assert accuracy(correct, replace(correct, hypothesis="")) == {"slot_accuracy": 4 / 8}
    assert accuracy(replace(correct, annotations={"quoted": ["unused"]})) == {}


def test_scores_by_length_match_a_manual_calculation() -> None:
    predictions = predictions_of(("a", "a"), ("b", "c"), ("d", "d"), ("e", "e"))
    assert score_by_length(Texts(predictions), [7, 3, 4, 3], ["exact_match"]) == [
        LengthScores(3, 3, 2, {"exact_match": 0.5}),
        LengthScores(4, 4, 1, {"exact_match": 1.0}),
        LengthScores(7, 7, 1, {"exact_match": 1.0}),
    ]
    assert [
        row[:3] for row in score_by_length(Texts(predictions), [1, 5, 6, 9], ["exact_match"], bins=2)
    ] == [(1, 5, 2), (6, 9, 2)]


@given(st.lists(st.integers(0, 300), min_size=1, max_size=40), st.integers(1, 12))
def test_length_ranges_contain_every_sentence_once(lengths: list[int], bins: int) -> None:
    predictions = predictions_of(*[("a", "a")] * len(lengths))
    rows = score_by_length(Texts(predictions), lengths, ["exact_match"], bins=bins)
    assert [row.sentences for row in rows] == [
        sum(row.shortest <= length <= row.longest for length in lengths) for row in rows
    ]
    assert sum(row.sentences for row in rows) == len(lengths)
    assert len(rows) <= bins
    assert all(one.longest < two.shortest for one, two in pairwise(rows))
    assert (rows[0].shortest, rows[-1].longest) == (min(lengths), max(lengths))
    assert len({row.longest - row.shortest for row in rows[:-1]}) <= 1


def test_scoring_no_predictions_is_an_error() -> None:
    with pytest.raises(ValueError, match="No predictions to score"):
        Texts([])


def test_scores_that_empty_references_do_not_define_are_absent() -> None:
    """An edit distance per token of nothing was `inf`."""
    scores = score(Texts(predictions_of(("a", ""), ("", ""))))
    assert scores.values == {"exact_match": 0.5}
    assert scores.undefined == {
        "bleu": "no reference has 4 tokens, the length of a 4-gram",
        "chrf": "all references are empty",
        "edit_distance": "all references are empty",
    }
    (row,) = score_by_length(Texts(predictions_of(("a", ""))), [1], ["edit_distance", "exact_match"])
    assert row.scores == {"edit_distance": None, "exact_match": 0}


def test_bleu_needs_a_reference_of_four_tokens() -> None:
    """The row of 4 words has BLEU; that of 3 words has none, and its exact match is 1."""
    predictions = predictions_of(*[(text, text) for text in ("a b c", "d e f", "a b c d")])
    rows = score_by_length(Texts(predictions), [3, 3, 4], ["bleu", "conala_bleu", "exact_match"])
    assert [[*row.scores.values()] for row in rows] == [
        [None, None, 1],
        [pytest.approx(100), pytest.approx(100), 1],
    ]


THREE_INPUTS = [("a b c d", "x b c d y", "a b c d e"), ("e f", "e f", "g h"), ("u", "u v", "w x y")]
"""Hypotheses, and two references each."""


def test_scores_of_several_references_match_a_manual_calculation() -> None:
    predictions = predictions_of(*THREE_INPUTS)
    metrics = ["exact_match", "wer", "edit_distance", "bleu", "chrf"]
    values = score(Texts(predictions), metrics).values
    assert values["exact_match"] == pytest.approx(1 / 3)
    assert values["wer"] == pytest.approx(200 / 3)
    # One deletion of five tokens against "a b c d e", none of two, one of two against "u v"
    assert values["edit_distance"] == pytest.approx((1 + 0 + 1) / (5 + 2 + 2))
    # 7 of 7 tokens, 4 of 4 bigrams, 2 of 2 trigrams and 1 of 1 4-grams; the nearest lengths are 5, 2 and 2
    assert values["bleu"] == pytest.approx(100 * math.exp(1 - 9 / 7))
    hypotheses, *streams = map(list, zip(*THREE_INPUTS, strict=True))
    assert values["chrf"] == sacrebleu.corpus_chrf(hypotheses, streams).score
    # The metrics of resampling have the same values
    for name in metrics:
        counts = registry.metric(name).sentence_counts("whitespace" if name == "edit_distance" else "13a")
        assert float(counts.value(counts.count(predictions).sum(axis=0))) == pytest.approx(values[name])


def test_sentences_are_counted_in_the_normalisation_form_of_the_targets() -> None:
    predictions = predictions_of(("e\u0301a", "\u00e9ab"))  # two code points in place of one; "b" is missing
    for name, value in {"characters:nfc": 1 / 3, "characters": 3 / 3}.items():
        counts = registry.metric("ser").sentence_counts(name)
        assert counts is not None
        assert float(counts.value(counts.count(predictions).sum(axis=0))) == pytest.approx(value)
    tokenizer = characters(["\u00e9ab"], normalization="nfc")
    texts = Texts(predictions, tokenizer.spell)
    assert score(texts, ["ser"]).values["ser"] == pytest.approx(1 / 3)


@given(st.permutations([1, 2, 3]), st.permutations([0, 1, 2]))
def test_the_order_of_inputs_and_references_changes_no_score(places: list[int], rows: list[int]) -> None:
    texts = [("a b c d e x", "a b c d e f", "a b c", "a b"), ("b", "a", "a b", "c b"), ("d e", "d e f g")]
    moved = [texts[row] if row == 2 else tuple(texts[row][place] for place in (0, *places)) for row in rows]
    assert values_of(*moved) == pytest.approx(values_of(*texts))


def test_numbers_of_references_may_differ() -> None:
    texts = [("a b c d", "a b c d", "x"), ("e f g h", "e f g i")]
    assert values_of(*texts, metrics=["bleu"])["bleu"] == pytest.approx(
        sacrebleu.corpus_bleu(["a b c d", "e f g h"], [["a b c d", "e f g i"], ["x", None]]).score
    )


def test_slot_accuracy_is_of_the_reference_with_the_fewest_missing_texts() -> None:
    (prediction,) = predictions_of(("f(a)", "f(a, b)", "g(c)", "f(a, a)"))
    quoted = replace(prediction, annotations={"quoted": ["a", "b"]})
    # Of the references, 1 of 2, 0 of 0 and 1 of 2 quoted texts are repeated: none is missing of the second
    assert score(Texts([quoted]), ["slot_accuracy"]).undefined
    longer = replace(quoted, references=("f(a, b)", "f(a)", "f(b)"))
    assert score(Texts([longer]), ["slot_accuracy"]).values == {"slot_accuracy": 1}


def test_perfect_bleu_is_100() -> None:
    """sacreBLEU returns 100.00000000000004 for these lengths."""
    text = " ".join("abcdefghijklmnopqrstuvwxyz"[:13])
    assert values_of((text, text), metrics=["bleu", "conala_bleu"]) == {"bleu": 100, "conala_bleu": 100}
