"""The tokenizers of both sides, and what one side knows that the other does not."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import NamedTuple

from attnlab.data.corpus import Alignment, Pair
from attnlab.data.datasets.placeholders import put_back
from attnlab.data.tokenization.tokenizer import Tokenizer
from attnlab.errors import UserError


class Vocabularies(NamedTuple):
    """The tokenizers of both sides; one and the same object where the vocabulary is shared."""

    source: Tokenizer
    target: Tokenizer

    def oov_tokens(self, source: str) -> list[str]:
        """The tokens of a source text that the target's vocabulary lacks, each once, in their order.

        To a network that copies, they are the ids V, V + 1, … of this sentence.
        """
        pieces = dict.fromkeys(self.source.spell(source))
        return [piece for piece in pieces if self.target.id_of(piece) is None]

    def links(self, pair: Pair) -> Alignment | None:
        """The pair's gold alignment; None where there is none, or tokens are less than the words it links."""
        return None if self.source.cuts_words or self.target.cuts_words else pair.alignment

    def decode(self, ids: Sequence[int], source: str) -> str:
        """The text of target ids, words copied from `source` among them."""
        return self.target.decode(ids, self._copied(ids, source))

    def write(self, ids: Sequence[int], pair: Pair) -> str:
        """The text of target ids as it is scored and shown: with what the pair's slots stand for."""
        return put_back(self.decode(ids, pair.source), pair.slots)

    def tokens(self, ids: Sequence[int], source: str) -> list[str]:
        """A readable label for each target id, words copied from `source` among them."""
        return self.target.tokens(ids, self._copied(ids, source))

    def _copied(self, ids: Sequence[int], source: str) -> list[str]:
        """The sentence's oov_tokens, where any of the ids is one."""
        return self.oov_tokens(source) if max(ids, default=0) >= self.target.size else []


Training = Callable[[Iterable[str]], Tokenizer]
"""One of the training functions of `attnlab.data.tokenization.training`, its settings fixed."""


def train_vocabularies(
    train: Sequence[Pair], *, source: Training, target: Training | None = None, shared: bool = False
) -> Vocabularies:
    """Learn the vocabularies of both sides from the training split.

    `target` defaults to the same training as `source`, on the other side's texts. With `shared`, one
    vocabulary is learnt from the texts of both sides together, and `target` must be left out.
    """
    if shared:
        if target is not None:
            raise UserError(
                "shared_vocabulary=true learns one vocabulary for both sides: leave target_tokenizer out"
            )
        both = source(chain((pair.source for pair in train), (pair.target for pair in train)))
        return Vocabularies(both, both)
    return Vocabularies(
        source=source(pair.source for pair in train),
        target=(target or source)(pair.target for pair in train),
    )
