"""Tokenizers of words, subwords, characters and symbols, trained on training texts."""

import logging
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any, Literal, TypedDict, Unpack

from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, trainers
from tokenizers import Tokenizer as Pipeline

from attnlab.data.tokenization.tokenizer import CONTINUATION, SPECIAL_TOKENS, UNKNOWN, Tokenizer
from attnlab.errors import UserError
from attnlab.files.predictions import FEATURE
from attnlab.settings import Size

log = logging.getLogger(__name__)

Normalization = Literal["nfc", "nfd", "nfkc", "nfkd", "auto"]
"""Unicode normalisation forms; auto: nfd if half of the texts have Hangul syllables, and else nfc."""

HANGUL = re.compile("[가-힣]")  # A Hangul syllable, which nfd splits into letters

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
        normalization: Unicode normalisation form; "auto" for nfd if half of the training texts or more have
            Hangul syllables, which become letters, and else nfc; None for none.
    """

    lowercase: bool
    normalization: Normalization | None


class Settings(VocabularySettings, TextSettings, total=False):
    """Settings of a vocabulary and of the normalisation of texts."""


def whitespace(texts: Iterable[str], **settings: Unpack[Settings]) -> Tokenizer:
    """Train a tokenizer that splits at white space only."""
    return train_pieces(texts, pre_tokenizers.WhitespaceSplit(), **settings)


def words(
    texts: Iterable[str],
    *,
    lowercase: bool = True,
    normalization: Normalization | None = "nfc",
    drop: Sequence[str] = ("punctuation",),
    split: Sequence[str] = (),
    subwords: bool = False,
    **settings: Unpack[VocabularySettings],
) -> Tokenizer:
    """Train a tokenizer of natural-language words: texts are normalised and split at white space.

    Args:
        lowercase: convert texts to lower case.
        normalization: Unicode normalisation form; None for none.
        drop: character classes to delete, names of `CHARACTERS`: "well-known" becomes "wellknown". Combining
            marks, such as Devanagari vowel signs, are not punctuation.
        split: character classes that become single tokens, such as drop=[] split=[punctuation].
        subwords: split words further into `max_size` subwords by byte-pair encoding.
    """
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
        **settings,
    )


def characters(texts: Iterable[str], *, graphemes: bool = False, **settings: Unpack[Settings]) -> Tokenizer:
    """Train a tokenizer of characters, white space included; a feature of a source is one token.

    Args:
        graphemes: extended grapheme clusters (a letter with its combining marks) instead of code points.
    """
    texts = _repeatable(texts)
    character = r"\X" if graphemes else "(?m:.)"  # m: the dot also matches a newline
    if any(re.search(FEATURE, text) for text in texts):
        character = f"{FEATURE}|{character}"
    return train_pieces(
        texts, pre_tokenizers.Split(Regex(character), "isolated"), decoders.Fuse(), **settings
    )


def subwords(texts: Iterable[str], *, max_size: Size = 4000, **settings: Unpack[TextSettings]) -> Tokenizer:
    """Train byte-pair encoding (Sennrich et al., 2016, arXiv 1508.07909) across the words of a text.

    A space is written as `▁` at the start of the next token, and a `▁` is added at the start of each text.
    Decoding restores all spaces, except for one at the very start of a text; a `▁` in the text is decoded as
    a space.

    Args:
        max_size: vocabulary size without special tokens.
    """
    texts = _repeatable(texts)
    pipeline = _pipeline(pre_tokenizers.Metaspace(), decoders.Metaspace(), texts=texts, **settings)
    pipeline.model = _train_bpe(texts, pipeline, max_size=max_size)
    return Tokenizer(pipeline)


def symbols(texts: Iterable[str], *, count: Size) -> Tokenizer:
    """Return the closed vocabulary of a synthetic task: PAD, SOS, EOS, `count` numbers from 3 on, and signs.

    Each number is its own id, and there is no UNK: encoding other tokens raises `UserError`. The signs are
    the other tokens of the texts, such as "+", in sorted order.

    Args:
        count: number of symbols.
    """
    numbers = [str(len(SPECIAL_TOKENS) + id) for id in range(count)]
    signs = {token for text in texts for token in text.split()} - {*numbers}
    pipeline = _pipeline(pre_tokenizers.WhitespaceSplit())
    vocabulary = {token: id for id, token in enumerate([*numbers, *sorted(signs)])}
    pipeline.model = models.WordLevel(vocabulary, UNKNOWN)
    return Tokenizer(pipeline)


def _repeatable(texts: Iterable[str]) -> Iterable[str]:
    """Return texts that can be read more than once: those of an iterator as a list."""
    return list(texts) if iter(texts) is texts else texts


def _pipeline(
    pre_tokenizer: pre_tokenizers.PreTokenizer | None = None,
    decoder: decoders.Decoder | None = None,
    *,
    texts: Iterable[str] = (),
    lowercase: bool = False,
    normalization: Normalization | None = None,
    deleted: Sequence[normalizers.Normalizer] = (),
) -> Pipeline:
    if normalization == "auto":
        korean = [HANGUL.search(text) is not None for text in texts]
        normalization = "nfd" if any(korean) and 2 * sum(korean) >= len(korean) else "nfc"
        if normalization == "nfd":
            log.info("Hangul is read as letters: normalization=nfd, from auto; nfc reads whole syllables")
    steps = [getattr(normalizers, normalization.upper())()] if normalization else []
    steps += [*([normalizers.Lowercase()] if lowercase else []), *deleted]
    pipeline = Pipeline(models.WordLevel({}, UNKNOWN))
    pipeline.normalizer = normalizers.Sequence(steps) if steps else None
    pipeline.pre_tokenizer = pre_tokenizer
    pipeline.decoder = decoder
    return pipeline


def train_pieces(
    texts: Iterable[str],
    *parts: Any,
    kind: type[Tokenizer] = Tokenizer,
    subwords: bool = False,
    max_size: int | None = None,
    min_frequency: int = 1,
    **settings: Any,
) -> Tokenizer:
    """Train a vocabulary of whole pieces, or of subwords within each; other arguments as of `_pipeline`.

    The library's own trainer gives a piece spelled `<unk>` two ids, one of them without a token.
    """
    texts = _repeatable(texts)
    untrained = _pipeline(*parts, texts=texts, **settings)
    tokenizer = kind(untrained)
    counts = Counter(chain.from_iterable(map(tokenizer.pieces, texts)))
    if subwords:
        if max_size is None:
            raise UserError("tokenizer.subwords=true requires tokenizer.max_size, the number of subwords")
        # Listed explicitly, because the trainer would number them in the random order of a hash table
        continuing = sorted({CONTINUATION + character for piece in counts for character in piece[1:]})
        untrained.model = _train_bpe(
            counts.elements(),
            Pipeline(models.BPE()),
            max_size=max_size,
            special_tokens=continuing,
            min_frequency=min_frequency,
            continuing_subword_prefix=CONTINUATION,
        )
        return tokenizer
    del counts[UNKNOWN]
    frequent = sorted((-count, piece) for piece, count in counts.items() if count >= min_frequency)
    vocabulary = [UNKNOWN, *(piece for _, piece in frequent[:max_size])]
    untrained.model = models.WordLevel({piece: id for id, piece in enumerate(vocabulary)}, UNKNOWN)
    return tokenizer


def _train_bpe(
    texts: Iterable[str],
    parts: Pipeline,
    *,
    max_size: int,
    special_tokens: Sequence[str] = (),
    min_frequency: int = 0,
    **prefix: Any,
) -> models.Model:
    """Train byte-pair encoding on texts that are normalised and split as by `parts`.

    It is trained in a temporary pipeline: after training a pipeline would search raw text for `<unk>`.
    """
    pipeline = Pipeline(models.BPE(unk_token=UNKNOWN, **prefix))
    pipeline.normalizer, pipeline.pre_tokenizer = parts.normalizer, parts.pre_tokenizer
    trainer = trainers.BpeTrainer(
        vocab_size=max_size + 1,
        min_frequency=min_frequency,
        special_tokens=[UNKNOWN, *special_tokens],
        show_progress=False,
        **prefix,
    )
    pipeline.train_from_iterator(texts, trainer)
    if (size := pipeline.get_vocab_size() - 1) > max_size:
        raise UserError(
            f"tokenizer.max_size={max_size} is too small: the training texts have {size} distinct "
            "characters, and each must be in the vocabulary"
        )
    trained: models.Model = pipeline.model
    return trained


def _character_class(setting: str, names: Sequence[str]) -> Regex:
    for name in names:
        if name not in CHARACTERS:
            raise UserError(
                f"Unknown character class {name!r} in tokenizer.{setting}. Choose from: "
                f"{', '.join(CHARACTERS)}"
            )
    return Regex("|".join(CHARACTERS[name] for name in names))
