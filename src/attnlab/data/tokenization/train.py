"""Tokenizers of words, subwords, characters, Python code and symbols, trained on training texts.

The settings are keyword-only, so that a configuration can bind them with `_partial_` before the texts are
available. Every function raises `UserError` if there are no texts.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Literal

from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Pipeline

from attnlab.data.features import FEATURE
from attnlab.data.tokenization.graphemes import grapheme_pattern
from attnlab.data.tokenization.subwords import train_bpe, train_bpe_of_pieces, train_unigram
from attnlab.data.tokenization.tokenizer import (
    CONTINUATION,
    SPECIAL_TOKENS,
    UNKNOWN,
    PythonTokenizer,
    Tokenizer,
)
from attnlab.errors import UserError
from attnlab.settings import Fraction, Size

Normalization = Literal["nfc", "nfd", "nfkc", "nfkd"]
"""Unicode normalisation forms."""

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


def whitespace(
    texts: Iterable[str],
    *,
    max_size: Size | None = None,
    min_frequency: Size = 1,
    lowercase: bool = False,
    normalization: Normalization | None = None,
) -> Tokenizer:
    """Train a tokenizer that splits at white space only.

    Ids are ordered by frequency, then by code points.

    Args:
        texts: training texts.
        max_size: keep this many most frequent tokens, without special tokens; None for all.
        min_frequency: rarer tokens are unknown.
        lowercase: convert texts to lower case.
        normalization: Unicode normalisation form; None for none.
    """
    untrained = _pipeline(pre_tokenizers.WhitespaceSplit(), _normalizer(normalization, lowercase))
    return _train_words(Tokenizer(untrained), texts, max_size=max_size, min_frequency=min_frequency)


def words(
    texts: Iterable[str],
    *,
    max_size: Size | None = None,
    min_frequency: Size = 1,
    lowercase: bool = True,
    normalization: Normalization | None = "nfc",
    drop: Sequence[str] = ("punctuation",),
    split: Sequence[str] = (),
    subwords: bool = False,
    dropout: Fraction = 0.0,
) -> Tokenizer:
    """Train a tokenizer of natural-language words: texts are normalised and split at white space.

    Args:
        texts: training texts.
        max_size: keep this many most frequent tokens, without special tokens; None for all.
        min_frequency: rarer tokens are unknown.
        lowercase: convert texts to lower case.
        normalization: Unicode normalisation form; None for none.
        drop: character classes to delete, names of `CHARACTERS`: "well-known" becomes "wellknown". Combining
            marks, such as Devanagari vowel signs, are not punctuation.
        split: character classes that become single tokens, such as drop=[] split=[punctuation].
        subwords: split words further into `max_size` subwords by byte-pair encoding.
        dropout: BPE dropout: probability of leaving out each merge in training; needs `subwords`.
    """
    if dropout and not subwords:
        raise UserError("tokenizer.dropout drops merges of subwords: set tokenizer.subwords=true")
    deleted = [normalizers.Replace(_character_class("drop", drop), "")] if drop else []
    pre_tokenizer: list[pre_tokenizers.PreTokenizer] = [pre_tokenizers.WhitespaceSplit()]
    if split:
        pre_tokenizer.append(pre_tokenizers.Split(_character_class("split", split), "isolated"))
    untrained = _pipeline(
        pre_tokenizers.Sequence(pre_tokenizer),
        _normalizer(normalization, lowercase, deleted),
        decoders.WordPiece(prefix=CONTINUATION, cleanup=False) if subwords else None,
    )
    train = _train_subwords if subwords else _train_words
    tokenizer = Tokenizer(untrained, dropout=dropout)
    return train(tokenizer, texts, max_size=max_size, min_frequency=min_frequency)


def python(
    texts: Iterable[str], *, max_size: Size | None = None, min_frequency: Size = 1, subwords: bool = False
) -> Tokenizer:
    """Train a tokenizer of Python code with the pieces of `attnlab.data.tokenization.python_code`.

    Decoded Python has the same syntax tree as the original; other text is decoded exactly, except for unknown
    tokens.

    Args:
        texts: training texts.
        max_size: keep this many most frequent tokens, without special tokens; None for all.
        min_frequency: rarer tokens are unknown.
        subwords: split pieces further into `max_size` subwords by byte-pair encoding: `isinstance` may become
            `is ##instance`.
    """
    train = _train_subwords if subwords else _train_words
    return train(PythonTokenizer(_pipeline()), texts, max_size=max_size, min_frequency=min_frequency)


def characters(
    texts: Iterable[str],
    *,
    max_size: Size | None = None,
    min_frequency: Size = 1,
    lowercase: bool = False,
    normalization: Normalization | None = None,
    graphemes: bool = False,
) -> Tokenizer:
    """Train a tokenizer of characters, white space included; a feature of a source is one token.

    Args:
        texts: training texts.
        max_size: keep this many most frequent tokens, without special tokens; None for all.
        min_frequency: rarer tokens are unknown.
        lowercase: convert texts to lower case.
        normalization: Unicode normalisation form; None for none.
        graphemes: extended grapheme clusters (a letter with its combining marks) instead of code points.
    """
    texts = list(texts)
    character = grapheme_pattern() if graphemes else "(?m:.)"  # m: the dot also matches a newline
    if any(re.search(FEATURE, text) for text in texts):
        character = f"{FEATURE}|{character}"
    untrained = _pipeline(
        pre_tokenizers.Split(Regex(character), "isolated"),
        _normalizer(normalization, lowercase),
        decoders.Fuse(),
    )
    return _train_words(Tokenizer(untrained), texts, max_size=max_size, min_frequency=min_frequency)


def subwords(
    texts: Iterable[str],
    *,
    algorithm: Literal["bpe", "unigram"] = "bpe",
    max_size: Size = 4000,
    lowercase: bool = False,
    normalization: Normalization | None = None,
    dropout: Fraction = 0.0,
) -> Tokenizer:
    """Train a tokenizer that splits a text into subwords, without splitting it into words first.

    A space is written as `▁` at the start of the next token, and a `▁` is added at the start of each text.
    Decoding restores all spaces, except for one at the very start of a text; a `▁` in the text is decoded as
    a space.

    Args:
        texts: training texts.
        algorithm: "bpe" for byte-pair encoding (Sennrich et al., 2016), or "unigram" for a unigram language
            model (Kudo, 2018).
        max_size: vocabulary size without special tokens.
        lowercase: convert texts to lower case.
        normalization: Unicode normalisation form; None for none.
        dropout: BPE dropout: probability of leaving out each merge in training; needs algorithm="bpe".
    """
    if dropout and algorithm != "bpe":
        raise UserError(
            "tokenizer.dropout leaves out merges of byte-pair encoding: set tokenizer.algorithm=bpe"
        )
    normalizer = _normalizer(normalization, lowercase)
    normalised = _check_texts(texts if normalizer is None else map(normalizer.normalize_str, texts))
    pipeline = _pipeline(pre_tokenizers.Metaspace(), normalizer, decoders.Metaspace())
    pipeline.model = (train_bpe if algorithm == "bpe" else train_unigram)(normalised, max_size=max_size)
    return Tokenizer(pipeline, dropout=dropout)


def symbols(texts: Iterable[str], *, count: Size) -> Tokenizer:
    """Return the closed vocabulary of a synthetic task: PAD, SOS, EOS, `count` numbers from 3 on, and signs.

    Each number is its own id, and there is no UNK: encoding other tokens raises `UserError`. The signs are
    the other tokens of the texts, such as "+", in sorted order.

    Args:
        texts: training texts.
        count: number of symbols.
    """
    numbers = [str(len(SPECIAL_TOKENS) + id) for id in range(count)]
    signs = {token for text in _check_texts(texts) for token in text.split()} - {*numbers}
    pipeline = _pipeline(pre_tokenizers.WhitespaceSplit())
    vocabulary = {token: id for id, token in enumerate([*numbers, *sorted(signs)])}
    pipeline.model = models.WordLevel(vocabulary, UNKNOWN)
    return Tokenizer(pipeline)


def _pipeline(
    pre_tokenizer: pre_tokenizers.PreTokenizer | None = None,
    normalizer: normalizers.Normalizer | None = None,
    decoder: decoders.Decoder | None = None,
) -> Pipeline:
    pipeline = Pipeline(models.WordLevel({}, UNKNOWN))
    pipeline.normalizer = normalizer
    pipeline.pre_tokenizer = pre_tokenizer
    pipeline.decoder = decoder
    return pipeline


def _normalizer(
    normalization: Normalization | None, lowercase: bool, more: Sequence[normalizers.Normalizer] = ()
) -> normalizers.Normalizer | None:
    steps = [getattr(normalizers, normalization.upper())()] if normalization else []
    steps += [normalizers.Lowercase()] if lowercase else []
    steps += more
    return normalizers.Sequence(steps) if steps else None


def _check_texts(texts: Iterable[str]) -> list[str]:
    checked = list(texts)
    if not checked:
        raise UserError("the tokenizer cannot be trained: the training split is empty")
    return checked


def _train_words(
    untrained: Tokenizer, texts: Iterable[str], *, max_size: int | None, min_frequency: int
) -> Tokenizer:
    """Train a vocabulary of whole pieces.

    The library's own trainer gives a piece spelled `<unk>` two ids, one of them without a token.
    """
    counts = Counter(chain.from_iterable(map(untrained.pieces, _check_texts(texts))))
    del counts[UNKNOWN]
    frequent = sorted((-count, piece) for piece, count in counts.items() if count >= min_frequency)
    vocabulary = [UNKNOWN, *(piece for _, piece in frequent[:max_size])]
    return untrained.set_model(models.WordLevel({piece: id for id, piece in enumerate(vocabulary)}, UNKNOWN))


def _train_subwords(
    untrained: Tokenizer, texts: Iterable[str], *, max_size: int | None, min_frequency: int
) -> Tokenizer:
    """Train a vocabulary of subwords, each within one piece."""
    pieces = list(chain.from_iterable(map(untrained.pieces, _check_texts(texts))))
    return untrained.set_model(train_bpe_of_pieces(pieces, max_size=max_size, min_frequency=min_frequency))


def _character_class(setting: str, names: Sequence[str]) -> Regex:
    for name in names:
        if name not in CHARACTERS:
            raise UserError(
                f"Unknown character class {name!r} in tokenizer.{setting}. Choose from: "
                f"{', '.join(CHARACTERS)}"
            )
    return Regex("|".join(CHARACTERS[name] for name in names))
