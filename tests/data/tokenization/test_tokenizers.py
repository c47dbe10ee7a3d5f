import unicodedata
from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnlab.data.corpus import Pair
from attnlab.data.tokenization.tokenizer import Tokenizer
from attnlab.data.tokenization.train import bpe, characters, python, symbols, unigram, whitespace, words
from attnlab.data.tokenization.vocabularies import train_vocabularies
from attnlab.errors import UserError
from attnlab.types import EOS, PAD, SOS, UNK

SENTENCES = [
    "the cat sat on the mat",
    "the dog sat on the log",
    "a cat  and a dog",
    "तो घरी गेला",
    "Straße, schön",
]
ALL = [
    pytest.param(partial(whitespace, max_size=None), id="whitespace"),
    pytest.param(partial(words, max_size=None, drop=["apostrophes"], split=["punctuation"]), id="words"),
    pytest.param(partial(characters, graphemes=False), id="codepoints"),
    pytest.param(partial(characters, graphemes=True), id="graphemes"),
    pytest.param(partial(bpe, max_size=66), id="bpe"),
    pytest.param(partial(unigram, max_size=66), id="unigram"),
    pytest.param(partial(words, max_size=166, split=["signs"], subwords=True), id="parts of words"),
    pytest.param(partial(python, max_size=None), id="python"),
    pytest.param(partial(python, max_size=166, subwords=True), id="parts of python"),
]
Training = Callable[[list[str]], Tokenizer]


# Whole words


def test_whitespace_keeps_the_most_frequent_then_the_first_by_code_point() -> None:
    tokenizer = whitespace(["b c a a", "c  b d"], max_size=3)  # a, b and c twice, d once
    assert tokenizer.size == 3 + 4
    assert tokenizer.encode("a b c") == [4, 5, 6]
    assert tokenizer.encode("d\tB c") == [UNK, UNK, 6]
    assert tokenizer.decode([SOS, 6, UNK, 4, EOS, PAD]) == "c <unk> a"
    assert tokenizer.tokens([SOS, 6, UNK, 4, EOS, PAD]) == ["<sos>", "c", "<unk>", "a", "<eos>", "<pad>"]


def test_rare_words_are_left_out() -> None:
    assert whitespace(["b b b a a c"], max_size=None, min_frequency=2).size == 2 + 4


def test_words_cleaned_like_english_and_marathi() -> None:
    classes = ["apostrophes", "ascii_punctuation", "ascii_digits", "devanagari_digits"]
    tokenizer = words(SENTENCES, max_size=None, drop=classes)
    assert tokenizer.clean("  Don't  STOP, it's 1999—now! ") == "dont stop its —now"
    assert tokenizer.clean("१२ मी शाळेत जातो।  ") == "मी शाळेत जातो।"  # the danda is not ASCII


def test_words_cleaned_like_english_and_german() -> None:
    tokenizer = words(SENTENCES, max_size=None, drop=["punctuation"])
    assert tokenizer.clean("„Grüß Gott“, sagte ÖZIL – so-so… <3 $5") == "grüß gott sagte özil soso 3 5"
    assert tokenizer.clean("तो घरी गेला।") == "तो घरी गेला"


def test_every_ascii_punctuation_mark_is_in_both_classes() -> None:
    marks = r"""!"#$%&'()*+,-./:;<=>?@[\]^_`{|}~"""
    for name in ("punctuation", "ascii_punctuation"):
        assert words(["a"], max_size=None, drop=[name]).clean(f"a{marks}b0") == "ab0"


def test_digits_of_any_script() -> None:
    assert words(["a"], max_size=None, drop=["digits"]).clean("a1२٣b") == "ab"


def test_words_split_punctuation_off() -> None:
    tokenizer = words(["Yes, I can't... go!"], max_size=None, drop=["apostrophes"], split=["punctuation"])
    assert tokenizer.clean("Yes, I can't... go!") == "yes , i cant . . . go !"
    assert tokenizer.encode(",") == tokenizer.encode(" , ") != [UNK]


def test_words_may_keep_their_case() -> None:
    assert words(["Das Haus"], max_size=None, lowercase=False).clean("Das  Haus") == "Das Haus"


def test_words_compose_what_unicode_writes_two_ways() -> None:
    tokenizer = words(["schön"], max_size=None)
    assert tokenizer.encode(unicodedata.normalize("NFD", "schön")) == tokenizer.encode("schön") == [4]


def test_an_unknown_class_of_characters_is_named_with_those_there_are() -> None:
    with pytest.raises(UserError, match=r"tokenizer.drop: .* 'digit'; there are apostrophes, .* digits$"):
        words(["a"], max_size=None, drop=["digit"])


# Characters


def test_characters_are_code_points() -> None:
    tokenizer = characters(["की a\n"])
    assert tokenizer.encode("\n aकी") == [4, 5, 6, 7, 8]  # each once, so in the order of code points
    assert tokenizer.tokens(tokenizer.encode("की a\n")) == ["क", "ी", "␣", "a", "␣"]


def test_graphemes_keep_a_letter_and_its_marks_together() -> None:
    tokenizer = characters(["की a"], graphemes=True)
    assert tokenizer.tokens(tokenizer.encode("की a")) == ["की", "␣", "a"]
    assert tokenizer.encode("क") == [UNK]


def test_characters_decode_unknown_ones_in_place() -> None:
    tokenizer = characters(["ab "])
    assert tokenizer.decode(tokenizer.encode("a xb")) == "a <unk>b"


# Subwords


def test_bpe_merges_the_most_frequent_neighbours() -> None:
    texts = ["ab ab ab cb"]  # ▁a and ab 3 times, ▁c and cb once
    one_merge, two_merges = bpe(texts, max_size=4 + 1), bpe(texts, max_size=4 + 2)
    assert len(one_merge.encode("ab")) == 2
    assert two_merges.tokens(two_merges.encode("ab abb cb")) == ["▁ab", "▁ab", "b", "▁", "c", "b"]


def test_a_subword_label_shows_where_a_word_begins() -> None:
    tokenizer = unigram(["low lower low lower"], max_size=8)
    labels = tokenizer.tokens(tokenizer.encode("low lower"))
    assert "".join(labels) == "▁low▁lower"


@pytest.mark.parametrize("train", [bpe, unigram])
def test_a_size_too_small_for_the_characters_says_what_is_needed(train: Callable[..., Tokenizer]) -> None:
    assert train(["abc abc"], max_size=4).size == 4 + 4  # ▁, a, b, c
    with pytest.raises(UserError, match=r"tokenizer.max_size=3 is too small: .* hold 4 characters"):
        train(["abc abc"], max_size=3)


@pytest.mark.parametrize("train", [bpe, unigram])
def test_subwords_keep_within_their_size_and_out_of_the_terminal(
    train: Callable[..., Tokenizer], capfd: pytest.CaptureFixture[str]
) -> None:
    assert train(SENTENCES * 5, max_size=60).size <= 64
    assert capfd.readouterr() == ("", "")


# Words and code in parts


def test_words_in_parts_are_put_together_again() -> None:
    tokenizer = words(["low lower lowest"] * 3, max_size=15, split=["signs"], subwords=True)
    labels = tokenizer.tokens(tokenizer.encode("lower `Lows`"))
    assert labels == ["low", "##e", "##r", "<unk>", "low", "##s", "<unk>"]
    assert tokenizer.decode(tokenizer.encode("lows lowest")) == "lows lowest"


CODE = ["sorted(items, key=len)", "if x:\n    print('two words')", "print 'old'"]


@pytest.mark.parametrize("subwords", [False, True])
def test_code_comes_back_from_its_ids(subwords: bool) -> None:
    tokenizer = python(CODE, max_size=80, subwords=subwords)
    assert [tokenizer.decode(tokenizer.encode(code)) for code in CODE] == CODE
    assert tokenizer.clean("print( 'two words' )") == "print('two words')"


def test_labels_show_where_lines_of_code_end() -> None:
    tokenizer = python(CODE, max_size=None)
    shown = tokenizer.tokens(tokenizer.encode(CODE[1]))
    assert shown == ["if", "x", ":", "⏎", "⇥", "print", "(", "'", "two", "␣", "words", "'", ")"]


def test_code_in_parts_is_never_cut_across_its_pieces() -> None:
    tokenizer = python(["x.sort()", "sorted(xs)"] * 5, max_size=40, subwords=True)
    assert tokenizer.tokens(tokenizer.encode("sorts(x)")) == ["sort", "##s", "(", "x", ")"]
    assert tokenizer.spell("sortz(y)") == ["sort", "<unk>", "(", "<unk>", ")"]
    assert python(CODE, max_size=None).spell("sortz(y)") == ["sortz", "(", "y", ")"]


def test_parts_need_a_size() -> None:
    with pytest.raises(UserError, match=r"set tokenizer\.max_size"):
        python(CODE, max_size=None, subwords=True)
    with pytest.raises(UserError, match=r"tokenizer.max_size=3 is too small: .* hold 5 characters"):
        python(["ab.cb"], max_size=3, subwords=True)  # a, b, c and ., and b inside a word


# The closed vocabulary


def test_symbols_number_from_three() -> None:
    tokenizer = symbols(["3 49"], count=47)
    assert tokenizer.size == 50
    assert tokenizer.encode("3 7 49") == [3, 7, 49]
    assert tokenizer.decode([SOS, 7, 3, EOS]) == "7 3"


def test_a_symbol_outside_the_vocabulary_is_named() -> None:
    tokenizer = symbols(["3"], count=47)
    with pytest.raises(UserError, match=r"token '77' is not in the vocabulary 3 … 49"):
        tokenizer.encode("3 77")
    with pytest.raises(UserError, match="token '<unk>'"):
        tokenizer.encode("<unk>")


# All of them


@pytest.mark.parametrize("train", ALL)
def test_raw_text_cannot_spell_a_special_token(train: Training) -> None:
    marks = "<pad> <sos> <eos> a<eos>b"
    tokenizer = train(SENTENCES + [marks] * 20)
    ids = tokenizer.encode(marks)
    assert not {PAD, SOS, EOS} & set(ids)
    assert tokenizer.decode(ids) == tokenizer.clean(marks)


@pytest.mark.parametrize("train", ALL)
def test_raw_unk_breaks_nothing(train: Training) -> None:
    tokenizer = train(SENTENCES + ["a<unk>b <unk>"] * 20)
    labels = tokenizer.tokens(range(tokenizer.size))
    assert len(set(labels)) == tokenizer.size  # no id is wasted
    assert tokenizer.decode(tokenizer.encode("a<unk>b <unk>")) == tokenizer.clean("a<unk>b <unk>")


@pytest.mark.parametrize("train", ALL)
def test_everything_survives_json(train: Training) -> None:
    tokenizer = train(SENTENCES)
    copy = Tokenizer.from_json(tokenizer.to_json())
    assert copy.to_json() == tokenizer.to_json()
    for text in [*SENTENCES, "  Neue, Wörter ", ""]:
        assert copy.encode(text) == tokenizer.encode(text)
        assert copy.clean(text) == tokenizer.clean(text)
        assert copy.decode(copy.encode(text)) == tokenizer.decode(tokenizer.encode(text))


@pytest.mark.parametrize("train", ALL)
def test_nothing_to_learn_from(train: Training) -> None:
    with pytest.raises(UserError, match="no texts"):
        train([])


@pytest.mark.parametrize("train", ALL)
def test_the_empty_text(train: Training) -> None:
    assert train(SENTENCES).encode("") == []
    assert train(SENTENCES).decode([]) == ""


LETTERS = "abc äß,'कीा्"


@pytest.mark.parametrize("train", ALL)
@given(text=st.text(LETTERS + " \n", max_size=20))
@settings(max_examples=30, deadline=None)
def test_decoding_gives_back_the_clean_text(train: Training, text: str) -> None:
    tokenizer = train([text, LETTERS + "\n"])
    assert tokenizer.decode(tokenizer.encode(text)) == tokenizer.clean(text)
    assert tokenizer.encode_all([text, text])[1] == tokenizer.encode(text)
    assert all(id >= UNK for id in tokenizer.encode(text))


@given(text=st.text(LETTERS + " \n", max_size=20))
@settings(max_examples=30, deadline=None)
def test_characters_and_subwords_clean_nothing_but_a_first_space(text: str) -> None:
    for graphemes in (False, True):
        assert characters([text], graphemes=graphemes).clean(text) == text
    for subwords in (bpe([LETTERS], max_size=30), unigram([LETTERS], max_size=30)):
        assert subwords.clean(text) == text.removeprefix(" ")


@pytest.mark.parametrize("train", ALL)
def test_training_is_repeatable(train: Training) -> None:
    texts = [f"{first}{second} {second}{third}" for first in "abcde" for second in "äßक" for third in "xyz '"]
    assert train(texts).to_json() == train(texts).to_json()


# Both sides

PAIRS = [Pair("a b", "x"), Pair("a", "x a")]


def test_a_vocabulary_a_side() -> None:
    settings = partial(whitespace, max_size=None)
    source, target = train_vocabularies(PAIRS, source=settings)
    assert (source.size, target.size) == (4 + 2, 4 + 2)
    assert (source.encode("a b x"), target.encode("x a b")) == ([4, 5, UNK], [4, 5, UNK])


def test_each_side_may_have_a_training_of_its_own() -> None:
    source, target = train_vocabularies(PAIRS, source=partial(whitespace, max_size=1), target=characters)
    assert (source.size, target.size) == (4 + 1, 4 + 3)


def test_one_vocabulary_for_both_sides() -> None:
    source, target = train_vocabularies(PAIRS, source=partial(whitespace, max_size=None), shared=True)
    assert source is target
    assert source.encode("a x b") == [4, 5, 6]  # 3 times, twice, once


def test_a_shared_vocabulary_has_one_training() -> None:
    settings = partial(whitespace, max_size=None)
    with pytest.raises(UserError, match="leave target_tokenizer out"):
        train_vocabularies(PAIRS, source=settings, target=settings, shared=True)
