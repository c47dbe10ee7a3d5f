"""Faithfulness scorecard of a network: every measure over the sentences of a split, with intervals."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from attnlab.data.corpus import Pair
from attnlab.data.tokenization.vocabularies import Vocabularies
from attnlab.explain import adversarial, alignment, attributions, distractors, erasure
from attnlab.explain.rank_correlation import kendall_tau, top_agreement
from attnlab.explain.units import SENTENCES_PER_BATCH, units_of
from attnlab.nn.seq2seq import Seq2Seq
from attnlab.report.resampling import ratio_interval
from attnlab.types import Batch

MEASURES = ("gradient", "integrated_gradients", "erasure", "adversarial", "distractors", "alignment")


@dataclass(frozen=True, kw_only=True)
class Model:
    """A network with the vocabularies and the encoding of its data."""

    network: Seq2Seq  # in evaluation mode, with an attention that has weights
    vocabularies: Vocabularies  # tokenizers of both sides
    encode: distractors.Encode  # encodes pairs as the network reads them

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


@dataclass
class Sums:
    """Sums over the units of each sentence, by measure."""

    numerators: dict[str, dict[int, float]] = field(default_factory=dict)
    denominators: dict[str, dict[int, float]] = field(default_factory=dict)

    def add(
        self,
        name: str,
        sentences: Sequence[int],
        values: Sequence[float],
        counts: Iterable[float] | None = None,
    ) -> None:
        """Add the values of units to the sums of their sentences, without those that are NaN.

        Args:
            sentences: sentence of each unit.
            values: value of each unit.
            counts: what each unit adds to the denominator; 1 by default.
        """
        numerators = self.numerators.setdefault(name, {})
        denominators = self.denominators.setdefault(name, {})
        for sentence, value, count in zip(sentences, values, counts or [1.0] * len(values), strict=True):
            if value == value:  # not NaN
                numerators[sentence] = numerators.get(sentence, 0) + value
                denominators[sentence] = denominators.get(sentence, 0) + count

    def scores(self) -> dict[str, Score]:
        """Return the mean of each measure that has units, with its interval."""
        scores = {}
        for name, sums in self.numerators.items():
            counted = [sentence for sentence in sorted(sums) if self.denominators[name][sentence] > 0]
            if not counted:
                continue
            above = np.array([sums[sentence] for sentence in counted])
            below = np.array([self.denominators[name][sentence] for sentence in counted])
            low, high = ratio_interval(above, below) if len(counted) > 1 else (None, None)
            value = float(above.sum() / below.sum())
            scores[name] = Score(value, low, high, round(below.sum()), len(counted))
        return scores


def explain(
    model: Model,
    pairs: Sequence[Pair],
    *,
    measures: Sequence[str] = MEASURES,
    steps: int = attributions.STEPS,
    epsilon: float = 0.05,
    seed: int = 0,
    gold: Sequence[alignment.Gold] | None = None,
    reverse: Model | None = None,
) -> dict[str, Score]:
    """Compute the scorecard of a network on sentences.

    Args:
        pairs: the sentences, with references.
        measures: some of `MEASURES`.
        steps: nodes of the quadrature of integrated gradients.
        epsilon: largest total variation distance of the output with adversarial weights.
        seed: seed of the random tokens of the erasure.
        gold: gold alignment of the words of each sentence; None for those of the pairs, if they have any.
        reverse: a network of the other direction, whose alignments are combined with those of `model`.

    Returns:
        The score of each measure that has units, by its name in `attnlab.metrics.registry` without
        "explanation/".
    """
    sums = Sums()
    for batch in model.batches(pairs):
        _explain_batch(sums, model.network, batch, measures, steps=steps, epsilon=epsilon, seed=seed)
    if "distractors" in measures:
        _add_distractors(sums, model, pairs)
    if "alignment" in measures:
        _add_alignment(sums, model, pairs, gold, reverse)
    return sums.scores()


def _explain_batch(
    sums: Sums,
    network: Seq2Seq,
    batch: Batch,
    measures: Sequence[str],
    *,
    steps: int,
    epsilon: float,
    seed: int,
) -> None:
    if not batch.target_text.any():
        return
    units = units_of(network, batch)
    sentences: list[int] = units.batch.indices.tolist()

    def add(name: str, values: Tensor) -> None:
        sums.add(name, sentences, values.tolist())

    for method in attributions.METHODS:
        if method in measures:
            values = attributions.attribute(network, units, method, steps=steps)  # [N, S]
            if method == "integrated_gradients":
                add(f"{method}_error", attributions.completeness_error(network, units, values))
                values = values.abs()
            add(f"{method}_tau", kendall_tau(units.weights, values, units.mask))
            add(f"{method}_top", top_agreement(units.weights, values, units.mask))
    if "erasure" in measures:
        for suffix, order in (("", units.weights), ("_random", torch.zeros_like(units.weights))):
            comprehensiveness, sufficiency = erasure.erase(network, units, order, seed=seed)
            add(f"comprehensiveness{suffix}", comprehensiveness)
            add(f"sufficiency{suffix}", sufficiency)
    if "adversarial" in measures:
        attacked = adversarial.attack(network, batch, epsilon=epsilon)
        rows = batch.target_text.nonzero()[:, 0]
        sums.add("adversarial_divergence", batch.indices[rows].tolist(), attacked.divergence.tolist())
        sums.add("uniform_distance", batch.indices[rows].tolist(), attacked.uniform_distance.tolist())


def _add_distractors(sums: Sums, model: Model, pairs: Sequence[Pair]) -> None:
    examples = model.encode(list(pairs))
    lengths: list[int] = examples.source_lengths.tolist()
    chosen = [
        (i, other)
        for i, other in enumerate(distractors.partners(lengths, max(lengths)))
        if other is not None and examples.target_lengths[i] > 1  # a target of EOS alone has no units
    ]
    if not chosen:
        return
    rows, others = zip(*chosen, strict=True)
    measured = distractors.distract(
        model.network, [pairs[i] for i in rows], [pairs[i] for i in others], model.encode
    )
    sentences = [rows[i] for i in measured.sentences.tolist()]
    sums.add("distractor_weight", sentences, measured.weight.tolist())
    sums.add("distractor_crossing", sentences, measured.crossing.tolist())
    sums.add("distractor_drop", sentences, measured.drop.tolist())


def _add_alignment(
    sums: Sums,
    model: Model,
    pairs: Sequence[Pair],
    gold: Sequence[alignment.Gold] | None,
    reverse: Model | None,
) -> None:
    known = _task_alignments(model, pairs) if gold is None else dict(enumerate(gold))
    if not known:
        return
    links = _links(model, pairs)
    both = {}
    if reverse is not None:
        swapped = [Pair(pair.target, pair.source) for pair in pairs]
        backward = _links(reverse, swapped)
        both = {
            i: alignment.grow_diag(links[i], frozenset((source, target) for target, source in backward[i]))
            for i in known
        }
    for name, chosen in (("", links), ("symmetrised_", both)):
        for i in known if chosen else ():
            counts = alignment.error_counts(chosen[i], known[i])
            errors = float(counts.total - counts.correct)
            sums.add(f"{name}alignment_error_rate", [i], [errors], [counts.total])


def _task_alignments(model: Model, pairs: Sequence[Pair]) -> dict[int, alignment.Gold]:
    """Return the gold alignments that the pairs have, by position, if tokens are words."""
    return {
        i: alignment.alternatives(links)
        for i, pair in enumerate(pairs)
        if (links := model.vocabularies.gold_alignment(pair))
    }


@torch.no_grad()
def _links(model: Model, pairs: Sequence[Pair]) -> dict[int, alignment.Links]:
    """Return the links of words with the largest weights, by the position of the pair."""
    source, target = model.vocabularies
    result = {}
    for batch in model.batches(pairs):
        weights = model.network(batch).weights.float().cpu().numpy()  # [B, T, S]
        sources, targets = batch.source_text.sum(dim=1).tolist(), batch.target_text.sum(dim=1).tolist()
        for row, index in enumerate(batch.indices.tolist()):
            words = (source.words(pairs[index].source), target.words(pairs[index].target))
            result[index] = alignment.best_links(
                weights[row], words[0][: sources[row]], words[1][: targets[row]]
            )
    return result
