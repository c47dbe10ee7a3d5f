"""Scorecard of attention weights as explanations: agreement with attributions, effect of erasure, alignment.

`attnlab evaluate RUN --config-dir experiments/faithfulness/conf explain=all`

N units · S as in `attnlab.types` · F fractions
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple, get_args

import alignment
import numpy as np
import torch
from torch import Tensor

from attnlab.data.corpus import Pair
from attnlab.data.examples import Examples
from attnlab.errors import UserError
from attnlab.explain.attributions import METHODS, attribute, erased
from attnlab.explain.scorecard import Score
from attnlab.explain.units import Units, units_of
from attnlab.metrics import registry
from attnlab.metrics.sentence_counts import Counts
from attnlab.nn.seq2seq import Seq2Seq
from attnlab.report.resampling import percentiles, resampled
from attnlab.settings import FilePath, Size
from attnlab.training.build import encode_pairs
from attnlab.training.model import Model
from attnlab.types import Batch

Measure = Literal["gradient", "integrated_gradients", "erasure", "alignment"]
Measures = Annotated[Sequence[Measure], f"a list with some of {', '.join(get_args(Measure))}"]

FRACTIONS = (0.1, 0.2, 0.5)
"""Fractions of the source tokens that are erased, or kept alone."""

SENTENCES_PER_BATCH = 16
"""Number of sentences whose units are computed together."""

MEASURES = {
    f"explanation/{name}": registry.Metric(kind="explanation", label=label, format=form, direction=direction)
    for name, label, form, direction in (
        ("gradient_tau", "τ with gradients", "signed", "higher"),
        ("gradient_top", "same top token as gradients", "share", "higher"),
        ("integrated_gradients_tau", "τ with integrated gradients", "signed", "higher"),
        ("integrated_gradients_top", "same top token as integrated gradients", "share", "higher"),
        ("integrated_gradients_error", "error of completeness", "nats", "lower"),
        ("erasure_tau", "τ with erasure", "signed", "higher"),
        ("erasure_top", "same top token as erasure", "share", "higher"),
        ("erasure_eos", "EOS matters most by erasure", "share", None),
        ("comprehensiveness", "comprehensiveness", "signed", "higher"),
        ("comprehensiveness_random", "comprehensiveness of random tokens", "signed", None),
        ("sufficiency", "sufficiency", "signed", "lower"),
        ("sufficiency_random", "sufficiency of random tokens", "signed", None),
        ("alignment_error_rate", "alignment error rate", "share", "lower"),
        ("adversarial_divergence", "adversarial divergence", "fraction", "lower"),
        ("uniform_distance", "change of the output by uniform weights", "fraction", None),
        ("distractor_weight", "weight on the distractor", "share", "lower"),
        ("distractor_crossing", "largest weight on the distractor", "share", "lower"),
        ("distractor_drop", "drop of p by the distractor", "signed", None),
    )
}
"""Labels and units of all measures of this experiment."""


def register_measures() -> None:
    """Add the measures to the registry, for tables; an import alone does not."""
    registry.METRICS.update(MEASURES)


class Values(NamedTuple):
    """Values of a measure for some units."""

    name: str
    sentences: Sequence[int]  # number of the sentence of each unit
    values: Sequence[float]  # NaN where it is undefined
    counts: Sequence[float] | None = None  # what each unit adds to the denominator; 1 by default


def summarise(values: Iterable[Values]) -> dict[str, Score]:
    """Return the mean of each measure that has units, with its interval over sentences.

    The labels of the measures are registered.
    """
    register_measures()
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
            low, high = _ratio_interval(above, below) if len(below) > 1 else (None, None)
            mean = float(above.sum() / below.sum())
            scores[name] = Score(mean, low, high, round(below.sum()), len(below))
    return scores


def _ratio_interval(numerators: Counts, denominators: Counts) -> tuple[float, float]:
    """Return the 95 % bootstrap interval of Σ numerators / Σ denominators over N ≥ 2 sentences, [N] each."""
    return percentiles(
        [(batch @ numerators) / (batch @ denominators) for batch in resampled(len(numerators))]
    )


def encode(model: Model, pairs: Sequence[Pair]) -> Examples:
    """Return pairs as the network reads them."""
    return encode_pairs(model.config, model.vocabularies, list(pairs))


def batches(model: Model, pairs: Sequence[Pair]) -> Iterator[Batch]:
    """Yield the encoded pairs in batches of similar source length; `indices` are positions in `pairs`."""
    examples = encode(model, pairs)
    order = examples.source_lengths.argsort(kind="stable").tolist()
    for start in range(0, len(order), SENTENCES_PER_BATCH):
        yield examples[order[start : start + SENTENCES_PER_BATCH]].to(model.device)


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

    def __call__(self, model: Model, pairs: Sequence[Pair], *, seed: int) -> dict[str, Score]:
        """Compute the measures on sentences of a split, given as pairs; the seed draws tokens to erase.

        Raises:
            UserError: if the gold alignments cannot be read.
        """
        chosen = spread(len(pairs), self.sentences)
        gold = None
        if self.alignments is not None and "alignment" not in self.measures:
            raise UserError("explain.alignments needs the measure alignment: add it to explain.measures")
        if self.alignments is not None:
            gold_of_split = alignment.read_gold(self.alignments, len(pairs))
            gold = [gold_of_split[i] for i in chosen]
        pairs = [pairs[i] for i in chosen]
        values: list[Values] = []
        for batch in batches(model, pairs):
            if batch.target_text.any():
                values += self._explain_units(model.network, batch, seed)
        if "alignment" in self.measures:
            values += [alignment_errors(model, pairs, gold)]
        return summarise(values)

    def _explain_units(self, network: Seq2Seq, batch: Batch, seed: int) -> Iterator[Values]:
        """Yield the measures of each unit of a batch."""
        units = units_of(network, batch)
        words = units.batch.source_text  # [N, S]; False at EOS, whose erasure removes the end of the source
        columns: dict[str, Tensor] = {}  # [N] each
        for method in METHODS:
            if method in self.measures:
                values = attribute(network, units, method, steps=self.steps)  # [N, S]
                if method == "integrated_gradients":
                    columns[f"{method}_error"] = completeness_error(network, units, values)
                    values = values.abs()
                columns[f"{method}_tau"] = kendall_tau(units.weights, values, words)
                columns[f"{method}_top"] = top_agreement(units.weights, values, words)
                if method == "erasure" and (words != units.mask).any():
                    last = values.masked_fill(~units.mask, -torch.inf).argmax(dim=-1)  # [N]
                    columns["erasure_eos"] = (last == words.sum(dim=-1)).double()
        if "erasure" in self.measures:
            for suffix, order in (("", units.weights), ("_random", torch.zeros_like(units.weights))):
                comprehensiveness, sufficiency = erase(network, units, order, seed=seed)
                columns[f"comprehensiveness{suffix}"] = comprehensiveness
                columns[f"sufficiency{suffix}"] = sufficiency
        for name, column in columns.items():
            yield Values(name, units.batch.indices.tolist(), column.tolist())


def alignment_errors(
    model: Model, pairs: Sequence[Pair], gold: Sequence[alignment.Gold] | None = None
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
def word_links(model: Model, pairs: Sequence[Pair]) -> dict[int, alignment.Links]:
    """Return the links of words with the largest weights, by the position of the pair."""
    source, target = model.vocabularies
    result = {}
    for batch in batches(model, pairs):
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


def erase(network: Seq2Seq, units: Units, scores: Tensor, *, seed: int) -> tuple[Tensor, Tensor]:
    """Return comprehensiveness and sufficiency [N] (DeYoung et al., 2020).

    ::

        comprehensiveness = mean over F of p(x) - p(x without the ⌈F S⌉ tokens with the largest scores)
        sufficiency       = mean over F of p(x) - p(the ⌈F S⌉ tokens with the largest scores alone)

    DeYoung et al. 2020 (arXiv 1911.03429), section 4. High comprehensiveness and low sufficiency speak for
    the scores. A token is erased as in `attnlab.explain.attributions.erased`.

    Args:
        network: in evaluation mode.
        units: N predictions.
        scores: [N, S]. Ties are broken at random.
        seed: seed of the ties; the draw depends on the sentence and the position only.
    """
    top = largest(scores, units.mask, random_scores(units, seed=seed))  # [N, F, S]
    p = units.log_p.exp()[:, None]  # [N, 1]
    without = p - erased(network, units, ~top)  # [N, F]
    alone = p - erased(network, units, top)  # [N, F]
    return without.mean(dim=-1), alone.mean(dim=-1)


def largest(scores: Tensor, mask: Tensor, ties: Tensor) -> Tensor:
    """Return [N, F, S] bool, True at the ⌈F S⌉ largest scores of each row.

    Args:
        scores: [N, S].
        mask: [N, S], True at real tokens.
        ties: [N, S]: of equal scores, those with larger numbers here come first.
    """
    first = ties.argsort(dim=-1, descending=True)  # [N, S]
    order = (
        scores.masked_fill(~mask, -torch.inf).gather(-1, first).argsort(dim=-1, descending=True, stable=True)
    )
    places = first.gather(-1, order)  # [N, S]: positions, largest score first
    ranks = places.argsort(dim=-1)  # [N, S]: the inverse permutation
    fractions = torch.tensor(FRACTIONS, dtype=torch.float64, device=mask.device)  # [F]
    counts = (fractions * mask.sum(dim=-1, keepdim=True)).sub(1e-9).ceil()  # [N, F]
    return (ranks[:, None] < counts[..., None]) & mask[:, None]


def random_scores(units: Units, *, seed: int) -> Tensor:
    """Return random scores [N, S] that depend only on the seed, the sentence and the target position."""
    size = units.mask.size(1)
    scores = np.zeros((len(units.tokens), size))
    for row, key in enumerate(zip(units.batch.indices.tolist(), units.positions.tolist(), strict=True)):
        length = int(units.batch.source_lengths[row])
        scores[row, :length] = np.random.default_rng((seed, *key)).random(length)
    return torch.from_numpy(scores).to(units.mask.device)


def completeness_error(network: Seq2Seq, units: Units, values: Tensor) -> Tensor:
    """Return |Σ_j a_j - (f(x) - f(0))| [N] of integrated gradients [N, S]: the error of the quadrature."""
    nothing = torch.zeros_like(units.mask)[:, None]  # [N, 1, S]
    baseline = erased(network, units, nothing)[:, 0].log()  # [N]
    return torch.abs(values.sum(dim=-1) - (units.log_p - baseline))
