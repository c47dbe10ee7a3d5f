"""The source and target tokenizers of a model, and decoding of ids that were copied from the source."""

import logging
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Literal, NamedTuple

from attnlab.data.corpus import Alignment, Pair
from attnlab.data.features import is_feature
from attnlab.data.tokenization.tokenizer import Tokenizer
from attnlab.errors import UserError

log = logging.getLogger(__name__)

EXAMPLES = 3
"""Number of letters that a warning names."""


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


def train_vocabularies(
    train: Sequence[Pair], *, source: Training, target: Training | None = None, shared: bool = False
) -> Vocabularies:
    """Train the tokenizers of both sides on the training split.

    Args:
        source: trains the source tokenizer on the source texts.
        target: trains the target tokenizer on the target texts; None for the same function as `source`.
        shared: train one tokenizer on the texts of both sides. `target` must then be None.
    """
    _log_invisible("source", [pair.source for pair in train])
    _log_invisible("target", [pair.target for pair in train])
    if shared:
        if target is not None:
            raise UserError(
                "target_tokenizer is set, but shared_vocabulary=true uses one tokenizer for both sides: "
                "remove target_tokenizer or set shared_vocabulary=false"
            )
        both = source(chain((pair.source for pair in train), (pair.target for pair in train)))
        vocabularies = Vocabularies(both, both)
    else:
        vocabularies = Vocabularies(
            source=source(pair.source for pair in train),
            target=(target or source)(pair.target for pair in train),
        )
    _log_two_forms("source", "tokenizer", [pair.source for pair in train], vocabularies.source)
    setting = "tokenizer" if target is None else "target_tokenizer"
    _log_two_forms("target", setting, [pair.target for pair in train], vocabularies.target)
    return vocabularies


def _log_two_forms(side: str, setting: str, texts: Sequence[str], tokenizer: Tokenizer) -> None:
    """Log letters that some training texts have composed, and others with combining characters (NFD)."""
    decomposed = [text for text in texts if not unicodedata.is_normalized("NFC", text)]
    if not decomposed:
        return
    composed = set().union(*(set(unicodedata.normalize("NFC", text)) - {*text} for text in decomposed))
    letters = [
        letter
        for letter in sorted(composed.intersection(set().union(*texts)))
        if tokenizer.pieces(letter) != tokenizer.pieces(unicodedata.normalize("NFD", letter))
    ]
    if letters:
        log.warning(
            "the training texts of the %s contain %s composed and decomposed, which are different tokens: "
            "set %s.normalization=nfc",
            side,
            ", ".join(map(repr, letters[:EXAMPLES])) + ", …" * (len(letters) > EXAMPLES),
            setting,
        )


def _log_invisible(side: str, texts: Sequence[str]) -> None:
    """Log the invisible characters of the training texts, such as U+200B, which become part of tokens.

    The joiners U+200C and U+200D are not counted: they belong to the spelling of some scripts and of emoji.
    """
    found = []
    for character in sorted(set().union(*texts) - {"\u200c", "\u200d"}):
        if unicodedata.category(character) == "Cf":
            count = sum(text.count(character) for text in texts)
            found.append(f"U+{ord(character):04X} {unicodedata.name(character, '')} ({count} times)")
    if found:
        message = "the training texts of the %s contain invisible characters: %s"
        log.warning(message, side, ", ".join(found))
