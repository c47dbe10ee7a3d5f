"""The kinds of tokenizers there are, and how each learns its vocabulary from a training split.

Every training function takes texts and returns a `Tokenizer`; its settings are keyword-only, so that a
configuration can fix them beforehand and leave the texts for later. Built on Hugging Face `tokenizers`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain

from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, trainers
from tokenizers import Tokenizer as Pipeline

from attnlab.data.tokenization.tokenizer import CONTINUED, MARKS, UNKNOWN, PythonTokenizer, Tokenizer
from attnlab.errors import UserError


def whitespace(texts: Iterable[str], *, max_size: int | None, min_frequency: int = 1) -> Tokenizer:
    """Tokens are what stands between white space.

    The vocabulary is the special tokens and the `max_size` most frequent words (None: all of them) that
    occur at least `min_frequency` times. Of equally frequent words, the first by code points come first.
    """
    blank = Tokenizer(_blank(pre_tokenizers.WhitespaceSplit()))
    return _most_frequent(blank, texts, max_size=max_size, min_frequency=min_frequency)


CHARACTERS = {
    "apostrophes": "['’ʼ]",
    "ascii_punctuation": r"[!-/:-@\[-`{-~]",
    "punctuation": r"[\p{P}$+<=>^`|~]",  # Unicode's, and ASCII's nine that Unicode calls symbols
    "ascii_digits": "[0-9]",
    "devanagari_digits": "[०-९]",
    "signs": r"[^\w\s]",  # what no name in a program can hold
    "digits": r"\p{Nd}",  # the decimal digits of every script
}
"""The classes of characters that `words` can drop or split off, by name."""


def words(
    texts: Iterable[str],
    *,
    max_size: int | None,
    min_frequency: int = 1,
    lowercase: bool = True,
    drop: Sequence[str] = (),
    split: Sequence[str] = (),
    subwords: bool = False,
) -> Tokenizer:
    """Words of natural language: cleaned, then split at white space.

    Texts are brought to Unicode's composed form (NFC) and lower-cased. The characters of the classes in
    `drop` are deleted, so that "well-known" becomes "wellknown"; each character of the classes in `split`
    becomes a token of its own. The names of classes are those of `CHARACTERS`. Combining marks, such as
    Devanagari's vowel signs, are never punctuation. The vocabulary is chosen as by `whitespace`; or with
    `subwords`, words are cut further, as by `python`.
    """
    cleaning: list[normalizers.Normalizer] = [normalizers.NFC()]
    if lowercase:
        cleaning.append(normalizers.Lowercase())
    if drop:
        cleaning.append(normalizers.Replace(_any_of("drop", drop), ""))
    cutting: list[pre_tokenizers.PreTokenizer] = [pre_tokenizers.WhitespaceSplit()]
    if split:
        cutting.append(pre_tokenizers.Split(_any_of("split", split), "isolated"))
    blank = _blank(
        pre_tokenizers.Sequence(cutting),
        normalizer=normalizers.Sequence(cleaning),
        decoder=decoders.WordPiece(prefix=CONTINUED, cleanup=False) if subwords else None,
    )
    learn = _most_frequent_parts if subwords else _most_frequent
    return learn(Tokenizer(blank), texts, max_size=max_size, min_frequency=min_frequency)


def python(
    texts: Iterable[str], *, max_size: int | None, min_frequency: int = 1, subwords: bool = False
) -> Tokenizer:
    """Python code, cut into the pieces of `attnlab.data.tokenization.python_code`.

    Decoding gives code back that has the same syntax tree, and a text that is not Python as it was, unknown
    pieces apart. The vocabulary is chosen as by `whitespace`. Or with `subwords`, a piece is cut further by
    byte-pair encoding, never across two pieces: the most frequent neighbours that occur at least
    `min_frequency` times merge until there are `max_size` subwords. A subword that continues a piece begins
    with `##`: `isinstance` may be read as `is ##instance`. Raises `UserError` where `max_size` has no room
    for every character of the texts.
    """
    learn = _most_frequent_parts if subwords else _most_frequent
    return learn(PythonTokenizer(_blank()), texts, max_size=max_size, min_frequency=min_frequency)


def characters(
    texts: Iterable[str], *, max_size: int | None = None, min_frequency: int = 1, graphemes: bool = False
) -> Tokenizer:
    """Tokens are characters, white space among them.

    A character is a Unicode code point; with `graphemes` it is what a reader would call one, a letter with
    the marks that combine with it (an extended grapheme cluster). The vocabulary is chosen as by
    `whitespace`.
    """
    character = Regex(r"\X" if graphemes else "(?m:.)")  # m: a dot that matches the end of a line too
    blank = Tokenizer(_blank(pre_tokenizers.Split(character, "isolated"), decoder=decoders.Fuse()))
    return _most_frequent(blank, texts, max_size=max_size, min_frequency=min_frequency)


def bpe(texts: Iterable[str], *, max_size: int) -> Tokenizer:
    """Subwords by byte-pair encoding [Sennrich et al. 2016].

    The most frequent neighbours merge until there are `max_size` subwords, besides the special tokens, or
    no pair is left. A space is written `▁` at the beginning of the next token, and a text begins as if a
    space stood before it. Decoding gives a text back to the last space, with two exceptions: one space at
    its very beginning is lost, and a `▁` in the text comes back as a space. Raises `UserError` where
    `max_size` has no room for every character of the texts.
    """
    trainer = trainers.BpeTrainer(vocab_size=max_size + 1, special_tokens=[UNKNOWN], show_progress=False)
    listed = _with_room(texts, max_size)
    return _subwords(_learn(models.BPE(unk_token=UNKNOWN), trainer, listed, pre_tokenizers.Metaspace()).model)


def unigram(texts: Iterable[str], *, max_size: int) -> Tokenizer:
    """Subwords by a unigram language model [Kudo 2018]: the likeliest segmentation of a text.

    There are at most `max_size` subwords, besides the special tokens. Spaces are treated, and `UserError`
    is raised, as by `bpe`. Unknown characters that stand side by side are one unknown piece.
    """
    trainer = trainers.UnigramTrainer(
        vocab_size=max_size + 1, special_tokens=[UNKNOWN], unk_token=UNKNOWN, show_progress=False
    )
    learnt = _learn(models.Unigram(), trainer, _with_room(texts, max_size), pre_tokenizers.Metaspace())
    return _subwords(models.Unigram(_settled(json.loads(learnt.to_str())["model"]["vocab"]), unk_id=0))


def symbols(texts: Iterable[str], *, count: int) -> Tokenizer:
    """The closed vocabulary of a synthetic task: PAD, SOS, EOS, then the `count` numbers from 3 on.

    So every symbol is its own id. There is no UNK: encoding anything but symbols with white space between
    them raises `UserError`, and so do `texts` of another task.
    """
    vocabulary = {str(len(MARKS) + id): id for id in range(count)}
    tokenizer = Tokenizer(_pipeline(models.WordLevel(vocabulary, UNKNOWN), pre_tokenizers.WhitespaceSplit()))
    tokenizer.encode_all(_some(texts))
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


def _blank(
    pre_tokenizer: pre_tokenizers.PreTokenizer | None = None,
    *,
    normalizer: normalizers.Normalizer | None = None,
    decoder: decoders.Decoder | None = None,
) -> Pipeline:
    """A pipeline that knows how to cut and to join, and no word yet."""
    return _pipeline(models.WordLevel({}, UNKNOWN), pre_tokenizer, normalizer=normalizer, decoder=decoder)


def _most_frequent(
    blank: Tokenizer, texts: Iterable[str], *, max_size: int | None, min_frequency: int
) -> Tokenizer:
    """A vocabulary of whole pieces.

    Counted here: the library's own trainer gives a piece spelt `<unk>` two ids and leaves one of them empty.
    """
    counts = Counter(chain.from_iterable(map(blank.pieces, _some(texts))))
    del counts[UNKNOWN]
    frequent = sorted((-count, piece) for piece, count in counts.items() if count >= min_frequency)
    vocabulary = [UNKNOWN, *(piece for _, piece in frequent[:max_size])]
    return blank.knowing(models.WordLevel({piece: id for id, piece in enumerate(vocabulary)}, UNKNOWN))


def _most_frequent_parts(
    blank: Tokenizer, texts: Iterable[str], *, max_size: int | None, min_frequency: int
) -> Tokenizer:
    """A vocabulary of subwords, each within a piece."""
    if max_size is None:
        raise UserError("tokenizer.subwords=true cuts words into so many subwords: set tokenizer.max_size")
    pieces = list(chain.from_iterable(map(blank.pieces, _some(texts))))
    characters = {character for piece in pieces for character in piece}
    # Named beforehand, for the trainer would number them in the random order of a hash table
    continuing = sorted({CONTINUED + character for piece in pieces for character in piece[1:]})
    _check_room(max_size, needed=len(characters) + len(continuing))
    trainer = trainers.BpeTrainer(
        vocab_size=max_size + 1,
        min_frequency=min_frequency,
        special_tokens=[UNKNOWN, *continuing],
        continuing_subword_prefix=CONTINUED,
        show_progress=False,
    )
    model = models.BPE(unk_token=UNKNOWN, continuing_subword_prefix=CONTINUED)
    return blank.knowing(_learn(model, trainer, pieces, pre_tokenizer=None).model)


def _subwords(model: models.Model) -> Tokenizer:
    return Tokenizer(_pipeline(model, pre_tokenizers.Metaspace(), decoder=decoders.Metaspace()))


def _learn(
    model: models.Model,
    trainer: trainers.Trainer,
    texts: list[str],
    pre_tokenizer: pre_tokenizers.PreTokenizer | None,
) -> Pipeline:
    """Train a model, in a pipeline to throw away: it would from then on search raw text for `<unk>`."""
    pipeline = _pipeline(model, pre_tokenizer)
    pipeline.train_from_iterator(texts, trainer)
    return pipeline


def _settled(vocabulary: list[tuple[str, float]]) -> list[tuple[str, float]]:
    """Make the learnt log-probabilities the same in every run.

    The library sums them in the random order of a hash table, which shows in their last digits; and it
    gives the characters that it needs for themselves alone, in that order too, scores 0.0001 apart, from
    the lowest up. They get the lowest, all others four decimals, and equals follow their spelling.
    """
    scores = {piece: score for piece, score in vocabulary if piece != UNKNOWN}
    lowest = min(scores.values(), default=0.0)
    near = lowest + 0.0001 * sum(len(piece) == 1 for piece in scores)
    settled = {piece: round(lowest if score < near else score, 4) for piece, score in scores.items()}
    return [(UNKNOWN, 0.0), *sorted(settled.items(), key=lambda item: (-item[1], item[0]))]


def _some(texts: Iterable[str]) -> list[str]:
    listed = list(texts)
    if not listed:
        raise UserError("there are no texts to learn a vocabulary from: the training split is empty")
    return listed


def _with_room(texts: Iterable[str], max_size: int) -> list[str]:
    """The texts, if a vocabulary of this size can hold all their characters."""
    listed = _some(texts)
    _check_room(max_size, needed=len({"▁"}.union(*listed) - {" "}))
    return listed


def _check_room(max_size: int, *, needed: int) -> None:
    if max_size < needed:
        raise UserError(
            f"tokenizer.max_size={max_size} is too small: the training texts hold {needed} characters, "
            "and each needs a place"
        )


def _any_of(setting: str, names: Sequence[str]) -> Regex:
    """What matches one character of the named classes."""
    for name in names:
        if name not in CHARACTERS:
            raise UserError(
                f"tokenizer.{setting}: no class of characters is called {name!r}; there are "
                f"{', '.join(CHARACTERS)}"
            )
    return Regex("|".join(CHARACTERS[name] for name in names))
