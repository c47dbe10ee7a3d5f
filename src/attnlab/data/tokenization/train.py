"""Tokenizers of words, subwords, characters and symbols, trained on training texts.

The settings are keyword-only, so that a configuration can bind them with `_partial_` before the texts are
available. Every function raises `UserError` if there are no texts.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, Literal, TypedDict, Unpack

from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Pipeline

from attnlab.data.features import FEATURE
from attnlab.data.tokenization.subwords import train_bpe, train_bpe_of_pieces, train_unigram
from attnlab.data.tokenization.tokenizer import (
    CONTINUATION,
    SPECIAL_TOKENS,
    UNKNOWN,
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


class VocabularySettings(TypedDict, total=False):
    """Settings of a vocabulary.

    Args:
        max_size: keep this many most frequent tokens, without special tokens; None for all.
        min_frequency: rarer tokens are unknown.
    """

    max_size: Size | None
    min_frequency: Size


class TextSettings(TypedDict, total=False):
    """Settings of the normalisation of texts; by default there is none.

    Args:
        lowercase: convert texts to lower case.
        normalization: Unicode normalisation form; None for none.
    """

    lowercase: bool
    normalization: Normalization | None


class Settings(VocabularySettings, TextSettings, total=False):
    """Settings of a vocabulary and of the normalisation of texts."""


def whitespace(texts: Iterable[str], **settings: Unpack[Settings]) -> Tokenizer:
    """Train a tokenizer that splits at white space only.

    Ids are ordered by frequency, then by code points.
    """
    return train_pieces(texts, pre_tokenizers.WhitespaceSplit(), **settings)


def words(
    texts: Iterable[str],
    *,
    lowercase: bool = True,
    normalization: Normalization | None = "nfc",
    drop: Sequence[str] = ("punctuation",),
    split: Sequence[str] = (),
    subwords: bool = False,
    dropout: Fraction = 0.0,
    **settings: Unpack[VocabularySettings],
) -> Tokenizer:
    """Train a tokenizer of natural-language words: texts are normalised and split at white space.

    Args:
        texts: training texts.
        lowercase: convert texts to lower case.
        normalization: Unicode normalisation form; None for none.
        drop: character classes to delete, names of `CHARACTERS`: "well-known" becomes "wellknown". Combining
            marks, such as Devanagari vowel signs, are not punctuation.
        split: character classes that become single tokens, such as drop=[] split=[punctuation].
        subwords: split words further into `max_size` subwords by byte-pair encoding.
        dropout: BPE dropout: probability of leaving out each merge in training; needs `subwords`.
        **settings: of the vocabulary.
    """
    if dropout and not subwords:
        raise UserError("tokenizer.dropout drops merges of subwords: set tokenizer.subwords=true")
    pre_tokenizer: list[pre_tokenizers.PreTokenizer] = [pre_tokenizers.WhitespaceSplit()]
    if split:
        pre_tokenizer.append(pre_tokenizers.Split(_character_class("split", split), "isolated"))
    return train_pieces(
        texts,
        pre_tokenizers.Sequence(pre_tokenizer),
        decoders.WordPiece(prefix=CONTINUATION, cleanup=False) if subwords else None,
        lowercase=lowercase,
        normalization=normalization,
        deleted=[normalizers.Replace(_character_class("drop", drop), "")] if drop else [],
        subwords=subwords,
        dropout=dropout,
        **settings,
    )


def characters(texts: Iterable[str], *, graphemes: bool = False, **settings: Unpack[Settings]) -> Tokenizer:
    """Train a tokenizer of characters, white space included; a feature of a source is one token.

    Args:
        texts: training texts.
        graphemes: extended grapheme clusters (a letter with its combining marks) instead of code points.
        **settings: of the vocabulary and the normalisation.
    """
    texts = _check_texts(texts)
    character = r"\X" if graphemes else "(?m:.)"  # m: the dot also matches a newline
    if any(re.search(FEATURE, text) for text in texts):
        character = f"{FEATURE}|{character}"
    return train_pieces(
        texts, pre_tokenizers.Split(Regex(character), "isolated"), decoders.Fuse(), **settings
    )


def subwords(
    texts: Iterable[str],
    *,
    algorithm: Literal["bpe", "unigram"] = "bpe",
    max_size: Size = 4000,
    dropout: Fraction = 0.0,
    **settings: Unpack[TextSettings],
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
        dropout: BPE dropout: probability of leaving out each merge in training; needs algorithm="bpe".
        **settings: of the normalisation.
    """
    if dropout and algorithm != "bpe":
        raise UserError(
            "tokenizer.dropout leaves out merges of byte-pair encoding: set tokenizer.algorithm=bpe"
        )
    pipeline = _pipeline(pre_tokenizers.Metaspace(), decoders.Metaspace(), **settings)
    texts = _check_texts(texts)
    if pipeline.normalizer:
        texts = _Normalised(pipeline.normalizer.normalize_str, texts)
    train = train_bpe if algorithm == "bpe" else train_unigram
    pipeline.model = train(texts, max_size=max_size)
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
    decoder: decoders.Decoder | None = None,
    *,
    lowercase: bool = False,
    normalization: Normalization | None = None,
    deleted: Sequence[normalizers.Normalizer] = (),
) -> Pipeline:
    steps = [getattr(normalizers, normalization.upper())()] if normalization else []
    steps += [*([normalizers.Lowercase()] if lowercase else []), *deleted]
    pipeline = Pipeline(models.WordLevel({}, UNKNOWN))
    pipeline.normalizer = normalizers.Sequence(steps) if steps else None
    pipeline.pre_tokenizer = pre_tokenizer
    pipeline.decoder = decoder
    return pipeline


class _Normalised:
    """Texts that are normalised whenever they are read."""

    def __init__(self, normalise: Callable[[str], str], texts: Iterable[str]) -> None:
        self._normalise = normalise
        self._texts = texts

    def __iter__(self) -> Iterator[str]:
        return map(self._normalise, self._texts)


def _check_texts(texts: Iterable[str]) -> Iterable[str]:
    """Return the texts as an object that can be read repeatedly; there must be one."""
    checked = list(texts) if isinstance(texts, Iterator) else texts
    if next(iter(checked), None) is None:
        raise UserError("the tokenizer cannot be trained: the training split is empty")
    return checked


def train_pieces(
    texts: Iterable[str],
    *parts: Any,
    kind: type[Tokenizer] = Tokenizer,
    subwords: bool = False,
    dropout: float = 0.0,
    max_size: int | None = None,
    min_frequency: int = 1,
    **settings: Any,
) -> Tokenizer:
    """Train a vocabulary of whole pieces, or of subwords within each; other arguments as of `_pipeline`.

    The library's own trainer gives a piece spelled `<unk>` two ids, one of them without a token.
    """
    untrained = _pipeline(*parts, **settings)
    tokenizer = kind(untrained, dropout=dropout)
    counts = Counter(chain.from_iterable(map(tokenizer.pieces, _check_texts(texts))))
    if subwords:
        untrained.model = train_bpe_of_pieces(counts, max_size=max_size, min_frequency=min_frequency)
        return tokenizer
    del counts[UNKNOWN]
    frequent = sorted((-count, piece) for piece, count in counts.items() if count >= min_frequency)
    vocabulary = [UNKNOWN, *(piece for _, piece in frequent[:max_size])]
    untrained.model = models.WordLevel({piece: id for id, piece in enumerate(vocabulary)}, UNKNOWN)
    return tokenizer


def _character_class(setting: str, names: Sequence[str]) -> Regex:
    for name in names:
        if name not in CHARACTERS:
            raise UserError(
                f"Unknown character class {name!r} in tokenizer.{setting}. Choose from: "
                f"{', '.join(CHARACTERS)}"
            )
    return Regex("|".join(CHARACTERS[name] for name in names))
