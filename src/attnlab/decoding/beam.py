"""Beam search, batched over sentences.

B, S, V, K, Q as in `attnlab.types` · T: steps, max_length + 1 · live: sentences in the batch
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple, Unpack

import torch
from torch import Tensor

from attnlab.decoding.constraints import FORBIDDEN, UNRESTRICTED, log_probabilities
from attnlab.decoding.search import SearchSettings, argmax, greedy, rows_to_keep, should_remove
from attnlab.nn.seq2seq import TranslationModel, select
from attnlab.types import EOS, PAD, SOS, Batch, Hypotheses

BLOCK, MIN_SIZE_OF_BLOCKS = 8, 2000
"""Values in a block of `top_continuations`, and the number of values from which it is faster than `topk`."""


@torch.no_grad()
def beam(
    model: TranslationModel,
    batch: Batch,
    *,
    size: int,
    early_stopping: bool = False,
    **settings: Unpack[SearchSettings],
) -> Hypotheses:
    """Search with a beam of K hypotheses per sentence. K = 1 is greedy search.

    At each step the K best continuations without EOS stay in the beam. A continuation with EOS among the best
    K is a finished hypothesis. The hypothesis of greedy search stays in the beam, so that without
    `early_stopping` no result scores below it. A sentence is finished when it has K finished hypotheses and
    no hypothesis in the beam can score higher than the best of them: log p never increases, so that a
    hypothesis scores at most log p / (max_length + 1) ** length_penalty.

    Args:
        size: K
        early_stopping: a sentence is finished when K hypotheses are, even if others can still score higher.
        **settings: as for `greedy`.

    Returns:
        At most K hypotheses per sentence, best first.
    """
    if size == 1:
        return greedy(model, batch, **settings)
    max_length, length_penalty = settings["max_length"], settings.get("length_penalty", 1.0)
    constraints, encoded = settings.get("constraints", UNRESTRICTED), settings.get("encoded")
    sources, state = model.encode(batch) if encoded is None else encoded
    sentences, width = batch.source.shape
    device = batch.source.device
    shape = (max_length + 1, sentences, size)
    tokens = torch.full(shape, PAD, device=device)  # [T, B, K]
    parents = torch.zeros(shape, dtype=torch.int64, device=device)  # [T, B, K]: beam that the token extends
    numbers: dict[str, Any] = {"dtype": torch.float32, "device": device}  # of any network
    weights = torch.zeros(*shape, width, **numbers)  # [T, B, K, S]: of the step, by the extended beam
    totals = torch.zeros(shape, **numbers)  # [T, B, K]: log-probability up to the token
    finished = Finished.none(sentences, size, device)
    live = torch.arange(sentences, device=device)
    last = torch.full((sentences, 1), SOS, device=device)  # [live, Q]: Q = 1 at the first step, then K
    sums = torch.zeros(sentences, 1, **numbers)  # [live, Q]: log-probability so far
    is_greedy = torch.ones(sentences, dtype=torch.bool, device=device)  # [live], see `_extend`
    for step in range(max_length + 1):
        logits, step_weights, state = model.step(last, state, sources)
        weights[step, live, : step_weights.size(1)] = step_weights.float()
        copy_ids = None if batch.copy_ids is None else batch.copy_ids[live]  # [live, S]
        log_p = log_probabilities(logits, copy_ids, must_end=step == max_length)  # [live, Q, V]
        if step < max_length:
            history = partial(_history, tokens, parents, live, step, last.size(1))
            log_p = constraints(log_p, sums, live, step, history)
        last, parent, sums, ended = _extend(log_p, sums, is_greedy, size)
        tokens[step, live, : last.size(1)] = last
        parents[step, live, : last.size(1)] = parent
        totals[step, live, : last.size(1)] = sums
        best = finished.add(live, step, *ended, length_penalty)  # [live, K]
        limit = sums.amax(dim=1) / (max_length + 1) ** length_penalty  # [live]: of all scores to come
        unfinished = best[:, -1].isneginf() & limit.isfinite()
        if not early_stopping:
            unfinished = unfinished | (limit > best[:, 0])
        remaining = rows_to_keep(unfinished, step)
        if len(remaining) == 0:
            break
        sums = sums.masked_fill(~unfinished[:, None], FORBIDDEN)  # finished sentences do not change
        remove = should_remove(live, remaining)
        stay = remaining if remove else torch.arange(len(live), device=device)
        state = model.reorder(state, stay, parent[stay])
        if len(stay) < len(live):
            live, last, sums, is_greedy = live[stay], last[stay], sums[stay], is_greedy[stay]
            sources = select(sources, stay)
    return _trace_back(finished, tokens, parents, weights, totals, batch.source_lengths, length_penalty)


class Finished(NamedTuple):
    """The best finished hypotheses, best first, as pointers to their last steps."""

    scores: Tensor  # [B, K], -inf in unused entries
    steps: Tensor  # [B, K]: step of the last token
    parents: Tensor  # [B, K]: beam that the last token extends

    @classmethod
    def none(cls, sentences: int, size: int, device: torch.device) -> Finished:
        """Return an empty record."""
        none = torch.zeros(sentences, size, dtype=torch.int64, device=device)
        return cls(none.float().fill_(FORBIDDEN), none, none.clone())

    def add(self, live: Tensor, step: int, sums: Tensor, parents: Tensor, length_penalty: float) -> Tensor:
        """Add hypotheses that end at a step, in place; return the scores of the best ones, [live, K].

        Args:
            live: row of each sentence in the batch, [live].
            step: number of tokens so far.
            sums: log-probabilities [live, ≤ K], -inf where none ends.
            parents: beams that EOS extends, [live, ≤ K].
            length_penalty: as in `beam`.
        """
        new = (sums / (step + 1) ** length_penalty, torch.full_like(parents, step), parents)
        both = [torch.cat((old[live], added), dim=-1) for old, added in zip(self, new, strict=True)]
        order = both[0].argsort(dim=-1, descending=True, stable=True)[..., : self.scores.size(-1)]
        scores = both[0].gather(-1, order)
        self.scores[live] = scores
        self.steps[live] = both[1].gather(-1, order)
        self.parents[live] = both[2].gather(-1, order)
        return scores


def _extend(
    log_p: Tensor, sums: Tensor, is_greedy: Tensor, size: int
) -> tuple[Tensor, Tensor, Tensor, tuple[Tensor, Tensor]]:
    """Extend hypotheses with log-probabilities `sums` [live, Q] by one token, given log_p [live, Q, V].

    `is_greedy` [live] is True where the first beam is the hypothesis of greedy search. The first continuation
    is then the best one of this beam. Changed in place when it ends.

    Returns:
        Each [live, ≤ K]: tokens, extended beams and log-probabilities of the new beams; log-probabilities,
        -inf where there are none, and extended beams of the hypotheses that end.
    """
    # Each beam has one continuation with EOS, so at least K of the 2K best do not end
    top, candidates = top_continuations(log_p, min(2 * size, log_p.size(-1)))  # [live, Q, ≤ 2K]
    own, best_id = candidates[:, 0], argmax(log_p[:, 0])[:, None]
    own.copy_(own.where(own != best_id, own[:, :1]))  # of equal continuations, greedy search takes this one
    own[:, :1] = best_id
    totals = (sums[..., None] + top).flatten(1)
    is_greedy &= totals[:, 0].isfinite()  # unless the grammar refuses it
    ranks = totals.clone()
    ranks[:, 0].masked_fill_(is_greedy, float("inf"))
    order = ranks.topk(min(2 * size, totals.size(1)), dim=-1).indices  # [live, ≤ 2K]
    best = totals.gather(1, order)
    token, parent = candidates.flatten(1).gather(1, order), order // top.size(-1)
    ends = token == EOS  # [live, ≤ 2K]
    is_greedy &= ~ends[:, 0]
    ended = best[:, :size].masked_fill(~ends[:, :size], FORBIDDEN), parent[:, :size]
    keep = torch.sort(ends.int(), dim=-1, stable=True).indices[:, :size]  # the K best without EOS
    token, parent, best = token.gather(1, keep), parent.gather(1, keep), best.gather(1, keep)
    best = best.masked_fill(token == EOS, FORBIDDEN)  # a tiny vocabulary has fewer than K without EOS
    return token, parent, best, ended


def top_continuations(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the largest `count` of the values [..., V] and their indices, each [..., count], largest first.

    They lie in the `count` blocks with the largest maxima. On a CPU, `topk` over many values takes several
    times as long as these maxima.
    """
    size = values.size(-1)
    blocks = size // BLOCK
    if values.device.type != "cpu" or size < MIN_SIZE_OF_BLOCKS or count > blocks:
        return values.topk(count, dim=-1)
    parts = values[..., : BLOCK * blocks].view(*values.shape[:-1], BLOCK, blocks)
    maxima = parts.amax(dim=-2)  # [..., blocks], of a block [..., BLOCK] with the stride `blocks`
    best = maxima.topk(count, dim=-1).indices  # [..., count]
    inside = best[..., None] + blocks * torch.arange(BLOCK)  # [..., count, BLOCK]
    rest = torch.arange(BLOCK * blocks, size).expand(*best.shape[:-1], -1)  # [..., < BLOCK]
    candidates = torch.cat([inside.flatten(-2), rest], dim=-1)
    top, order = values.gather(-1, candidates).topk(count, dim=-1)
    return top, candidates.gather(-1, order)


def _history(tokens: Tensor, parents: Tensor, live: Tensor, step: int, beams: int) -> Tensor:
    """Return the tokens [live, Q, step] of the current hypotheses; other shapes as in `beam`."""
    beam = torch.arange(beams, device=live.device).expand(len(live), -1)  # [live, Q]
    path = []
    for earlier in range(step - 1, -1, -1):
        path.append(tokens[earlier, live].gather(1, beam))
        beam = parents[earlier, live].gather(1, beam)
    return torch.stack(path[::-1], dim=-1) if path else beam[..., None][..., :0]


def _trace_back(
    finished: Finished,
    tokens: Tensor,
    parents: Tensor,
    weights: Tensor,
    totals: Tensor,
    source_lengths: Tensor,
    length_penalty: float,
) -> Hypotheses:
    """Follow each finished hypothesis from its last token to its first; arguments as in `beam`."""
    scores, ends, beams = (part.cpu() for part in finished)  # each [B, K]
    # from here on, T is the number of steps of the longest hypothesis
    record = (tokens, parents, weights, totals)
    tokens, parents, weights, totals = (part[: int(ends.max()) + 1].cpu() for part in record)
    ids, paths = torch.empty_like(tokens), torch.empty_like(parents)  # [T, B, K], of each hypothesis
    sums = torch.empty_like(totals)  # [T, B, K]: log-probability up to the token
    for step in range(len(tokens) - 1, -1, -1):
        ids[step], sums[step] = tokens[step].gather(1, beams), totals[step].gather(1, beams)
        beams = parents[step].gather(1, beams).where(step < ends, beams)  # those that the step extends
        paths[step] = beams
    sentences = torch.arange(len(ends))[:, None, None]
    rows = weights[torch.arange(len(tokens)), sentences, paths.permute(1, 2, 0)]  # [B, K, T, S]
    counts = scores.isfinite().sum(dim=1).tolist()  # hypotheses of each sentence
    # EOS is not in the beam: its total follows from the score
    last = scores * (ends + 1.0) ** length_penalty
    sums.scatter_(0, ends.clamp(min=0)[None], last[None])
    token_log_p = sums.diff(dim=0, prepend=torch.zeros_like(sums[:1])).permute(1, 2, 0).tolist()
    id_rows, end_rows, score_rows = ids.permute(1, 2, 0).tolist(), ends.tolist(), scores.tolist()
    hypotheses = Hypotheses([], [], [], [])
    for sentence, (length, count) in enumerate(zip(source_lengths.tolist(), counts, strict=True)):
        lengths = end_rows[sentence][:count]
        hypotheses.tokens.append([id_rows[sentence][k][:end] for k, end in enumerate(lengths)])
        hypotheses.scores.append(score_rows[sentence][:count])
        hypotheses.weights.append([rows[sentence, k, : end + 1, :length] for k, end in enumerate(lengths)])
        hypotheses.log_p.append([token_log_p[sentence][k][: end + 1] for k, end in enumerate(lengths)])
    return hypotheses
