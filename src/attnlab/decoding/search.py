"""Greedy search and sampling, batched over sentences.

The attention keys are computed once per sentence. Finished sentences leave the batch several at a time,
because each removal copies the memories of all remaining sentences.

B, S, V, K, Q as in `attnlab.types` · T: steps, max_length + 1 · live: sentences still in the batch
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Required, TypedDict, Unpack

import torch
from torch import Tensor

from attnlab.decoding.constraints import UNRESTRICTED, Constraints, log_probabilities
from attnlab.decoding.sampling import Sampler
from attnlab.nn.seq2seq import TranslationModel, select
from attnlab.types import EOS, PAD, SOS, Batch, Hypotheses

REMOVAL_SHARE = 1 / 8
"""Finished sentences are removed once they make up this share of the batch."""

REMOVAL_SHARE_ON_GPU = 1 / 2
"""The same on a GPU, which needs a graph of its step for each number of sentences: see `fast.graphs`."""

STEPS_TO_CHECK = 8
"""A GPU looks for finished sentences after this number of steps: the CPU waits for it then."""


class SearchSettings(TypedDict, total=False):
    """Settings that greedy search and sampling share.

    Args:
        max_length: maximum number of tokens before EOS.
        length_penalty: a hypothesis of n tokens, EOS included, scores log p(y | x) / n ** length_penalty,
            with the model's probabilities at any temperature; 1 by default.
        constraints: restrictions on the outputs.
        encoded: result of `model.encode(batch)`, if it was computed before.
    """

    max_length: Required[int]
    length_penalty: float
    constraints: Constraints
    encoded: tuple[Any, Any] | None


@torch.no_grad()
def greedy(model: TranslationModel, batch: Batch, **settings: Unpack[SearchSettings]) -> Hypotheses:
    """Take the most probable token at each step.

    The model is in evaluation mode; targets of the batch are ignored.

    Returns:
        One hypothesis per sentence.
    """
    rows = _decode_rows(model, batch, lambda log_p, live, step: _argmax(log_p), **settings)
    return Hypotheses(*([[part] for part in parts] for parts in zip(*rows, strict=True)))


@torch.no_grad()
def sample(
    model: TranslationModel,
    batch: Batch,
    sampler: Sampler,
    *,
    size: int = 1,
    **settings: Unpack[SearchSettings],
) -> Hypotheses:
    """Draw K = `size` independent samples per sentence; otherwise as `greedy`.

    Returns:
        K hypotheses per sentence, best first. The same output may occur several times.
    """
    random = sampler.random_numbers(batch.indices, size, settings["max_length"] + 1).to(batch.source.device)

    def choose(log_p: Tensor, live: Tensor, step: int) -> Tensor:
        return sampler.choose(log_p[:, 0], random[live, step])[:, None]

    rows = _decode_rows(model, batch, choose, copies=size, **settings)
    ranked = [
        sorted(rows[first : first + size], key=lambda row: -row[1]) for first in range(0, len(rows), size)
    ]
    return Hypotheses(*([[row[part] for row in best] for best in ranked] for part in range(4)))  # type: ignore[arg-type]


def _decode_rows(
    model: TranslationModel,
    batch: Batch,
    choose: Callable[[Tensor, Tensor, int], Tensor],
    *,
    copies: int = 1,
    max_length: int,
    length_penalty: float = 1.0,
    constraints: Constraints = UNRESTRICTED,
    encoded: tuple[Any, Any] | None = None,
) -> list[tuple[list[int], float, Tensor, list[float]]]:
    """Decode R = B * copies hypotheses that do not compete with each other, neighbours for each sentence.

    `choose` returns the next tokens [live, 1] for log-probabilities [live, 1, V], the rows of the hypotheses
    [live] and the step.

    Returns:
        Tokens, score, attention weights and log-probabilities of each hypothesis, as in `Hypotheses`.
    """
    sources, state = model.encode(batch) if encoded is None else encoded
    device = batch.source.device
    sentences = torch.arange(len(batch.source), device=device).repeat_interleave(copies)  # [R]
    if copies > 1:
        sources, state = select(sources, sentences), select(state, sentences)
    size, width = len(sentences), batch.source.size(1)
    tokens = torch.full((size, max_length + 1), PAD, device=device)  # [R, T]
    weights = torch.zeros(size, max_length + 1, width, device=device)  # [R, T, S]
    scores = torch.zeros(size, device=device)  # [R]
    token_log_p = torch.zeros(size, max_length + 1, device=device)  # [R, T]
    live = torch.arange(size, device=device)  # [live]: rows still being decoded
    unfinished = torch.ones(size, dtype=torch.bool, device=device)  # [live]
    last = torch.full((size, 1), SOS, device=device)  # [live, 1]
    for step in range(max_length + 1):
        logits, step_weights, state = model.step(last, state, sources)
        copy_ids = None if batch.copy_ids is None else batch.copy_ids[sentences[live]]  # [live, S]
        log_p = log_probabilities(logits, copy_ids, must_end=step == max_length)  # [live, 1, V]
        if step < max_length:
            history = partial(_row_history, tokens, live, step)
            log_p = constraints(log_p, scores[live, None], sentences[live], step, history)
        last = choose(log_p, live, step)  # [live, 1]
        best = log_p.gather(-1, last[..., None])[..., 0]  # [live, 1]
        tokens[live, step] = last[:, 0]  # also after EOS, where it is ignored
        weights[live, step] = step_weights[:, 0].float()
        token_log_p[live, step] = best[:, 0]
        scores[live] += best[:, 0].where(unfinished, 0)
        unfinished = unfinished & (last[:, 0] != EOS)
        remaining = rows_to_keep(unfinished, step)
        if len(remaining) == 0:
            break
        if should_remove(live, remaining):
            live, last, unfinished = live[remaining], last[remaining], unfinished[remaining]
            sources, state = select(sources, remaining), select(state, remaining)
    lengths = batch.source_lengths.repeat_interleave(copies).tolist()
    totals, weights, token_rows = scores.tolist(), weights.cpu(), token_log_p.tolist()
    outputs = []
    for row, ids in enumerate(tokens.tolist()):
        end = ids.index(EOS)
        score = totals[row] / (end + 1) ** length_penalty
        outputs.append(
            (ids[:end], score, weights[row, : end + 1, : lengths[row]], token_rows[row][: end + 1])
        )
    return outputs


def _row_history(tokens: Tensor, live: Tensor, step: int) -> Tensor:
    """Return the tokens [live, 1, step] so far of the hypotheses of `_decode_rows`."""
    return tokens[live, None, :step]


def rows_to_keep(unfinished: Tensor, step: int) -> Tensor:
    """Return the rows [≤ live] of unfinished sentences [live]; after most steps of a GPU, all rows."""
    if unfinished.is_cuda and (step + 1) % STEPS_TO_CHECK != 0:
        return torch.arange(len(unfinished), device=unfinished.device)
    return unfinished.nonzero()[:, 0]


def should_remove(live: Tensor, remaining: Tensor) -> bool:
    """Return whether so many sentences [live] are finished that keeping only those [remaining] pays."""
    share = REMOVAL_SHARE_ON_GPU if live.is_cuda else REMOVAL_SHARE
    return len(live) - len(remaining) >= share * len(live)


def _argmax(values: Tensor) -> Tensor:
    """Return the argmax over the last dimension; NumPy's is ten times faster on a CPU."""
    if values.device.type == "cpu":
        return torch.from_numpy(values.numpy().argmax(axis=-1))
    return values.argmax(dim=-1)
