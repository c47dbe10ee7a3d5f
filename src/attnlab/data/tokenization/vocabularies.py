"""The source and target tokenizers of a model, and decoding of ids that were copied from the source."""

import logging
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
) -> Vocabularies:
    """Train the tokenizers of both sides on the training split, or on `SAMPLE` pairs of it."""
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
        return Vocabularies(both, both)
    return Vocabularies(
        source=source(SideTexts(sample, "source")), target=(target or source)(SideTexts(sample, "target"))
    )
