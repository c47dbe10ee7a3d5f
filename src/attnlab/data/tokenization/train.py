"""Tokenizers of words, Python code, characters and symbols, with the training of their vocabularies.

Each function trains a `Tokenizer` on the texts of a training split. The settings are keyword-only, so that a
configuration can bind them with `_partial_` before the texts are available.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain

from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Pipeline

from attnlab.data.tokenization.pipelines import check_texts, make_normalizer, make_pipeline
from attnlab.data.tokenization.subwords import train_subwords_of_words
from attnlab.data.tokenization.tokenizer import (
    CONTINUATION,
    SPECIAL_TOKENS,
    UNKNOWN,
    PythonTokenizer,
    Tokenizer,
)
from attnlab.errors import UserError


def whitespace(
    texts: Iterable[str],
    *,
    max_size: int | None,
    min_frequency: int = 1,
    lowercase: bool = False,
    normalization: str | None = None,
) -> Tokenizer:
    """Train a tokenizer that splits at white space only.

    Args:
        texts: training texts.
        max_size: number of most frequent words in the vocabulary, special tokens not counted; None for all.
            Words of equal frequency are ordered by code points.
        min_frequency: minimum number of occurrences of a word.
        lowercase: convert texts to lower case.
        normalization: Unicode normalisation form, nfc, nfd, nfkc or nfkd; None for none.

    Raises:
        UserError: if there are no texts, or the normalisation form is unknown.
    """
    normalizer = make_normalizer(normalization, lowercase)
    untrained = Tokenizer(_word_pipeline(pre_tokenizers.WhitespaceSplit(), normalizer=normalizer))
    return _train_words(untrained, texts, max_size=max_size, min_frequency=min_frequency)


CHARACTERS = {
    "apostrophes": "['’ʼ]",
    "ascii_punctuation": r"[!-/:-@\[-`{-~]",
    "punctuation": r"[\p{P}$+<=>^`|~]",  # Unicode punctuation and nine ASCII symbols
    "ascii_digits": "[0-9]",
    "devanagari_digits": "[०-९]",
    "signs": r"[^\w\s]",  # characters that cannot occur in a Python identifier
    "digits": r"\p{Nd}",  # decimal digits of all scripts
}
"""Character classes that `words` can drop or split off, by name."""


def words(
    texts: Iterable[str],
    *,
    max_size: int | None,
    min_frequency: int = 1,
    lowercase: bool = True,
    normalization: str | None = "nfc",
    drop: Sequence[str] = (),
    split: Sequence[str] = (),
    subwords: bool = False,
    dropout: float = 0.0,
) -> Tokenizer:
    """Train a tokenizer of natural-language words: texts are normalised and split at white space.

    Args:
        texts: training texts.
        max_size: as in `whitespace`, or with `subwords` as in `python`.
        min_frequency: as in `whitespace`, or with `subwords` as in `python`.
        lowercase: convert texts to lower case.
        normalization: as in `whitespace`.
        drop: names of the `CHARACTERS` classes whose characters are deleted: "well-known" becomes
            "wellknown". Combining marks, such as Devanagari vowel signs, are not punctuation.
        split: names of the `CHARACTERS` classes whose characters become single tokens.
        subwords: split words into subwords, as `python` does.
        dropout: as in `attnlab.data.tokenization.subwords.subwords`; needs `subwords`.

    Raises:
        UserError: if there are no texts, a character class is unknown, or `max_size` is too small for
        `subwords`.
    """
    if dropout and not subwords:
        raise UserError("tokenizer.dropout drops merges of subwords: set tokenizer.subwords=true")
    deleted = [normalizers.Replace(_character_class("drop", drop), "")] if drop else []
    pre_tokenizer: list[pre_tokenizers.PreTokenizer] = [pre_tokenizers.WhitespaceSplit()]
    if split:
        pre_tokenizer.append(pre_tokenizers.Split(_character_class("split", split), "isolated"))
    untrained = _word_pipeline(
        pre_tokenizers.Sequence(pre_tokenizer),
        normalizer=make_normalizer(normalization, lowercase, deleted),
        decoder=decoders.WordPiece(prefix=CONTINUATION, cleanup=False) if subwords else None,
    )
    train = train_subwords_of_words if subwords else _train_words
    tokenizer = Tokenizer(untrained, dropout=dropout)
    return train(tokenizer, texts, max_size=max_size, min_frequency=min_frequency)


def python(
    texts: Iterable[str], *, max_size: int | None, min_frequency: int = 1, subwords: bool = False
) -> Tokenizer:
    """Train a tokenizer of Python code with the pieces of `attnlab.data.tokenization.python_code`.

    Decoded Python has the same syntax tree as the original; other text is decoded exactly, except for unknown
    tokens.

    Args:
        texts: training texts.
        max_size: as in `whitespace`; with `subwords` the number of subwords, which is required.
        min_frequency: as in `whitespace`; with `subwords` the minimum number of occurrences of a merged pair.
        subwords: split pieces by byte-pair encoding, never across pieces. A subword that continues a piece
            starts with `##`: `isinstance` may become `is ##instance`.

    Raises:
        UserError: if there are no texts, or with `subwords` if `max_size` is missing or smaller than the
            number of characters in the texts.
    """
    train = train_subwords_of_words if subwords else _train_words
    return train(PythonTokenizer(_word_pipeline()), texts, max_size=max_size, min_frequency=min_frequency)


def characters(
    texts: Iterable[str],
    *,
    max_size: int | None = None,
    min_frequency: int = 1,
    lowercase: bool = False,
    normalization: str | None = None,
    graphemes: bool = False,
) -> Tokenizer:
    """Train a tokenizer of characters, white space included.

    Args:
        texts: training texts.
        max_size: as in `whitespace`.
        min_frequency: as in `whitespace`.
        lowercase: as in `whitespace`.
        normalization: as in `whitespace`.
        graphemes: use extended grapheme clusters (letters with their combining marks) instead of code points.

    Raises:
        UserError: if there are no texts.
    """
    character = Regex(r"\X" if graphemes else "(?m:.)")  # m: the dot also matches a newline
    pipeline = _word_pipeline(
        pre_tokenizers.Split(character, "isolated"),
        normalizer=make_normalizer(normalization, lowercase),
        decoder=decoders.Fuse(),
    )
    return _train_words(Tokenizer(pipeline), texts, max_size=max_size, min_frequency=min_frequency)


def symbols(texts: Iterable[str], *, count: int) -> Tokenizer:
    """Return the closed vocabulary of a synthetic task: PAD, SOS, EOS, `count` numbers from 3 on, and signs.

    Each symbol is its own id, and there is no UNK: encoding other tokens raises `UserError`.

    Args:
        texts: training texts. Their tokens that are no symbols, such as "+", follow in sorted order.
        count: number of symbols.

    Raises:
        UserError: if there are no texts.
    """
    numbers = [str(len(SPECIAL_TOKENS) + id) for id in range(count)]
    signs = {token for text in check_texts(texts) for token in text.split()} - {*numbers}
    vocabulary = {token: id for id, token in enumerate([*numbers, *sorted(signs)])}
    return Tokenizer(make_pipeline(models.WordLevel(vocabulary, UNKNOWN), pre_tokenizers.WhitespaceSplit()))


def _word_pipeline(
    pre_tokenizer: pre_tokenizers.PreTokenizer | None = None,
    *,
    normalizer: normalizers.Normalizer | None = None,
    decoder: decoders.Decoder | None = None,
) -> Pipeline:
    """Return a pipeline with an empty vocabulary."""
    return make_pipeline(models.WordLevel({}, UNKNOWN), pre_tokenizer, normalizer=normalizer, decoder=decoder)


def _train_words(
    untrained: Tokenizer, texts: Iterable[str], *, max_size: int | None, min_frequency: int
) -> Tokenizer:
    """Train a vocabulary of whole pieces.

    The library's own trainer gives a piece spelled `<unk>` two ids, one of them without a token.
    """
    counts = Counter(chain.from_iterable(map(untrained.pieces, check_texts(texts))))
    del counts[UNKNOWN]
    frequent = sorted((-count, piece) for piece, count in counts.items() if count >= min_frequency)
    vocabulary = [UNKNOWN, *(piece for _, piece in frequent[:max_size])]
    return untrained.set_model(models.WordLevel({piece: id for id, piece in enumerate(vocabulary)}, UNKNOWN))


def _character_class(setting: str, names: Sequence[str]) -> Regex:
    """Return a pattern that matches one character of the named classes."""
    for name in names:
        if name not in CHARACTERS:
            raise UserError(
                f"Unknown character class {name!r} in tokenizer.{setting}. Choose from: "
                f"{', '.join(CHARACTERS)}"
            )
    return Regex("|".join(CHARACTERS[name] for name in names))
