"""What `attnlab evaluate RUN explain=OPTION` passes to a measure of the attention weights, and its result.

An option of the group `explain` is a class of the user. Its instance is called with an `Explained`, the pairs
of the split and the argument `seed`, and returns a `Score` by its name.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from attnlab.data.corpus import Pair
from attnlab.data.examples import Examples
from attnlab.data.tokenization.vocabularies import Vocabularies
from attnlab.errors import UserError
from attnlab.explain.units import SENTENCES_PER_BATCH
from attnlab.nn.attention.interventions import has_weights
from attnlab.nn.seq2seq import Seq2Seq
from attnlab.types import Batch

FILE = "explanations.json"
"""Name of the scores in the folder of an evaluation."""


@dataclass(frozen=True)
class Explained:
    """A network whose attention weights are examined, with the encoding of its data.

    Raises:
        UserError: if it has no attention weights.
    """

    network: Seq2Seq  # in evaluation mode
    vocabularies: Vocabularies
    encode: Callable[[list[Pair]], Examples]  # encodes pairs as the network reads them

    def __post_init__(self) -> None:
        if not has_weights(self.network.decoder.attention):
            raise UserError(
                "explain: this network has no attention weights; choose a run with another mechanism, such "
                "as attention=additive"
            )

    def batches(self, pairs: Sequence[Pair]) -> Iterator[Batch]:
        """Yield the encoded pairs in batches of similar source length; `indices` are positions in `pairs`."""
        examples = self.encode(list(pairs))
        device = next(self.network.parameters()).device
        order = examples.source_lengths.argsort(kind="stable").tolist()
        for start in range(0, len(order), SENTENCES_PER_BATCH):
            yield examples[order[start : start + SENTENCES_PER_BATCH]].to(device)


class Score(NamedTuple):
    """A mean over units, and its 95 % bootstrap interval over sentences."""

    value: float  # sum over units / their number
    low: float | None  # None for a single sentence
    high: float | None
    units: int  # their number; for the alignment error rate, |A| + |S|
    sentences: int
