import unicodedata
from collections.abc import Callable
from functools import partial
from itertools import permutations
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Regex, normalizers

from attnlab.data.conala.tokenizer import python
from attnlab.data.corpus import Pair
from attnlab.data.tokenization.tokenizer import PresplitTokenizer, Tokenizer
from attnlab.data.tokenization.train import characters, subwords, symbols, train_pieces, whitespace, words
from attnlab.data.tokenization.vocabularies import train_vocabularies
from attnlab.data.tokenization.word_encoder import WordEncoder
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
    pytest.param(partial(subwords, max_size=66), id="bpe"),
    pytest.param(partial(words, max_size=166, split=["signs"], subwords=True), id="subwords of words"),
    pytest.param(partial(python, max_size=None), id="python"),
    pytest.param(partial(python, max_size=166, subwords=True), id="subwords of python"),
]
Training = Callable[[list[str]], Tokenizer]


# Words


def test_whitespace_vocabulary_is_sorted_by_frequency_then_code_points() -> None:
    tokenizer = whitespace(["b c a a", "c  b d"], max_size=3)  # a, b and c twice, d once
    assert tokenizer.size == 3 + 4
    assert tokenizer.encode("a b c") == [4, 5, 6]
    assert (tokenizer.id_of("b"), tokenizer.id_of("d")) == (5, None)
    assert tokenizer.encode("d\tB c") == [UNK, UNK, 6]
    assert tokenizer.decode([SOS, 6, UNK, 4, EOS, PAD]) == "c <unk> a"
    assert tokenizer.tokens([SOS, 6, UNK, 4, EOS, PAD]) == ["<sos>", "c", "<unk>", "a", "<eos>", "<pad>"]


def test_min_frequency() -> None:
    assert whitespace(["b b b a a c"], max_size=None, min_frequency=2).size == 2 + 4


ENG_MAR = {"drop": ["apostrophes", "ascii_punctuation", "ascii_digits", "devanagari_digits"]}
ENG_DEU = {"drop": ["punctuation"]}
SPLIT = {"drop": ["apostrophes"], "split": ["punctuation"]}
ASCII = "".join(chr(code) for code in range(33, 127) if not chr(code).isalnum())


@pytest.mark.parametrize(
    ("settings", "text", "clean"),
    [
        (ENG_MAR, "  Don't  STOP, it's 1999—now! ", "dont stop its —now"),
        (ENG_MAR, "१२ मी शाळेत जातो।  ", "मी शाळेत जातो।"),  # the danda is not ASCII
        (ENG_DEU, "„Grüß Gott“, sagte ÖZIL – so-so… <3 $5", "grüß gott sagte özil soso 3 5"),
        (ENG_DEU, "तो घरी गेला।", "तो घरी गेला"),
        ({"drop": ["punctuation"]}, f"a{ASCII}b0", "ab0"),
        ({"drop": ["ascii_punctuation"]}, f"a{ASCII}b0", "ab0"),
        ({"drop": ["digits"]}, "a1२٣b", "ab"),  # of all scripts
        (SPLIT, "Yes, I can't... go!", "yes , i cant . . . go !"),
        ({"lowercase": False}, "Das  Haus", "Das Haus"),
    ],
)
def test_words_are_cleaned(settings: dict[str, Any], text: str, clean: str) -> None:
    assert words(["a"], max_size=None, **settings).clean(text) == clean


def test_split_punctuation_is_a_token() -> None:
    tokenizer = words(["Yes, I can't... go!"], max_size=None, **SPLIT)
    assert tokenizer.encode(",") == tokenizer.encode(" , ") != [UNK]


def test_words_normalise_unicode_composition() -> None:
    tokenizer = words(["schön"], max_size=None)
    assert tokenizer.encode(unicodedata.normalize("NFD", "schön")) == tokenizer.encode("schön") == [4]


def test_error_of_an_unknown_character_class_lists_the_classes() -> None:
    with pytest.raises(
        UserError,
        match=r"Unknown character class 'digit' in tokenizer.drop. Choose from: apostrophes, .* digits$",
    ):
        words(["a"], max_size=None, drop=["digit"])


# Characters


def test_characters_are_code_points() -> None:
    tokenizer = characters(["की a\n"])
    assert tokenizer.encode("\n aकी") == [4, 5, 6, 7, 8]  # each once, so in the order of code points
    assert tokenizer.tokens(tokenizer.encode("की a\n")) == ["क", "ी", "␣", "a", "␣"]


def test_graphemes_contain_combining_marks() -> None:
    tokenizer = characters(["की a"], graphemes=True)
    assert tokenizer.tokens(tokenizer.encode("की a")) == ["की", "␣", "a"]
    assert tokenizer.encode("क") == [UNK]


def test_unknown_characters_are_decoded_as_unk() -> None:
    tokenizer = characters(["ab "])
    assert tokenizer.decode(tokenizer.encode("a xb")) == "a <unk>b"


def test_labels_show_the_spelling_of_unknown_tokens() -> None:
    tokenizer = characters(["ab "])
    ids = tokenizer.encode("a xb\nx")
    assert tokenizer.labels(ids, "a xb\nx") == ["a", "␣", "<unk:x>", "b", "<unk:␣>", "<unk:x>"]
    assert tokenizer.labels([*ids[:3], EOS], "a xb\nx") == ["a", "␣", "<unk:x>", "<eos>"]  # truncated
    copied = [tokenizer.size, *ids[1:]]
    assert tokenizer.labels(copied, "z xb\nx", ["z"])[:3] == ["z", "␣", "<unk:x>"]
    pieces = words(["low lows"] * 9, max_size=9, subwords=True)
    assert pieces.labels(pieces.encode("low slow"), "low slow") == pieces.tokens(pieces.encode("low slow"))


# Subwords


def test_bpe_merges_the_most_frequent_pairs() -> None:
    texts = ["ab ab ab cb"]  # ▁a and ab 3 times, ▁c and cb once
    one_merge, two_merges = subwords(texts, max_size=4 + 1), subwords(texts, max_size=4 + 2)
    assert len(one_merge.encode("ab")) == 2
    assert two_merges.tokens(two_merges.encode("ab abb cb")) == ["▁ab", "▁ab", "b", "▁", "c", "b"]


def test_error_of_a_too_small_vocabulary_states_the_required_size() -> None:
    assert subwords(["abc abc"], max_size=4).size == 4 + 4  # ▁, a, b, c
    assert subwords(["aBc AbC"], max_size=4, lowercase=True).size == 4 + 4
    with pytest.raises(UserError, match=r"tokenizer.max_size=3 is too small: .* have 4 distinct characters"):
        subwords(["abc abc"], max_size=3)


def test_subword_training_reaches_max_size_and_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    texts = ["".join(letters) + " " + "".join(letters[:3]) for letters in permutations("abcde")]
    assert subwords(texts, max_size=30).size == 30 + 4
    assert capfd.readouterr() == ("", "")


# Subwords of words and code


def test_subwords_of_words_are_joined_when_decoded() -> None:
    tokenizer = words(["low lower lowest"] * 3, max_size=15, drop=[], split=["signs"], subwords=True)
    labels = tokenizer.tokens(tokenizer.encode("lower `Lows`"))
    assert labels == ["low", "##e", "##r", "<unk>", "low", "##s", "<unk>"]
    assert tokenizer.decode(tokenizer.encode("lows lowest")) == "lows lowest"


CODE = ["sorted(items, key=len)", "if x:\n    print('two words')", "print 'old'"]


@pytest.mark.parametrize("subwords", [False, True])
def test_decoded_code_equals_the_original(subwords: bool) -> None:
    tokenizer = python(CODE, max_size=80, subwords=subwords)
    assert [tokenizer.decode(tokenizer.encode(code)) for code in CODE] == CODE
    assert tokenizer.clean("print( 'two words' )") == "print('two words')"


def test_code_labels_show_newlines_and_indents() -> None:
    tokenizer = python(CODE, max_size=None)
    shown = tokenizer.tokens(tokenizer.encode(CODE[1]))
    assert shown == ["if", "x", ":", "⏎", "⇥", "print", "(", "'", "two", "␣", "words", "'", ")"]


def test_subwords_of_code_stay_within_pieces() -> None:
    tokenizer = python(["x.sort()", "sorted(xs)"] * 5, max_size=40, subwords=True)
    assert tokenizer.tokens(tokenizer.encode("sorts(x)")) == ["sort", "##s", "(", "x", ")"]
    assert tokenizer.spell("sortz(y)") == ["sort", "<unk>", "(", "<unk>", ")"]
    assert python(CODE, max_size=None).spell("sortz(y)") == ["sortz", "(", "y", ")"]


def test_subwords_require_max_size() -> None:
    with pytest.raises(UserError, match=r"requires tokenizer\.max_size"):
        python(CODE, max_size=None, subwords=True)
    with pytest.raises(UserError, match=r"tokenizer.max_size=3 is too small: .* have 5 distinct characters"):
        python(["ab.cb"], max_size=3, subwords=True)  # a, b, c and ., and b inside a word


# Closed vocabulary


def test_symbols_are_their_own_ids() -> None:
    tokenizer = symbols(["3 49"], count=47)
    assert tokenizer.size == 50
    assert tokenizer.encode("3 7 49") == [3, 7, 49]
    assert tokenizer.decode([SOS, 7, 3, EOS]) == "7 3"


def test_error_of_a_closed_vocabulary_names_the_token() -> None:
    tokenizer = symbols(["3"], count=47)
    with pytest.raises(UserError, match=r"token '77' is not in the vocabulary 3 … 49"):
        tokenizer.encode("3 77")
    with pytest.raises(UserError, match="token '<unk>'"):
        tokenizer.encode("<unk>")


# All tokenizers


@pytest.mark.parametrize("train", ALL)
def test_text_is_never_encoded_as_a_special_token(train: Training) -> None:
    special = "<pad> <sos> <eos> a<eos>b"
    tokenizer = train(SENTENCES + [special] * 20)
    ids = tokenizer.encode(special)
    assert not {PAD, SOS, EOS} & set(ids)
    assert tokenizer.decode(ids) == tokenizer.clean(special)


@pytest.mark.parametrize("train", ALL)
def test_unk_in_the_text_is_read_as_the_unknown_token(train: Training) -> None:
    tokenizer = train(SENTENCES + ["a<unk>b <unk>"] * 20)
    labels = tokenizer.tokens(range(tokenizer.size))
    assert len(set(labels)) == tokenizer.size  # no duplicate ids
    assert tokenizer.decode(tokenizer.encode("a<unk>b <unk>")) == tokenizer.clean("a<unk>b <unk>")


@pytest.mark.parametrize("train", ALL)
def test_json_round_trip(train: Training) -> None:
    tokenizer = train(SENTENCES)
    copy = Tokenizer.from_json(tokenizer.to_json())
    assert copy.to_json() == tokenizer.to_json()
    for text in [*SENTENCES, "  Neue, Wörter ", ""]:
        assert copy.encode(text) == tokenizer.encode(text)
        assert copy.clean(text) == tokenizer.clean(text)
        assert copy.decode(copy.encode(text)) == tokenizer.decode(tokenizer.encode(text))


@pytest.mark.parametrize("train", ALL)
def test_empty_text_has_no_tokens(train: Training) -> None:
    assert train(SENTENCES).encode("") == []
    assert train(SENTENCES).decode([]) == ""


LETTERS = "abc äß,'कीा्"


@pytest.mark.parametrize("train", ALL)
@given(text=st.text(LETTERS + " \n", max_size=20))
@settings(max_examples=30, deadline=None)
def test_decoding_gives_the_clean_text(train: Training, text: str) -> None:
    tokenizer = train([text, LETTERS + "\n"])
    assert tokenizer.decode(tokenizer.encode(text)) == tokenizer.clean(text)
    assert WordEncoder(tokenizer)([text, text]).tolist() == 2 * [tokenizer.encode(text)]
    assert all(id >= UNK for id in tokenizer.encode(text))


@given(text=st.text(LETTERS + " \n", max_size=20))
@settings(max_examples=30, deadline=None)
def test_characters_and_subwords_keep_all_but_a_leading_space(text: str) -> None:
    for graphemes in (False, True):
        assert characters([text], graphemes=graphemes).clean(text) == text
    assert subwords([LETTERS], max_size=30).clean(text) == text.removeprefix(" ")


@pytest.mark.parametrize("train", ALL)
def test_training_is_deterministic(train: Training) -> None:
    texts = [f"{first}{second} {second}{third}" for first in "abcde" for second in "äßक" for third in "xyz '"]
    assert train(texts).to_json() == train(texts).to_json()


# Vocabularies of both sides

PAIRS = [Pair("a b", "x"), Pair("a", "x a")]


def test_source_and_target_may_use_different_tokenizers() -> None:
    source, target = train_vocabularies(PAIRS, source=partial(whitespace, max_size=1), target=characters)
    assert (source.size, target.size) == (4 + 1, 4 + 3)


def test_shared_vocabulary() -> None:
    source, target = train_vocabularies(PAIRS, source=partial(whitespace, max_size=None), shared=True)
    assert source is target
    assert source.encode("a x b") == [4, 5, 6]  # 3 times, twice, once


def test_shared_vocabulary_rejects_a_target_tokenizer() -> None:
    settings = partial(whitespace, max_size=None)
    with pytest.raises(UserError, match="remove target_tokenizer"):
        train_vocabularies(PAIRS, source=settings, target=settings, shared=True)


def test_invisible_characters_of_training_texts_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    settings = partial(whitespace, max_size=None)
    train_vocabularies([Pair("a\u200c b 👩\u200d🔬", "x")], source=settings)
    assert caplog.messages == []  # joiners belong to the spelling
    train_vocabularies([Pair("\ufeffa\u200bb\u200b", "x"), Pair("\u202ea", "\u200b")], source=settings)
    assert caplog.messages == [
        "the training texts of the source contain invisible characters: U+200B ZERO WIDTH SPACE (2 times), "
        "U+202E RIGHT-TO-LEFT OVERRIDE (1 times), U+FEFF ZERO WIDTH NO-BREAK SPACE (1 times)",
        "the training texts of the target contain invisible characters: U+200B ZERO WIDTH SPACE (1 times)",
    ]


# Normalisation

COMPOSED, DECOMPOSED, LIGATURE = "caf\u00e9", "cafe\u0301", "\ufb01n"


@pytest.mark.parametrize(
    ("normalization", "texts", "warned"),
    [
        (None, (COMPOSED, DECOMPOSED), True),
        ("nfc", (COMPOSED, DECOMPOSED), False),
        ("nfd", (COMPOSED, DECOMPOSED), False),
        (None, (DECOMPOSED, "cafe"), False),
        (None, (COMPOSED, "r\u0325"), False),  # there is no composed form
    ],
)
def test_letters_in_two_forms_of_unicode_are_reported(
    caplog: pytest.LogCaptureFixture, normalization: str | None, texts: tuple[str, str], warned: bool
) -> None:
    settings = partial(characters, normalization=normalization)
    pairs = [Pair("x", text) for text in texts]
    train_vocabularies(pairs, source=settings)
    train_vocabularies(pairs[:1], source=characters, target=settings, others=[pairs[1:]])
    expected = [
        "the texts of the target contain 'é' (U+00E9; U+0065 U+0301) composed and decomposed, which are "
        f"different tokens: set {name}.normalization=nfc"
        for name in ("tokenizer", "target_tokenizer")
    ]
    assert caplog.messages == expected * warned


NORMALIZABLE = [
    pytest.param(partial(whitespace, max_size=None), id="whitespace"),
    pytest.param(characters, id="codepoints"),
    pytest.param(partial(characters, graphemes=True), id="graphemes"),
    pytest.param(partial(subwords, max_size=40), id="bpe"),
]


@pytest.mark.parametrize("lowercase", [False, True])
@pytest.mark.parametrize("form", [None, "nfc", "nfd", "nfkc", "nfkd"])
@pytest.mark.parametrize("method", NORMALIZABLE)
def test_texts_are_normalised_in_training_encoding_and_decoding(
    method: Callable[..., Tokenizer], form: str | None, lowercase: bool
) -> None:
    def expected(text: str) -> str:
        text = text if form is None else unicodedata.normalize(form.upper(), text)
        return text.lower() if lowercase else text

    texts = [f"{COMPOSED.upper()} Stra\u00dfe", f"{DECOMPOSED} {LIGATURE}", f"x\u00b2 {COMPOSED}"]
    trained = method(texts, lowercase=lowercase, normalization=form)
    for tokenizer in (trained, Tokenizer.from_json(trained.to_json())):
        for text in texts:
            ids = tokenizer.encode(text)
            assert UNK not in ids  # the vocabulary was trained on normalised texts
            assert tokenizer.decode(ids) == tokenizer.clean(text) == expected(text)
            assert tokenizer.encode(expected(text)) == ids


def test_class_of_the_user_is_restored_once_its_module_is_imported() -> None:
    module = ModuleType("halves")
    module.cut = lambda text: [text[: len(text) // 2], text[len(text) // 2 :]]
    module.join = "".join

    class Halves(PresplitTokenizer):
        KEY = "halves"

    Halves.module = module
    tokenizer = train_pieces(["abcd", "abxy"], kind=Halves)
    restored = Tokenizer.from_json(tokenizer.to_json())
    assert isinstance(restored, Halves)
    assert restored.decode(restored.encode("abcd")) == "abcd"
    assert restored.tokens(restored.encode("abzz")) == ["ab", "<unk>"]
    with pytest.raises(UserError, match="the tokenizer 'thirds' is unknown: import the module"):
        Tokenizer.from_json(tokenizer.to_json().replace("halves", "thirds"))


def test_words_of_tokens() -> None:
    texts = ["low lower lowest", "new newer newest"]
    assert whitespace(texts, max_size=None).words("low  newest zzz") == [0, 1, 2]
    split = words(texts, max_size=20, subwords=True, drop=[], split=["ascii_punctuation"])
    assert split.words("lowest, new")[-1] == 1
    for tokenizer in (split, subwords(texts, max_size=20)):
        numbers = tokenizer.words("lowest new lower")
        assert len(numbers) == len(tokenizer.encode("lowest new lower")) > 3
        assert numbers == sorted(numbers)
        assert set(numbers) == {0, 1, 2}
    code = python(["f(x)", "g(y)"], max_size=None)
    assert code.words("f(y)") == [0, 1, 2, 3]


WORDWISE = [
    partial(subwords, max_size=200),
    partial(subwords, max_size=200, normalization="nfkc", lowercase=True),
    partial(whitespace, normalization="nfd"),
    partial(words, drop=["signs"], split=["digits"], normalization="nfkc"),
    partial(words, max_size=400, subwords=True),
]
SPACES = " \t\u00a0\u2003▁"
MARKS = "\u0301\u0308\u00b4\uff9e\u1161"  # some become a space and a mark in NFKC


@pytest.mark.parametrize("train", WORDWISE)
@given(texts=st.lists(st.text("abAÅßé1½-" + 3 * SPACES + MARKS, max_size=12), max_size=6))
@settings(max_examples=40, deadline=None)
def test_ids_of_distinct_words_equal_the_ids_of_whole_texts(train: Training, texts: list[str]) -> None:
    tokenizer = train(["abAÅßé1½-" + SPACES + MARKS, *texts[:2]])
    encode = WordEncoder(tokenizer)
    assert encode.is_wordwise
    for _ in range(2):
        assert encode(texts).tolist() == [tokenizer.encode(text) for text in texts]


def test_custom_steps_are_not_assumed_to_be_wordwise() -> None:
    tokenizer = whitespace(["a b", "ab"])
    tokenizer._pipeline.normalizer = normalizers.Replace(Regex("a b"), "ab")
    assert not WordEncoder(tokenizer).is_wordwise
    assert WordEncoder(tokenizer)(["a b"]).tolist() == [[tokenizer.id_of("ab")]]


@pytest.mark.parametrize("train", [characters, whitespace])
def test_automatic_normalization_reads_hangul_as_letters(
    train: Callable[..., Tokenizer], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    tokenizer = train(["a", "각"], normalization="auto")
    assert tokenizer.normalise("각e\u0301") == "\u1100\u1161\u11a8e\u0301"
    assert tokenizer.encode("각") == tokenizer.encode("\u1100\u1161\u11a8")
    assert "normalization=nfd, from auto" in caplog.text
    caplog.clear()
    for texts in (["a", "\u1100ー"], ["a", "각", "é"], []):  # no syllable, few, no text
        assert train(texts, normalization="auto").normalise("e\u0301") == "é"
    assert not caplog.text


@pytest.mark.parametrize(
    "train",
    [characters, partial(words, normalization="auto"), partial(subwords, normalization="auto", max_size=20)],
)
def test_texts_of_an_iterator_are_read_more_than_once(train: Any) -> None:
    texts = ["abc de", "de fg"]
    assert train(iter(texts)).to_json() == train(texts).to_json()
