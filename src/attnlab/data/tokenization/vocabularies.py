"""The source and target tokenizers of a model, and decoding of ids that were copied from the source."""

import logging
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Literal, NamedTuple

import numpy as np

from attnlab.data.corpus import Alignment, Pair
from attnlab.data.features import is_feature
from attnlab.data.mapped import select
from attnlab.data.tokenization.subwords import characters
from attnlab.data.tokenization.tokenizer import Tokenizer
from attnlab.errors import UserError

log = logging.getLogger(__name__)

EXAMPLES = 3
"""Number of letters that a warning names."""
SAMPLE = 2_000_000
"""Tokenizers are trained on at most this many pairs."""


class Vocabularies(NamedTuple):
    """Source and target tokenizers; the same object for both if the vocabulary is shared."""

    source: Tokenizer
    target: Tokenizer

    def oov_tokens(self, source: str) -> list[str]:
        """Return the distinct tokens of a source text that are not in the target vocabulary, in their order.

        In a model that copies, they have the ids V, V + 1, … for this sentence. Features are never copied.
        """
        tokens = dict.fromkeys(self.source.spell(source))
        return [token for token in tokens if self.target.id_of(token) is None and not is_feature(token)]

    def gold_alignment(self, pair: Pair) -> Alignment | None:
        """Return the gold alignment of a pair.

        None if the pair has none, or if a tokenizer splits words: gold alignments link whole words.
        """
        if pair.alignment is None or self.source.splits_words or self.target.splits_words:
            return None
        return pair.alignment

    def reference(self, pair: Pair) -> str:
        """Return the text that outputs are scored against."""
        return self.target.clean(pair.target) if pair.reference is None else pair.reference

    def decode(self, ids: Sequence[int], source: str) -> str:
        """Decode target ids, including ids copied from `source`, to text."""
        return self.target.decode(ids, self._copied_tokens(ids, source))

    def output_text(self, ids: Sequence[int], pair: Pair) -> str:
        """Decode target ids and apply the pair's post-processing; this text is scored and shown."""
        text = self.decode(ids, pair.source)
        return text if pair.postprocess is None else pair.postprocess(text)

    def tokens(self, ids: Sequence[int], source: str, target: str = "") -> list[str]:
        """Return a readable label for each target id, including ids copied from `source`.

        Args:
            ids: of an output, or of a given target.
            source: the source text.
            target: the given target, whose spelling of unknown tokens the labels show.
        """
        return self.target.labels(ids, target, self._copied_tokens(ids, source))

    def _copied_tokens(self, ids: Sequence[int], source: str) -> list[str]:
        """Return the out-of-vocabulary tokens of the source if an id refers to one, else an empty list."""
        return self.oov_tokens(source) if max(ids, default=0) >= self.target.size else []


def references(pairs: Iterable[Pair], vocabularies: Vocabularies) -> Literal["raw", "normalised"]:
    """Return whether outputs are scored against the raw target texts, up to white space.

    They are if the target tokenizer is reversible on them, or the dataset provides the references. Else they
    are scored against the targets as the tokenizer normalises them: lower-cased, for example. Such scores are
    not comparable with scores on raw text.
    """
    changed = any(
        pair.reference is None and vocabularies.target.clean(pair.target).split() != pair.target.split()
        for pair in pairs
    )
    return "normalised" if changed else "raw"


Training = Callable[[Iterable[str]], Tokenizer]
"""A function of `attnlab.data.tokenization.train` with its settings bound."""


class SideTexts:
    """The texts of one side of pairs, or of both sides in turn; they can be read repeatedly."""

    def __init__(self, pairs: Sequence[Pair], *sides: Literal["source", "target"]) -> None:
        self._pairs = pairs
        self._sides = sides

    def __iter__(self) -> Iterator[str]:
        return (getattr(pair, side) for side in self._sides for pair in self._pairs)


def train_vocabularies(
    train: Sequence[Pair],
    *,
    source: Training,
    target: Training | None = None,
    shared: bool = False,
    others: Sequence[Pair] = (),
) -> Vocabularies:
    """Train the tokenizers of both sides on the training split.

    Of more than `SAMPLE` pairs, so many at equal distances are used.

    Args:
        source: trains the source tokenizer on the source texts.
        target: trains the target tokenizer on the target texts; None for the same function as `source`.
        shared: train one tokenizer on the texts of both sides. `target` must then be None.
        others: pairs of the other splits, whose letters are compared with those of the training split.
    """
    if shared and target is not None:
        raise UserError(
            "target_tokenizer is set, but shared_vocabulary=true uses one tokenizer for both sides: "
            "remove target_tokenizer or set shared_vocabulary=false"
        )
    _log_invisible("source", SideTexts(train, "source"))
    _log_invisible("target", SideTexts(train, "target"))
    sample = train
    if len(train) > SAMPLE:
        log.info("the tokenizers are trained on %d of the %d training pairs", SAMPLE, len(train))
        sample = select(train, np.arange(SAMPLE) * len(train) // SAMPLE)
    if shared:
        both = source(SideTexts(sample, "source", "target"))
        vocabularies = Vocabularies(both, both)
    else:
        vocabularies = Vocabularies(
            source=source(SideTexts(sample, "source")), target=(target or source)(SideTexts(sample, "target"))
        )
    _log_two_forms("source", "tokenizer", (train, others), vocabularies.source)
    setting = "tokenizer" if target is None else "target_tokenizer"
    _log_two_forms("target", setting, (train, others), vocabularies.target)
    return vocabularies


def code_points(text: str) -> str:
    """Return the code points of a text: "U+0061 U+0303"."""
    return " ".join(f"U+{ord(character):04X}" for character in text)


def _log_two_forms(
    side: Literal["source", "target"], setting: str, splits: Sequence[Sequence[Pair]], tokenizer: Tokenizer
) -> None:
    """Log letters that some texts have composed, and others with combining characters (NFD)."""
    composed: set[str] = set()
    for text in chain.from_iterable(SideTexts(pairs, side) for pairs in splits):
        if not text.isascii() and not unicodedata.is_normalized("NFC", text):
            composed |= set(unicodedata.normalize("NFC", text)) - {*text}
    if not composed:
        return
    used = set().union(*(characters(SideTexts(pairs, side)) for pairs in splits))
    letters = [
        f"{letter!r} ({code_points(letter)}; {code_points(decomposed)})"
        for letter in sorted(composed & used)
        for decomposed in [unicodedata.normalize("NFD", letter)]
        if tokenizer.pieces(letter) != tokenizer.pieces(decomposed)
    ]
    if letters:
        log.warning(
            "the texts of the %s contain %s composed and decomposed, which are different tokens: "
            "set %s.normalization=nfc",
            side,
            ", ".join(letters[:EXAMPLES]) + ", …" * (len(letters) > EXAMPLES),
            setting,
        )


def _log_invisible(side: str, texts: Iterable[str]) -> None:
    """Log the invisible characters of the training texts, such as U+200B, which become part of tokens.

    The joiners U+200C and U+200D are not counted: they belong to the spelling of some scripts and of emoji.
    """
    invisible = [
        character
        for character in sorted(characters(texts) - {"\u200c", "\u200d"})
        if unicodedata.category(character) == "Cf"
    ]
    if invisible:
        counts = Counter(character for text in texts for character in text if character in invisible)
        message = "the training texts of the %s contain invisible characters: %s"
        named = [
            f"U+{ord(character):04X} {unicodedata.name(character, '')} ({counts[character]} times)"
            for character in invisible
        ]
        log.warning(message, side, ", ".join(named))
