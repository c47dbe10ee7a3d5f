"""The source and target tokenizers of a model, and decoding of ids that were copied from the source."""

import logging
import sys
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Literal, NamedTuple

import numpy as np

from attnlab.data.corpus import Alignment, Pair
from attnlab.data.features import is_feature
from attnlab.data.mapped import Side, select, text_blocks
from attnlab.data.tokenization.tokenizer import Tokenizer
from attnlab.errors import UserError

log = logging.getLogger(__name__)

EXAMPLES = 3  # Number of letters that a warning names
SAMPLE = 2_000_000  # Tokenizers are trained on at most this many pairs


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
        """Return the gold alignment of a pair; None without one, or if a tokenizer splits linked words."""
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
        """Return a readable label for each target id, including ids copied from `source`."""
        return self.target.labels(ids, target, self._copied_tokens(ids, source))

    def _copied_tokens(self, ids: Sequence[int], source: str) -> list[str]:
        """Return the out-of-vocabulary tokens of the source if an id refers to one, else an empty list."""
        return self.oov_tokens(source) if max(ids, default=0) >= self.target.size else []


def references(pairs: Iterable[Pair], vocabularies: Vocabularies) -> Literal["raw", "normalised"]:
    """Return whether outputs are scored against the raw target texts, up to white space.

    They are if the target tokenizer is reversible on them, or the dataset provides the references. Scores
    against targets that the tokenizer normalises, such as lower-cased ones, are not comparable with these.
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

    def __init__(self, pairs: Sequence[Pair], *sides: Side) -> None:
        self._pairs = pairs
        self._sides = sides

    def __iter__(self) -> Iterator[str]:
        blocks = (text_blocks(self._pairs, side) for side in self._sides)
        return chain.from_iterable(chain.from_iterable(blocks))


def train_vocabularies(
    train: Sequence[Pair],
    *,
    source: Training,
    target: Training | None = None,
    shared: bool = False,
    others: Iterable[Sequence[Pair]] = (),
) -> Vocabularies:
    """Train the tokenizers of both sides on the training split, or on `SAMPLE` pairs of it.

    Args:
        source: trains the source tokenizer.
        target: trains the target tokenizer; None for the same function as `source`.
        shared: train one tokenizer on the texts of both sides. `target` must then be None.
        others: the other splits, whose letters are compared with those of the training split.
    """
    if shared and target is not None:
        raise UserError(
            "target_tokenizer is set, but shared_vocabulary=true uses one tokenizer for both sides: "
            "remove target_tokenizer or set shared_vocabulary=false"
        )
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
    settings: dict[Side, str] = {
        "source": "tokenizer",
        "target": "tokenizer" if target is None else "target_tokenizer",
    }
    for side, setting in settings.items():
        characters = _characters(train, side)
        _log_invisible(side, train, characters)
        characters = characters.union(*(_characters(pairs, side) for pairs in others))
        _log_two_forms(side, setting, characters, getattr(vocabularies, side))
    return vocabularies


def code_points(text: str) -> str:
    """Return the code points of a text: "U+0061 U+0303"."""
    return " ".join(f"U+{ord(character):04X}" for character in text)


def _characters(pairs: Sequence[Pair], side: Side) -> set[str]:
    """Return the distinct characters of the texts of one side."""
    occurs = np.zeros(sys.maxunicode + 1, np.bool_)
    for texts in text_blocks(pairs, side):
        occurs[np.frombuffer("".join(texts).encode("utf-32-le", "surrogatepass"), np.uint32)] = True
    return {*map(chr, np.flatnonzero(occurs).tolist())}


def _log_invisible(side: Side, pairs: Sequence[Pair], characters: set[str]) -> None:
    """Log the invisible characters of the training texts, such as U+200B, which become part of tokens.

    The joiners U+200C and U+200D are not counted: they belong to the spelling of some scripts and of emoji.
    """
    invisible = {each for each in characters - {"\u200c", "\u200d"} if unicodedata.category(each) == "Cf"}
    if invisible:
        blocks = map("".join, text_blocks(pairs, side))
        counts = sum((Counter({each: text.count(each) for each in invisible}) for text in blocks), Counter())
        named = [
            f"U+{ord(character):04X} {unicodedata.name(character, '')} ({count} times)"
            for character, count in sorted(counts.items())
        ]
        message = "the training texts of the %s contain invisible characters: %s"
        log.warning(message, side, ", ".join(named))


def _log_two_forms(side: str, setting: str, characters: set[str], tokenizer: Tokenizer) -> None:
    """Log letters that the texts contain composed, and of which they also contain the parts (NFD)."""
    letters = [
        f"{letter!r} ({code_points(letter)}; {code_points(parts)})"
        for letter in sorted(characters)
        for parts in [unicodedata.normalize("NFD", letter)]
        if parts != letter and characters.issuperset(parts)
        if tokenizer.pieces(letter) != tokenizer.pieces(parts)
    ]
    if letters:
        shown = ", ".join(letters[:EXAMPLES]) + ", …" * (len(letters) > EXAMPLES)
        message = "the texts of the %s contain %s composed and decomposed, which are different tokens: "
        log.warning(message + "set %s.normalization=nfc", side, shown, setting)
