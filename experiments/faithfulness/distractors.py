"""Distractor sources: another sentence beside the source, which no output token needs.

`attnlab evaluate RUN --config-dir experiments/faithfulness/conf explain=distractors`

B, S as in `attnlab.types` · N units
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
from scorecard import SENTENCES_PER_BATCH, Values, encode, spread, summarise
from torch import Tensor

from attnlab.data.corpus import Pair
from attnlab.data.examples import Examples
from attnlab.explain.scorecard import Score
from attnlab.explain.units import Units, log_probability, units_of
from attnlab.nn.seq2seq import Seq2Seq
from attnlab.settings import Size
from attnlab.training.model import Model

Encode = Callable[[list[Pair]], Examples]


@dataclass(frozen=True, kw_only=True)
class Distractors:
    """Measures of the attention to a distractor, on evenly spread sentences of a split.

    Args:
        sentences: number of sentences; those beside which no other one fits are left out.
    """

    sentences: Size

    def __call__(self, model: Model, pairs: Sequence[Pair], *, seed: int) -> dict[str, Score]:
        """Return the means over all target positions; nothing is random."""
        pairs = [pairs[i] for i in spread(len(pairs), self.sentences)]
        encode_all = partial(encode, model)
        examples = encode_all(pairs)
        lengths: list[int] = examples.source_lengths.tolist()
        chosen = [
            (i, other)
            for i, other in enumerate(partners(lengths, max(lengths)))
            if other is not None and examples.target_lengths[i] > 1  # a target of EOS alone has no units
        ]
        if not chosen:
            return {}
        rows, others = zip(*chosen, strict=True)
        measured = distract(model.network, [pairs[i] for i in rows], [pairs[i] for i in others], encode_all)
        sentences = [rows[i] for i in measured.sentences.tolist()]
        return summarise(
            [
                Values("distractor_weight", sentences, measured.weight.tolist()),
                Values("distractor_crossing", sentences, measured.crossing.tolist()),
                Values("distractor_drop", sentences, measured.drop.tolist()),
            ]
        )


class Distracted(NamedTuple):
    """Effect of a distractor on each unit [N]."""

    sentences: Tensor  # [N] int64: the sentence of each unit
    weight: Tensor  # share of the attention weight at tokens of the distractor
    crossing: Tensor  # 1 if the largest weight is at a token of the distractor, else 0
    drop: Tensor  # drop of the probability p of the explained token


def partners(lengths: Sequence[int], longest: int) -> list[int | None]:
    """Return for each source the next one that fits beside it, or None if no other does.

    Args:
        lengths: length of each source.
        longest: largest sum of two lengths, so that no source is longer than those of the data.
    """
    count = len(lengths)
    following = ((i, ((i + step) % count for step in range(1, count))) for i in range(count))
    return [next((j for j in others if lengths[i] + lengths[j] <= longest), None) for i, others in following]


def distract(network: Seq2Seq, pairs: list[Pair], others: list[Pair], encode: Encode) -> Distracted:
    """Measure the attention to another source that is concatenated with each source.

    Vafa et al. 2021 (arXiv 2109.06387), section 7, concatenate the sources of two sentences and count how
    often the rationale of a token contains tokens of the other sentence. Here the target and the explained
    tokens are those of one sentence. The distractor is on the side where the probabilities drop less: a
    network that reverses its input needs it before the source, one that copies after it.

    Args:
        network: in evaluation mode.
        pairs: B sentences.
        others: B sentences whose sources are the distractors.
        encode: encodes pairs as the network reads them.
    """
    sides = [_measure(network, pairs, others, encode, first=first) for first in (False, True)]
    return min(sides, key=lambda side: float(side.drop.mean()))


@torch.no_grad()
def _measure(
    network: Seq2Seq, pairs: list[Pair], others: list[Pair], encode: Encode, *, first: bool
) -> Distracted:
    device = next(network.parameters()).device
    added = encode(others)
    own = encode(pairs)
    joined = encode(
        [
            Pair(" ".join((other.source, pair.source)[:: 1 if first else -1]), pair.target)
            for pair, other in zip(pairs, others, strict=True)
        ]
    )
    parts = []
    for start in range(0, len(pairs), SENTENCES_PER_BATCH):
        rows = list(range(start, min(start + SENTENCES_PER_BATCH, len(pairs))))
        batch = joined[rows].to(device)
        text = batch.source_text  # [B, S]
        size = added[rows].source_text.sum(dim=1, keepdim=True).to(device)  # [B, 1]
        positions = torch.arange(text.size(1), device=device)  # [S]
        beside = text & (positions < size if first else positions >= text.sum(dim=1, keepdim=True) - size)
        offsets = size if first else torch.zeros_like(size)  # [B, 1]
        before, after = units_of(network, own[rows].to(device)), units_of(network, batch)
        after = after._replace(tokens=_renumbered(before, after, offsets[after.batch.indices - start]))
        of_units = [
            log_probability(network, part, network.source_embedding(part.batch.source))
            for part in after.chunks()
        ]
        marked = beside[after.batch.indices - start]  # [N, S]
        weights = after.weights
        share = (weights * marked).sum(dim=-1) / weights.sum(dim=-1)  # [N]
        crossing = marked.gather(-1, weights.argmax(dim=-1, keepdim=True))[:, 0]  # [N]
        drop = before.log_p.exp() - torch.cat(of_units).exp()  # [N]
        parts.append(Distracted(after.batch.indices, share, crossing.to(share.dtype), drop))
    return Distracted(*(torch.cat(columns) for columns in zip(*parts, strict=True)))


def _renumbered(before: Units, after: Units, offsets: Tensor) -> Tensor:
    """Return the explained tokens [N] with the ids that they have beside a distractor.

    Words outside the vocabulary that a readout copies are numbered within their source.

    Args:
        before: units of the sources alone.
        after: the same units, beside distractors.
        offsets: [N, 1], number of tokens before each source.
    """
    if before.batch.copy_ids is None or after.batch.copy_ids is None:
        return before.tokens
    copies = before.batch.copy_ids == before.tokens[:, None]  # [N, S]
    positions = copies.int().argmax(dim=-1, keepdim=True)  # [N, 1]
    moved = after.batch.copy_ids.gather(-1, positions + offsets)[:, 0]  # [N]
    return moved.where(copies.any(dim=-1), before.tokens)
