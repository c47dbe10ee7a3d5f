"""Search: from a network's single step to whole outputs.

Both searches are batched, project the keys once, and let finished sentences leave the batch, several at a
time: for each that leaves alone, the memories of all that stay would be copied.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from attnlab.nn.seq2seq import TranslationModel, select
from attnlab.types import EOS, PAD, SOS, Batch, Hypotheses

LEAVE = 1 / 8
"""The share of a batch's sentences that must have finished for them to leave."""


@torch.no_grad()
def greedy(network: TranslationModel, batch: Batch, *, max_length: int) -> Hypotheses:
    """The best token at each step; scores are the mean log-probability of the tokens and of EOS.

    Args:
        network: in evaluation mode.
        batch: whose sources are read; its targets are not.
        max_length: EOS is the only choice after this many tokens.
    """
    encoded, state = network.encode(batch)
    size, width = batch.source.shape
    device = batch.source.device
    tokens = torch.full((size, max_length + 1), PAD, device=device)  # [B, T]
    weights = torch.zeros(size, max_length + 1, width, device=device)  # [B, T, S]
    scores = torch.zeros(size, device=device)  # [B]
    live = torch.arange(size, device=device)  # rows still in the batch
    unfinished = torch.ones(size, dtype=torch.bool, device=device)  # [live]
    last = torch.full((size, 1), SOS, device=device)  # [live, 1]
    for step in range(max_length + 1):
        logits, attended, state = network.step(last, state, encoded)
        logs = _log_probabilities(logits, must_end=step == max_length)
        last = _argmax(logs)  # [live, 1]
        best = logs.gather(-1, last[..., None])[..., 0]  # [live, 1]
        tokens[live, step] = last[:, 0]  # after EOS too, which nobody reads
        weights[live, step] = attended[:, 0].float()
        scores[live] += best[:, 0].where(unfinished, 0)
        unfinished = unfinished & (last[:, 0] != EOS)
        going_on = unfinished.nonzero()[:, 0]
        if len(going_on) == 0:
            break
        if _may_leave(len(live), len(going_on)):
            live, last, unfinished = live[going_on], last[going_on], unfinished[going_on]
            encoded, state = select(encoded, going_on), select(state, going_on)
    lengths, totals, weights = batch.source_lengths.tolist(), scores.tolist(), weights.cpu()
    outputs = []
    for row, ids in enumerate(tokens.tolist()):
        end = ids.index(EOS)
        outputs.append((ids[:end], totals[row] / (end + 1), weights[row, : end + 1, : lengths[row]]))
    return Hypotheses(*([[part] for part in parts] for parts in zip(*outputs, strict=True)))


def _may_leave(live: int, going_on: int) -> bool:
    return live - going_on >= LEAVE * live


def _argmax(logs: Tensor) -> Tensor:
    """Over the last dimension; on a CPU by NumPy, in a tenth of torch's time."""
    if logs.device.type == "cpu":
        return torch.from_numpy(logs.numpy().argmax(axis=-1))
    return logs.argmax(dim=-1)


def _log_probabilities(logits: Tensor, *, must_end: bool) -> Tensor:
    """[..., V] in fp32; where a sentence must end, -inf for all but EOS."""
    logs = logits.float().log_softmax(dim=-1)
    if must_end:
        elsewhere = torch.arange(logs.size(-1), device=logs.device) != EOS
        logs = logs.masked_fill(elsewhere, float("-inf"))
    return logs


class _Finished(NamedTuple):
    """Where each of a sentence's finished hypotheses ended."""

    scores: Tensor  # [B, K], -inf where there is none yet
    steps: Tensor  # [B, K]: the step of its last token
    parents: Tensor  # [B, K]: the beam it came from
    counts: Tensor  # [B]


@torch.no_grad()
def beam(
    network: TranslationModel, batch: Batch, *, size: int, max_length: int, length_penalty: float = 1.0
) -> Hypotheses:
    """The K best hypotheses that a beam of K finds, best first.

    A hypothesis of n tokens, EOS counted, scores log p(y | x) / n^length_penalty. At each step the K best
    continuations that do not end go on; one that ends among the first K is finished, and a sentence is done
    when K are. With K = 1 this is greedy search.

    Args:
        network: in evaluation mode.
        batch: whose sources are read; its targets are not.
        size: K.
        max_length: EOS is the only choice after this many tokens.
        length_penalty: 0 compares sums of log-probabilities, 1 means.
    """
    encoded, state = network.encode(batch)
    sentences, width = batch.source.shape
    device = batch.source.device
    shape = (max_length + 1, sentences, size)
    tokens = torch.full(shape, PAD, device=device)  # [T, B, K]
    parents = torch.zeros(shape, dtype=torch.int64, device=device)  # [T, B, K]: beam each token came from
    weights = torch.zeros(*shape, width, device=device)  # [T, B, K, S]: of the step, by the beam that took it
    finished = _Finished(
        scores=torch.full((sentences, size), float("-inf"), device=device),
        steps=torch.zeros(sentences, size, dtype=torch.int64, device=device),
        parents=torch.zeros(sentences, size, dtype=torch.int64, device=device),
        counts=torch.zeros(sentences, dtype=torch.int64, device=device),
    )
    live = torch.arange(sentences, device=device)
    last = torch.full((sentences, 1), SOS, device=device)  # [live, Q]: Q = 1 at first, then K
    sums = torch.zeros(sentences, 1, device=device)  # [live, Q]: log-probability so far
    for step in range(max_length + 1):
        logits, attended, state = network.step(last, state, encoded)
        weights[step, live, : attended.size(1)] = attended.float()
        logs = _log_probabilities(logits, must_end=step == max_length)  # [live, Q, V]
        ahead, candidates = logs.topk(min(2 * size, logs.size(-1)), dim=-1)  # [live, Q, ≤ 2K]
        totals = (sums[..., None] + ahead).flatten(1)
        best, flat = totals.topk(min(2 * size, totals.size(1)), dim=-1)  # [live, ≤ 2K]
        token, parent = candidates.flatten(1).gather(1, flat), flat // ahead.size(-1)
        ends = token == EOS  # [live, 2K]
        _finish(finished, live, step, best[:, :size], parent[:, :size], ends[:, :size], length_penalty)
        if step == max_length:
            break
        keep = torch.sort(ends.int(), dim=-1, stable=True).indices[:, :size]  # the K best that go on
        last, parent, sums = token.gather(1, keep), parent.gather(1, keep), best.gather(1, keep)
        sums = sums.masked_fill(last == EOS, float("-inf"))  # fewer than K can go on in a tiny vocabulary
        tokens[step, live, : last.size(1)] = last
        parents[step, live, : last.size(1)] = parent
        going_on = (finished.counts[live] < size).nonzero()[:, 0]
        if len(going_on) == 0:
            break
        stay = going_on if _may_leave(len(live), len(going_on)) else torch.arange(len(live), device=device)
        state = select(state, stay[:, None], parent[stay])
        if len(stay) < len(live):
            live, last, sums = live[stay], last[stay], sums[stay]
            encoded = select(encoded, stay)
    return _read_back(finished, tokens, parents, weights, batch.source_lengths)


def _finish(
    finished: _Finished,
    live: Tensor,
    step: int,
    best: Tensor,
    parent: Tensor,
    ends: Tensor,
    length_penalty: float,
) -> None:
    """Note the hypotheses [live, K] that ended at this step, as far as there is room for K a sentence."""
    size = finished.scores.size(1)
    ends = ends & best.isfinite()  # what ended before cannot end again
    slots = finished.counts[live, None] + ends.cumsum(dim=1) - 1  # [live, K]
    row, rank = (ends & (slots < size)).nonzero(as_tuple=True)
    slot = slots[row, rank]
    finished.scores[live[row], slot] = best[row, rank] / (step + 1) ** length_penalty
    finished.steps[live[row], slot] = step
    finished.parents[live[row], slot] = parent[row, rank]
    finished.counts[live] = (finished.counts[live] + ends.sum(dim=1)).clamp(max=size)


def _read_back(
    finished: _Finished, tokens: Tensor, parents: Tensor, weights: Tensor, source_lengths: Tensor
) -> Hypotheses:
    """The finished hypotheses of each sentence, best first, each followed from its end to its beginning."""
    finished = _Finished(*(tensor.cpu() for tensor in finished))
    said, origins, weights = tokens.tolist(), parents.tolist(), weights.cpu()
    found = Hypotheses([], [], [])
    for sentence, length in enumerate(source_lengths.tolist()):
        scores, order = finished.scores[sentence].sort(descending=True, stable=True)
        slots = order[scores.isfinite()]
        ends, beams = finished.steps[sentence, slots].tolist(), finished.parents[sentence, slots].tolist()
        paths = []
        for end, beam in zip(ends, beams, strict=True):
            ids, path = [], [beam]  # path: the beam that took each step
            for step in range(end - 1, -1, -1):
                ids.append(said[step][sentence][path[-1]])
                path.append(origins[step][sentence][path[-1]])
            rows = weights[torch.arange(end + 1), sentence, path[::-1], :length]  # [end + 1, S]
            paths.append((ids[::-1], rows))
        found.tokens.append([ids for ids, _ in paths])
        found.scores.append(scores[: len(paths)].tolist())
        found.weights.append([rows for _, rows in paths])
    return found
