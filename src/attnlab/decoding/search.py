"""Greedy and beam search, batched over sentences.

The attention keys are computed once per sentence. Finished sentences leave the batch several at a time,
because each removal copies the memories of all remaining sentences.

B, S, V, K, Q as in `attnlab.types` · T: steps, max_length + 1 · live: sentences still in the batch
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from attnlab.nn.seq2seq import TranslationModel, select
from attnlab.types import EOS, PAD, SOS, Batch, Hypotheses

REMOVAL_SHARE = 1 / 8
"""Finished sentences are removed once they make up this share of the batch."""


@torch.no_grad()
def greedy(
    model: TranslationModel,
    batch: Batch,
    *,
    max_length: int,
    length_penalty: float = 1.0,
    encoded: tuple[Any, Any] | None = None,
) -> Hypotheses:
    """Take the most probable token at each step.

    Args:
        model: in evaluation mode.
        batch: sources to decode; targets are ignored.
        max_length: maximum number of tokens before EOS.
        length_penalty: a hypothesis of n tokens, EOS included, scores log p(y | x) / n ** length_penalty.
        encoded: result of `model.encode(batch)`, if it was computed before.

    Returns:
        One hypothesis per sentence.
    """
    sources, state = model.encode(batch) if encoded is None else encoded
    size, width = batch.source.shape
    device = batch.source.device
    tokens = torch.full((size, max_length + 1), PAD, device=device)  # [B, T]
    weights = torch.zeros(size, max_length + 1, width, device=device)  # [B, T, S]
    scores = torch.zeros(size, device=device)  # [B]
    live = torch.arange(size, device=device)  # [live]: rows still in the batch
    unfinished = torch.ones(size, dtype=torch.bool, device=device)  # [live]
    last = torch.full((size, 1), SOS, device=device)  # [live, 1]
    for step in range(max_length + 1):
        logits, step_weights, state = model.step(last, state, sources)
        log_p = _log_probabilities(logits, must_end=step == max_length)  # [live, 1, V]
        last = _argmax(log_p)  # [live, 1]
        best = log_p.gather(-1, last[..., None])[..., 0]  # [live, 1]
        tokens[live, step] = last[:, 0]  # also after EOS, where it is ignored
        weights[live, step] = step_weights[:, 0].float()
        scores[live] += best[:, 0].where(unfinished, 0)
        unfinished = unfinished & (last[:, 0] != EOS)
        remaining = unfinished.nonzero()[:, 0]
        if len(remaining) == 0:
            break
        if _should_remove(len(live), len(remaining)):
            live, last, unfinished = live[remaining], last[remaining], unfinished[remaining]
            sources, state = select(sources, remaining), select(state, remaining)
    lengths, totals, weights = batch.source_lengths.tolist(), scores.tolist(), weights.cpu()
    outputs = []
    for row, ids in enumerate(tokens.tolist()):
        end = ids.index(EOS)
        score = totals[row] / (end + 1) ** length_penalty
        outputs.append((ids[:end], score, weights[row, : end + 1, : lengths[row]]))
    return Hypotheses(*([[part] for part in parts] for parts in zip(*outputs, strict=True)))


def _should_remove(live: int, remaining: int) -> bool:
    return live - remaining >= REMOVAL_SHARE * live


def _argmax(values: Tensor) -> Tensor:
    """Return the argmax over the last dimension; NumPy's is ten times faster on a CPU."""
    if values.device.type == "cpu":
        return torch.from_numpy(values.numpy().argmax(axis=-1))
    return values.argmax(dim=-1)


def _log_probabilities(logits: Tensor, *, must_end: bool) -> Tensor:
    """Return log-probabilities [..., V] in fp32; with `must_end`, -inf for all tokens except EOS."""
    log_p = logits.float().log_softmax(dim=-1)
    if must_end:
        not_eos = torch.arange(log_p.size(-1), device=log_p.device) != EOS
        log_p = log_p.masked_fill(not_eos, float("-inf"))
    return log_p


class _Finished(NamedTuple):
    """Finished hypotheses of each sentence, as pointers to their last steps."""

    scores: Tensor  # [B, K], -inf in unused entries
    steps: Tensor  # [B, K]: step of the last token
    parents: Tensor  # [B, K]: beam that the last token extends
    counts: Tensor  # [B]: used entries


@torch.no_grad()
def beam(
    model: TranslationModel,
    batch: Batch,
    *,
    size: int,
    max_length: int,
    length_penalty: float = 1.0,
    encoded: tuple[Any, Any] | None = None,
) -> Hypotheses:
    """Search with a beam of K hypotheses per sentence.

    At each step the K best continuations without EOS stay in the beam. A continuation with EOS among the best
    K is a finished hypothesis, and a sentence is finished when it has K of them. K = 1 is greedy search.

    Args:
        model: in evaluation mode.
        batch: sources to decode; targets are ignored.
        size: K.
        max_length: maximum number of tokens before EOS.
        length_penalty: a hypothesis of n tokens, EOS included, scores log p(y | x) / n ** length_penalty:
            0 compares sums of log-probabilities, 1 means.
        encoded: result of `model.encode(batch)`, if it was computed before.

    Returns:
        At most K hypotheses per sentence, best first.
    """
    sources, state = model.encode(batch) if encoded is None else encoded
    sentences, width = batch.source.shape
    device = batch.source.device
    shape = (max_length + 1, sentences, size)
    tokens = torch.full(shape, PAD, device=device)  # [T, B, K]
    parents = torch.zeros(shape, dtype=torch.int64, device=device)  # [T, B, K]: beam that the token extends
    weights = torch.zeros(*shape, width, device=device)  # [T, B, K, S]: of the step, by the extended beam
    finished = _Finished(
        scores=torch.full((sentences, size), float("-inf"), device=device),
        steps=torch.zeros(sentences, size, dtype=torch.int64, device=device),
        parents=torch.zeros(sentences, size, dtype=torch.int64, device=device),
        counts=torch.zeros(sentences, dtype=torch.int64, device=device),
    )
    live = torch.arange(sentences, device=device)
    last = torch.full((sentences, 1), SOS, device=device)  # [live, Q]: Q = 1 at the first step, then K
    sums = torch.zeros(sentences, 1, device=device)  # [live, Q]: log-probability so far
    for step in range(max_length + 1):
        logits, step_weights, state = model.step(last, state, sources)
        weights[step, live, : step_weights.size(1)] = step_weights.float()
        log_p = _log_probabilities(logits, must_end=step == max_length)  # [live, Q, V]
        # Each beam has one continuation with EOS, so at least K of the 2K best do not end
        top, candidates = log_p.topk(min(2 * size, log_p.size(-1)), dim=-1)  # [live, Q, ≤ 2K]
        totals = (sums[..., None] + top).flatten(1)
        best, flat = totals.topk(min(2 * size, totals.size(1)), dim=-1)  # [live, ≤ 2K]
        token, parent = candidates.flatten(1).gather(1, flat), flat // top.size(-1)
        ends = token == EOS  # [live, ≤ 2K]
        _add_finished(finished, live, step, best[:, :size], parent[:, :size], ends[:, :size], length_penalty)
        if step == max_length:
            break
        keep = torch.sort(ends.int(), dim=-1, stable=True).indices[:, :size]  # the K best without EOS
        last, parent, sums = token.gather(1, keep), parent.gather(1, keep), best.gather(1, keep)
        sums = sums.masked_fill(last == EOS, float("-inf"))  # a tiny vocabulary has fewer than K without EOS
        tokens[step, live, : last.size(1)] = last
        parents[step, live, : last.size(1)] = parent
        remaining = (finished.counts[live] < size).nonzero()[:, 0]
        if len(remaining) == 0:
            break
        remove = _should_remove(len(live), len(remaining))
        stay = remaining if remove else torch.arange(len(live), device=device)
        state = select(state, stay[:, None], parent[stay])
        if len(stay) < len(live):
            live, last, sums = live[stay], last[stay], sums[stay]
            sources = select(sources, stay)
    return _trace_back(finished, tokens, parents, weights, batch.source_lengths)


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
