"""Beam search and diverse beam search, batched over sentences.

B, S, V, K, Q as in `attnlab.types` · T: steps, max_length + 1 · live: sentences still in the batch
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from attnlab.decoding.constraints import UNRESTRICTED, Constraints
from attnlab.decoding.search import log_probabilities, should_remove
from attnlab.nn.seq2seq import TranslationModel, select
from attnlab.types import EOS, PAD, SOS, Batch, Hypotheses


class _Finished(NamedTuple):
    """Finished hypotheses of each sentence in a group of K beams, as pointers to their last steps."""

    scores: Tensor  # [B, K], -inf in unused entries
    steps: Tensor  # [B, K]: step of the last token
    parents: Tensor  # [B, K]: beam that the last token extends
    counts: Tensor  # [B]: used entries

    @classmethod
    def none(cls, sentences: int, size: int, device: torch.device) -> _Finished:
        """Return an empty record for groups of `size` beams."""
        return cls(
            scores=torch.full((sentences, size), float("-inf"), device=device),
            steps=torch.zeros(sentences, size, dtype=torch.int64, device=device),
            parents=torch.zeros(sentences, size, dtype=torch.int64, device=device),
            counts=torch.zeros(sentences, dtype=torch.int64, device=device),
        )


@torch.no_grad()
def beam(
    model: TranslationModel,
    batch: Batch,
    *,
    size: int,
    max_length: int,
    length_penalty: float = 1.0,
    groups: int = 1,
    diversity_penalty: float = 0.0,
    constraints: Constraints = UNRESTRICTED,
    encoded: tuple[Any, Any] | None = None,
) -> Hypotheses:
    """Search with a beam of K hypotheses per sentence.

    At each step the K best continuations without EOS stay in the beam. A continuation with EOS among the best
    K is a finished hypothesis, and a sentence is finished when it has K of them. K = 1 is greedy search.

    Diverse beam search (Vijayakumar et al. 2016, arXiv 1610.02424) divides the beam into groups, which are
    extended one after the other. In each step, a group prefers the tokens that fewer hypotheses of earlier
    groups continue with. Scores are those of the model without this penalty.

    Args:
        model: in evaluation mode.
        batch: sources to decode; targets are ignored.
        size: K.
        max_length: maximum number of tokens before EOS.
        length_penalty: a hypothesis of n tokens, EOS included, scores log p(y | x) / n ** length_penalty:
            0 compares sums of log-probabilities, 1 means.
        groups: number of groups, a divisor of K; 1 is beam search without groups.
        diversity_penalty: λ, subtracted from the log-probability of a token for each hypothesis of an earlier
            group that continues with it at this step.
        constraints: restrictions on the outputs.
        encoded: result of `model.encode(batch)`, if it was computed before.

    Returns:
        At most K hypotheses per sentence, best first.

    Raises:
        ValueError: if K is not a multiple of `groups`.
    """
    if size % groups != 0:
        raise ValueError(f"a beam of {size} hypotheses cannot be divided into {groups} equal groups")
    sources, state = model.encode(batch) if encoded is None else encoded
    sentences, width = batch.source.shape
    device = batch.source.device
    shape = (max_length + 1, sentences, size)
    tokens = torch.full(shape, PAD, device=device)  # [T, B, K]
    parents = torch.zeros(shape, dtype=torch.int64, device=device)  # [T, B, K]: beam that the token extends
    weights = torch.zeros(*shape, width, device=device)  # [T, B, K, S]: of the step, by the extended beam
    finished = [_Finished.none(sentences, size // groups, device) for _ in range(groups)]
    live = torch.arange(sentences, device=device)
    last = torch.full((sentences, 1), SOS, device=device)  # [live, Q]: Q = 1 at the first step, then K
    sums = torch.zeros(sentences, 1, device=device)  # [live, Q]: log-probability so far
    for step in range(max_length + 1):
        logits, step_weights, state = model.step(last, state, sources)
        weights[step, live, : step_weights.size(1)] = step_weights.float()
        log_p = log_probabilities(logits, must_end=step == max_length)  # [live, Q, V]
        if step < max_length:
            log_p = constraints(
                log_p, live, step, partial(_beam_history, tokens, parents, live, step, last.size(1))
            )
        last, parent, sums = _extend_groups(
            log_p, sums, finished, live, step, length_penalty=length_penalty, penalty=diversity_penalty
        )
        tokens[step, live, : last.size(1)] = last
        parents[step, live, : last.size(1)] = parent
        unfinished = torch.stack([group.counts[live] < size // groups for group in finished]).any(dim=0)
        remaining = unfinished.nonzero()[:, 0]
        if len(remaining) == 0 or step == max_length:
            break
        remove = should_remove(len(live), len(remaining))
        stay = remaining if remove else torch.arange(len(live), device=device)
        state = select(state, stay[:, None], parent[stay])
        if len(stay) < len(live):
            live, last, sums = live[stay], last[stay], sums[stay]
            sources = select(sources, stay)
    joined = _Finished(*(torch.cat(parts, dim=-1) for parts in zip(*finished, strict=True)))
    return _trace_back(joined, tokens, parents, weights, batch.source_lengths)


def _extend_groups(
    log_p: Tensor,
    sums: Tensor,
    finished: list[_Finished],
    live: Tensor,
    step: int,
    *,
    length_penalty: float,
    penalty: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Extend the hypotheses of each group by one token; those that end are added to `finished`, in place.

    Args:
        log_p: [live, Q, V].
        sums: log-probabilities so far, [live, Q].
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
        size = group.scores.size(1)
        first = 0 if step == 0 else number * (sums.size(1) // len(finished))  # all groups extend SOS
        own = slice(first, None if step == 0 else first + sums.size(1) // len(finished))
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


def _beam_history(tokens: Tensor, parents: Tensor, live: Tensor, step: int, beams: int) -> Tensor:
    """Return the tokens [live, Q, step] of the current hypotheses; other shapes as in `beam`."""
    beam = torch.arange(beams, device=live.device).expand(len(live), -1)  # [live, Q]
    path = []
    for earlier in range(step - 1, -1, -1):
        path.append(tokens[earlier, live].gather(1, beam))
        beam = parents[earlier, live].gather(1, beam)
    return torch.stack(path[::-1], dim=-1)


def _add_finished(
    finished: _Finished,
    live: Tensor,
    step: int,
    best: Tensor,
    parent: Tensor,
    ends: Tensor,
    length_penalty: float,
) -> None:
    """Store the hypotheses [live, K] that ended at this step, up to K per sentence, in place."""
    size = finished.scores.size(1)
    ends = ends & best.isfinite()  # a hypothesis that ended earlier cannot end again
    slots = finished.counts[live, None] + ends.cumsum(dim=1) - 1  # [live, K]
    row, rank = (ends & (slots < size)).nonzero(as_tuple=True)
    slot = slots[row, rank]
    finished.scores[live[row], slot] = best[row, rank] / (step + 1) ** length_penalty
    finished.steps[live[row], slot] = step
    finished.parents[live[row], slot] = parent[row, rank]
    finished.counts[live] = (finished.counts[live] + ends.sum(dim=1)).clamp(max=size)


def _trace_back(
    finished: _Finished, tokens: Tensor, parents: Tensor, weights: Tensor, source_lengths: Tensor
) -> Hypotheses:
    """Follow each finished hypothesis from its last token to its first; shapes as in `beam`."""
    finished = _Finished(*(tensor.cpu() for tensor in finished))
    token_rows, parent_rows, weights = tokens.tolist(), parents.tolist(), weights.cpu()
    hypotheses = Hypotheses([], [], [])
    for sentence, length in enumerate(source_lengths.tolist()):
        scores, order = finished.scores[sentence].sort(descending=True, stable=True)
        slots = order[scores.isfinite()]
        ends, beams = finished.steps[sentence, slots].tolist(), finished.parents[sentence, slots].tolist()
        paths = []
        for end, beam in zip(ends, beams, strict=True):
            ids, path = [], [beam]  # path: the beam that was extended at each step, last step first
            for step in range(end - 1, -1, -1):
                ids.append(token_rows[step][sentence][path[-1]])
                path.append(parent_rows[step][sentence][path[-1]])
            rows = weights[torch.arange(end + 1), sentence, path[::-1], :length]  # [end + 1, S]
            paths.append((ids[::-1], rows))
        hypotheses.tokens.append([ids for ids, _ in paths])
        hypotheses.scores.append(scores[: len(paths)].tolist())
        hypotheses.weights.append([rows for _, rows in paths])
    return hypotheses
