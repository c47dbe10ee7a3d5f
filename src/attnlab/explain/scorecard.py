"""Scorecard of the attention weights of a run as explanations: `attnlab evaluate RUN explain=all`.

The group `explain` builds a `Scorecard`, or any other callable with the same arguments and result.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple, get_args

import numpy as np
import torch
from torch import Tensor

from attnlab.data.corpus import Pair
from attnlab.data.examples import Examples
from attnlab.data.tokenization.vocabularies import Vocabularies
from attnlab.errors import UserError
from attnlab.explain import alignment, attributions, erasure
from attnlab.explain.units import SENTENCES_PER_BATCH, units_of
from attnlab.nn.attention.interventions import has_weights
from attnlab.nn.seq2seq import Seq2Seq
from attnlab.report.resampling import ratio_interval
from attnlab.settings import FilePath, Size
from attnlab.types import Batch

FILE = "explanations.json"
"""Name of the scorecard in the folder of an evaluation."""

Measure = Literal["gradient", "integrated_gradients", "erasure", "alignment"]
Measures = Annotated[Sequence[Measure], f"a list with some of {', '.join(get_args(Measure))}"]


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


class Values(NamedTuple):
    """Values of a measure for some units."""

    name: str
    sentences: Sequence[int]  # number of the sentence of each unit
    values: Sequence[float]  # NaN where it is undefined
    counts: Sequence[float] | None = None  # what each unit adds to the denominator; 1 by default


def summarise(values: Iterable[Values]) -> dict[str, Score]:
    """Return the mean of each measure that has units, with its interval over sentences."""
    units: dict[str, list[tuple[int, float, float]]] = {}
    for name, sentences, parts, counts in values:
        each = zip(sentences, parts, counts or [1.0] * len(parts), strict=True)
        units.setdefault(name, []).extend(row for row in each if row[1] == row[1])  # not NaN
    scores = {}
    for name, rows in units.items():
        numbers, numerators, denominators = np.array(rows).reshape(-1, 3).T  # [N] each
        sums = [np.bincount(numbers.astype(int), column) for column in (numerators, denominators)]
        above, below = np.array(sums, dtype=np.float64)[:, sums[1] > 0]  # of each sentence that has units
        if len(below) > 0:
            low, high = ratio_interval(above, below) if len(below) > 1 else (None, None)
            mean = float(above.sum() / below.sum())
            scores[name] = Score(mean, low, high, round(below.sum()), len(below))
    return scores


def spread(total: int, count: int) -> list[int]:
    """Return at most `count` of the numbers from 0 to `total` - 1, evenly spread."""
    count = min(count, total)
    return [number * total // count for number in range(count)]


@dataclass(frozen=True, kw_only=True)
class Scorecard:
    """Agreement of the weights with attributions, with the effect of erasure, and with alignments.

    Args:
        measures: what to compute.
        sentences: number of sentences, evenly spread over the split.
        steps: nodes of the quadrature of integrated gradients.
        alignments: gold alignments of the words of the split, one line per sentence: 0-0 for a sure link, 0?1
            for a possible one; null for those of the data, if it has any.
    """

    measures: Measures
    sentences: Size
    steps: Size
    alignments: FilePath | None

    def __call__(self, model: Explained, pairs: Sequence[Pair], *, seed: int) -> dict[str, Score]:
        """Compute the measures on sentences of a split, given as pairs; the seed draws tokens to erase.

        Raises:
            UserError: if the gold alignments cannot be read.
        """
        chosen = spread(len(pairs), self.sentences)
        gold = None
        if self.alignments is not None:
            gold_of_split = alignment.read_gold(self.alignments, len(pairs))
            gold = [gold_of_split[i] for i in chosen]
        pairs = [pairs[i] for i in chosen]
        values: list[Values] = []
        for batch in model.batches(pairs):
            if batch.target_text.any():
                values += self._explain_units(model.network, batch, seed)
        if "alignment" in self.measures:
            values += [alignment_errors(model, pairs, gold)]
        return summarise(values)

    def _explain_units(self, network: Seq2Seq, batch: Batch, seed: int) -> Iterator[Values]:
        """Yield the measures of each unit of a batch."""
        units = units_of(network, batch)
        columns: dict[str, Tensor] = {}  # [N] each
        for method in attributions.METHODS:
            if method in self.measures:
                values = attributions.attribute(network, units, method, steps=self.steps)  # [N, S]
                if method == "integrated_gradients":
                    columns[f"{method}_error"] = attributions.completeness_error(network, units, values)
                    values = values.abs()
                columns[f"{method}_tau"] = kendall_tau(units.weights, values, units.mask)
                columns[f"{method}_top"] = top_agreement(units.weights, values, units.mask)
        if "erasure" in self.measures:
            for suffix, order in (("", units.weights), ("_random", torch.zeros_like(units.weights))):
                comprehensiveness, sufficiency = erasure.erase(network, units, order, seed=seed)
                columns[f"comprehensiveness{suffix}"] = comprehensiveness
                columns[f"sufficiency{suffix}"] = sufficiency
        for name, column in columns.items():
            yield Values(name, units.batch.indices.tolist(), column.tolist())


def alignment_errors(
    model: Explained, pairs: Sequence[Pair], gold: Sequence[alignment.Gold] | None = None
) -> Values:
    """Return the alignment errors of each pair.

    Args:
        gold: gold alignment of the words of each pair; None for those of the data, where tokens are words.
    """
    if gold is None:
        links_of_data = map(model.vocabularies.gold_alignment, pairs)
        gold_of = {i: alignment.alternatives(links) for i, links in enumerate(links_of_data) if links}
    else:
        gold_of = dict(enumerate(gold))
    links = word_links(model, pairs) if gold_of else {}
    counts = [alignment.error_counts(links[i], each) for i, each in gold_of.items()]
    errors, totals = ([*column] for column in zip(*counts, strict=True)) if counts else ([], [])
    return Values("alignment_error_rate", [*gold_of], errors, totals)


@torch.no_grad()
def word_links(model: Explained, pairs: Sequence[Pair]) -> dict[int, alignment.Links]:
    """Return the links of words with the largest weights, by the position of the pair."""
    source, target = model.vocabularies
    result = {}
    for batch in model.batches(pairs):
        weights = model.network(batch).weights.float().cpu().numpy()  # [B, T, S]
        sources, targets = batch.source_text.sum(dim=1).tolist(), batch.target_text.sum(dim=1).tolist()
        for row, index in enumerate(batch.indices.tolist()):
            source_words = source.words(pairs[index].source)[: sources[row]]
            target_words = target.words(pairs[index].target)[: targets[row]]
            result[index] = alignment.best_links(weights[row], source_words, target_words)
    return result


def kendall_tau(x: Tensor, y: Tensor, mask: Tensor) -> Tensor:
    """Return Kendall's τ-b of two scores over the real tokens of each row, [N] float64.

    ::

        τ_b = Σ_{i<j} sign(x_i - x_j) sign(y_i - y_j) / √(pairs with x_i ≠ x_j · pairs with y_i ≠ y_j)

    NaN where all scores of a row are equal, as with uniform weights or a single token.

    Args:
        x: [N, S].
        y: [N, S].
        mask: [N, S], True at real tokens.
    """
    taus = []
    for row, real in enumerate(mask):
        first, second = ((s[:, None] - s).sign().double() for s in (x[row, real], y[row, real]))  # [S, S]
        untied = first.abs().sum() * second.abs().sum()
        taus.append((first * second).sum() / untied.sqrt())
    return torch.stack(taus)


def top_agreement(x: Tensor, y: Tensor, mask: Tensor) -> Tensor:
    """Return the probability that the largest x and the largest y are at the same token, [N] float64.

    Ties are broken at random: with k equal largest x, one of which has the only largest y, it is 1 / k.
    Arguments are those of `kendall_tau`.
    """
    first, second = (
        (scores == scores.masked_fill(~mask, -torch.inf).amax(dim=-1, keepdim=True)) & mask
        for scores in (x, y)
    )  # [N, S]
    return (first & second).sum(dim=-1).double() / (first.sum(dim=-1) * second.sum(dim=-1))
