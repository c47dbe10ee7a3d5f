"""Extension of beam hypotheses by one token, and the record of those that are finished.

B, S, V, K, Q as in `attnlab.types` · T: steps, max_length + 1 · live: sentences still in the batch
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from attnlab.types import EOS, PAD, SOS, Hypotheses


def log_probabilities(logits: Tensor, copy_ids: Tensor | None, *, must_end: bool) -> Tensor:
    """Return log-probabilities in fp32, -inf at tokens that no output may contain.

    These are PAD, SOS, ids of copied words that a sentence does not have, and with `must_end` all tokens
    except EOS. The others keep the probabilities of the model.

    Args:
        logits: [live, Q, V], or [live, Q, V + S] of a readout that copies.
        copy_ids: `Batch.copy_ids` of the sentences, [live, S]; None if the readout does not copy.
        must_end: True at the last step.
    """
    log_p = logits.float().log_softmax(dim=-1)
    ids = torch.arange(log_p.size(-1), device=log_p.device)[None]  # [1, V]
    if must_end:
        return log_p.masked_fill_((ids != EOS)[:, None], float("-inf"))
    forbidden = (ids == PAD) | (ids == SOS)
    if copy_ids is not None:
        words = log_p.size(-1) - copy_ids.size(1)  # of the vocabulary
        last = copy_ids.amax(dim=1, keepdim=True).clamp(min=words - 1)  # [live, 1]
        forbidden = forbidden | (ids > last)  # [live, V + S]
    return log_p.masked_fill_(forbidden[:, None], float("-inf"))


class Finished(NamedTuple):
    """Finished hypotheses of each sentence in a group of K beams, as pointers to their last steps.

    The last of K + 1 entries is not read: hypotheses that are not kept are written there.
    """

    scores: Tensor  # [B, K + 1], -inf in unused entries
    steps: Tensor  # [B, K + 1]: step of the last token
    parents: Tensor  # [B, K + 1]: beam that the last token extends
    counts: Tensor  # [B]: used entries

    @classmethod
    def none(cls, sentences: int, size: int, device: torch.device) -> Finished:
        """Return an empty record for groups of `size` beams."""
        shape = (sentences, size + 1)
        return cls(
            scores=torch.full(shape, float("-inf"), device=device),
            steps=torch.zeros(shape, dtype=torch.int64, device=device),
            parents=torch.zeros(shape, dtype=torch.int64, device=device),
            counts=torch.zeros(sentences, dtype=torch.int64, device=device),
        )

    @property
    def size(self) -> int:
        """Number of beams of the group, K."""
        return self.scores.size(1) - 1


def extend_groups(
    log_p: Tensor,
    sums: Tensor,
    finished: Sequence[Finished],
    live: Tensor,
    step: int,
    *,
    length_penalty: float,
    penalty: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Extend the hypotheses of each group by one token; those that end are added to `finished`, in place.

    Args:
        log_p: [live, Q, V].
        sums: log-probabilities so far, [live, Q]; if Q = 1, all groups extend the same hypothesis.
        finished: record of each group.
        live: row of each sentence in the batch, [live].
        step: number of tokens so far.
        length_penalty: as in `beam`.
        penalty: λ of `beam`.

    Returns:
        Tokens, extended beams and log-probabilities of the new beams, each [live, K].
    """
    extended = []
    # [live, V]: hypotheses of earlier groups that continue with a token
    uses = torch.zeros_like(log_p[:, 0]) if len(finished) > 1 else None
    for number, group in enumerate(finished):
        size = group.size
        beams = max(1, sums.size(1) // len(finished))
        first = 0 if sums.size(1) == 1 else number * beams
        own = slice(first, first + beams)
        scores = log_p[:, own]  # [live, Q', V]
        if uses is not None:
            scores = scores - penalty * uses[:, None]
        # Each beam has one continuation with EOS, so at least K of the 2K best do not end
        top, candidates = scores.topk(min(2 * size, scores.size(-1)), dim=-1)  # [live, Q', ≤ 2K]
        totals = (sums[:, own, None] + top).flatten(1)
        best, flat = totals.topk(min(2 * size, totals.size(1)), dim=-1)  # [live, ≤ 2K]
        token, parent = candidates.flatten(1).gather(1, flat), first + flat // top.size(-1)
        if uses is not None:
            best = best + penalty * uses.gather(1, token)
        ends = token == EOS  # [live, ≤ 2K]
        _add_finished(group, live, step, best[:, :size], parent[:, :size], ends[:, :size], length_penalty)
        keep = torch.sort(ends.int(), dim=-1, stable=True).indices[:, :size]  # the K best without EOS
        token, parent, best = token.gather(1, keep), parent.gather(1, keep), best.gather(1, keep)
        best = best.masked_fill(token == EOS, float("-inf"))  # a tiny vocabulary has fewer than K without EOS
        if uses is not None:
            uses.scatter_add_(1, token, best.isfinite().float())
        extended.append((token, parent, best))
    token, parent, best = (torch.cat(parts, dim=1) for parts in zip(*extended, strict=True))
    return token, parent, best


def _add_finished(
    finished: Finished,
    live: Tensor,
    step: int,
    best: Tensor,
    parent: Tensor,
    ends: Tensor,
    length_penalty: float,
) -> None:
    """Store the hypotheses [live, K] that ended at this step, up to K per sentence, in place."""
    ends = ends & best.isfinite()  # a hypothesis that ended earlier cannot end again
    slots = finished.counts[live, None] + ends.cumsum(dim=1) - 1  # [live, K]
    slots = slots.where(ends, finished.size).clamp(max=finished.size)
    values = (best / (step + 1) ** length_penalty, torch.full_like(parent, step), parent)
    for record, value in zip(finished[:3], values, strict=True):
        record[live] = record[live].scatter(1, slots, value)
    finished.counts[live] = (finished.counts[live] + ends.sum(dim=1)).clamp(max=finished.size)


def trace_back(
    finished: Sequence[Finished], tokens: Tensor, parents: Tensor, weights: Tensor, source_lengths: Tensor
) -> Hypotheses:
    """Follow each finished hypothesis of all groups from its last token to its first.

    Args:
        finished: record of each group.
        tokens: of each step, [T, B, K].
        parents: beam that each token extends, [T, B, K].
        weights: attention weights of each step, by the extended beam, [T, B, K, S].
        source_lengths: [B].
    """
    groups = zip(*(group[:3] for group in finished), strict=True)
    scores, ends, beams = (
        torch.cat([part[:, :-1] for part in parts], dim=1).cpu() for parts in groups
    )  # each [B, K]
    scores, order = scores.sort(dim=1, descending=True, stable=True)
    ends, beams = ends.gather(1, order), beams.gather(1, order)
    # from here on, T is the number of steps of the longest hypothesis
    tokens, parents, weights = (part[: int(ends.max()) + 1].cpu() for part in (tokens, parents, weights))
    ids, paths = torch.empty_like(tokens), torch.empty_like(parents)  # [T, B, K], of each hypothesis
    for step in range(len(tokens) - 1, -1, -1):
        ids[step] = tokens[step].gather(1, beams)
        beams = parents[step].gather(1, beams).where(step < ends, beams)  # those that the step extends
        paths[step] = beams
    sentences = torch.arange(len(ends))[:, None, None]
    rows = weights[torch.arange(len(tokens)), sentences, paths.permute(1, 2, 0)]  # [B, K, T, S]
    numbers = scores.isfinite().sum(dim=1).tolist()  # hypotheses of each sentence
    id_rows, end_rows, score_rows = ids.permute(1, 2, 0).tolist(), ends.tolist(), scores.tolist()
    hypotheses = Hypotheses([], [], [])
    for sentence, length in enumerate(source_lengths.tolist()):
        lengths = list(enumerate(end_rows[sentence][: numbers[sentence]]))
        hypotheses.tokens.append([id_rows[sentence][k][:end] for k, end in lengths])
        hypotheses.scores.append(score_rows[sentence][: len(lengths)])
        hypotheses.weights.append([rows[sentence, k, : end + 1, :length] for k, end in lengths])
    return hypotheses
