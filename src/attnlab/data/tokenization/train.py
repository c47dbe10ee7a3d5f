"""Tokenizer types and the training of their vocabularies, based on Hugging Face `tokenizers`.

Each function trains a `Tokenizer` on the texts of a training split. The settings are keyword-only, so that a
configuration can bind them with `_partial_` before the texts are available.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain

from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, trainers
from tokenizers import Tokenizer as Pipeline

from attnlab.data.tokenization.tokenizer import (
    CONTINUATION,
    SPECIAL_TOKENS,
    UNKNOWN,
    PythonTokenizer,
    Tokenizer,
)
from attnlab.errors import UserError

NORMALIZATIONS = {
    "nfc": normalizers.NFC,
    "nfd": normalizers.NFD,
    "nfkc": normalizers.NFKC,
    "nfkd": normalizers.NFKD,
}
"""Unicode normalisation forms by the name of their setting."""


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
        normalization: Unicode normalisation form, a key of `NORMALIZATIONS`; None for none.

    Raises:
        UserError: if there are no texts, or the normalisation form is unknown.
    """
    normalizer = _normalizer(normalization, lowercase)
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
        dropout: as in `bpe`; needs `subwords`.

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
        normalizer=_normalizer(normalization, lowercase, deleted),
        decoder=decoders.WordPiece(prefix=CONTINUATION, cleanup=False) if subwords else None,
    )
    train = _train_subwords_of_words if subwords else _train_words
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
    train = _train_subwords_of_words if subwords else _train_words
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
        normalizer=_normalizer(normalization, lowercase),
        decoder=decoders.Fuse(),
    )
    return _train_words(Tokenizer(pipeline), texts, max_size=max_size, min_frequency=min_frequency)


def bpe(
    texts: Iterable[str],
    *,
    max_size: int,
    lowercase: bool = False,
    normalization: str | None = None,
    dropout: float = 0.0,
) -> Tokenizer:
    """Train a subword tokenizer by byte-pair encoding (Sennrich et al. 2016, arXiv 1508.07909).

    A space is written as `▁` at the start of the next token, and a `▁` is added at the start of each text.
    Decoding restores all spaces, except for one at the very start of a text; a `▁` in the text is decoded as
    a space.

    Args:
        texts: training texts.
        max_size: number of subwords, special tokens not counted; fewer if no pair is left to merge.
        lowercase: as in `whitespace`.
        normalization: as in `whitespace`.
        dropout: probability of leaving out each merge of a training text in each epoch; see
            `attnlab.data.tokenization.bpe_dropout`.

    Raises:
        UserError: if there are no texts, or `max_size` is smaller than the number of characters in them.
    """
    trainer = trainers.BpeTrainer(vocab_size=max_size + 1, special_tokens=[UNKNOWN], show_progress=False)
    normalizer = _normalizer(normalization, lowercase)
    checked = _check_max_size(_normalized(texts, normalizer), max_size)
    trained = _train_model(models.BPE(unk_token=UNKNOWN), trainer, checked, pre_tokenizers.Metaspace())
    return _subword_tokenizer(trained.model, normalizer, dropout=dropout)


def unigram(
    texts: Iterable[str], *, max_size: int, lowercase: bool = False, normalization: str | None = None
) -> Tokenizer:
    """Train a subword tokenizer by a unigram language model (Kudo 2018, arXiv 1804.10959).

    A text is split into its most likely segmentation. Spaces are treated as in `bpe`. Adjacent unknown
    characters are one unknown token.

    Args:
        texts: training texts.
        max_size: maximum number of subwords, special tokens not counted.
        lowercase: as in `whitespace`.
        normalization: as in `whitespace`.

    Raises:
        UserError: if there are no texts, or `max_size` is smaller than the number of characters in them.
    """
    trainer = trainers.UnigramTrainer(
        vocab_size=max_size + 1, special_tokens=[UNKNOWN], unk_token=UNKNOWN, show_progress=False
    )
    normalizer = _normalizer(normalization, lowercase)
    checked = _check_max_size(_normalized(texts, normalizer), max_size)
    trained = _train_model(models.Unigram(), trainer, checked, pre_tokenizers.Metaspace())
    scores = _reproducible_scores(json.loads(trained.to_str())["model"]["vocab"])
    return _subword_tokenizer(models.Unigram(scores, unk_id=0), normalizer)


def symbols(texts: Iterable[str], *, count: int) -> Tokenizer:
    """Return the closed vocabulary of a synthetic task: PAD, SOS, EOS and the `count` numbers from 3 on.

    Each symbol is its own id, and there is no UNK: encoding other tokens raises `UserError`.

    Args:
        texts: training texts, which are only checked.
        count: number of symbols.

    Raises:
        UserError: if there are no texts, or one has tokens other than the symbols.
    """
    vocabulary = {str(len(SPECIAL_TOKENS) + id): id for id in range(count)}
    tokenizer = Tokenizer(_pipeline(models.WordLevel(vocabulary, UNKNOWN), pre_tokenizers.WhitespaceSplit()))
    tokenizer.encode_all(_check_texts(texts))
    return tokenizer


def _pipeline(
    model: models.Model,
    pre_tokenizer: pre_tokenizers.PreTokenizer | None,
    *,
    normalizer: normalizers.Normalizer | None = None,
    decoder: decoders.Decoder | None = None,
) -> Pipeline:
    pipeline = Pipeline(model)
    pipeline.normalizer = normalizer
    pipeline.pre_tokenizer = pre_tokenizer
    pipeline.decoder = decoder
    return pipeline


def _word_pipeline(
    pre_tokenizer: pre_tokenizers.PreTokenizer | None = None,
    *,
    normalizer: normalizers.Normalizer | None = None,
    decoder: decoders.Decoder | None = None,
) -> Pipeline:
    """Return a pipeline with an empty vocabulary."""
    return _pipeline(models.WordLevel({}, UNKNOWN), pre_tokenizer, normalizer=normalizer, decoder=decoder)


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


def _train_subwords_of_words(
    untrained: Tokenizer, texts: Iterable[str], *, max_size: int | None, min_frequency: int
) -> Tokenizer:
    """Train a vocabulary of subwords, each within one piece."""
    if max_size is None:
        raise UserError("tokenizer.subwords=true requires tokenizer.max_size, the number of subwords")
    pieces = list(chain.from_iterable(map(untrained.pieces, _check_texts(texts))))
    characters = {character for piece in pieces for character in piece}
    # Listed explicitly, because the trainer would number them in the random order of a hash table
    continuing = sorted({CONTINUATION + character for piece in pieces for character in piece[1:]})
    _check_capacity(max_size, needed=len(characters) + len(continuing))
    trainer = trainers.BpeTrainer(
        vocab_size=max_size + 1,
        min_frequency=min_frequency,
        special_tokens=[UNKNOWN, *continuing],
        continuing_subword_prefix=CONTINUATION,
        show_progress=False,
    )
    model = models.BPE(unk_token=UNKNOWN, continuing_subword_prefix=CONTINUATION)
    return untrained.set_model(_train_model(model, trainer, pieces, pre_tokenizer=None).model)


def _subword_tokenizer(
    model: models.Model, normalizer: normalizers.Normalizer | None, *, dropout: float = 0.0
) -> Tokenizer:
    pipeline = _pipeline(
        model, pre_tokenizers.Metaspace(), normalizer=normalizer, decoder=decoders.Metaspace()
    )
    return Tokenizer(pipeline, dropout=dropout)


def _normalizer(
    normalization: str | None, lowercase: bool, more: Sequence[normalizers.Normalizer] = ()
) -> normalizers.Normalizer | None:
    """Return the normaliser of texts; None if nothing is to be done.

    Raises:
        UserError: if the normalisation form is unknown.
    """
    if normalization not in (None, *NORMALIZATIONS):
        raise UserError(
            f"tokenizer.normalization={normalization} must be one of {', '.join(NORMALIZATIONS)}, or null"
        )
    steps = [NORMALIZATIONS[normalization]()] if normalization else []
    steps += [normalizers.Lowercase()] if lowercase else []
    steps += more
    return normalizers.Sequence(steps) if steps else None


def _normalized(texts: Iterable[str], normalizer: normalizers.Normalizer | None) -> Iterable[str]:
    """Return the texts as the normaliser changes them."""
    return texts if normalizer is None else [normalizer.normalize_str(text) for text in texts]


def _train_model(
    model: models.Model,
    trainer: trainers.Trainer,
    texts: list[str],
    pre_tokenizer: pre_tokenizers.PreTokenizer | None,
) -> Pipeline:
    """Train a model in a temporary pipeline: after training a pipeline would search raw text for `<unk>`."""
    pipeline = _pipeline(model, pre_tokenizer)
    pipeline.train_from_iterator(texts, trainer)
    return pipeline


def _reproducible_scores(vocabulary: list[tuple[str, float]]) -> list[tuple[str, float]]:
    """Make the trained log-probabilities of a unigram model identical in every run.

    The library sums them in the random order of a hash table, which changes the last digits. Single
    characters that it needs only for coverage get scores 0.0001 apart, from the lowest up, in the same
    random order. Here these characters all get the lowest score, other scores are rounded to four decimals,
    and ties are sorted by spelling.
    """
    scores = {piece: score for piece, score in vocabulary if piece != UNKNOWN}
    lowest = min(scores.values(), default=0.0)
    threshold = lowest + 0.0001 * sum(len(piece) == 1 for piece in scores)
    rounded = {piece: round(lowest if score < threshold else score, 4) for piece, score in scores.items()}
    return [(UNKNOWN, 0.0), *sorted(rounded.items(), key=lambda item: (-item[1], item[0]))]


def _check_texts(texts: Iterable[str]) -> list[str]:
    """Return the texts as a list, or raise `UserError` if there are none."""
    checked = list(texts)
    if not checked:
        raise UserError("the tokenizer cannot be trained: the training split is empty")
    return checked


def _check_max_size(texts: Iterable[str], max_size: int) -> list[str]:
    """Return the texts as a list, or raise `UserError` if `max_size` is too small for their characters."""
    checked = _check_texts(texts)
    _check_capacity(max_size, needed=len({"▁"}.union(*checked) - {" "}))
    return checked


def _check_capacity(max_size: int, *, needed: int) -> None:
    """Raise `UserError` if the vocabulary is smaller than the number of characters."""
    if max_size < needed:
        raise UserError(
            f"tokenizer.max_size={max_size} is too small: the training texts have {needed} distinct "
            "characters, and each must be in the vocabulary"
        )


def _character_class(setting: str, names: Sequence[str]) -> Regex:
    """Return a pattern that matches one character of the named classes."""
    for name in names:
        if name not in CHARACTERS:
            raise UserError(
                f"Unknown character class {name!r} in tokenizer.{setting}. Choose from: "
                f"{', '.join(CHARACTERS)}"
            )
    return Regex("|".join(CHARACTERS[name] for name in names))
