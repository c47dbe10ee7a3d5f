"""Beam search and diverse beam search, batched over sentences.

B, S, V, K, Q as in `attnlab.types` · T: steps, max_length + 1 · live: sentences still in the batch
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from attnlab.decoding.constraints import UNRESTRICTED, Constraints
from attnlab.decoding.extension import Finished, extend_groups, log_probabilities, trace_back
from attnlab.decoding.search import should_remove
from attnlab.nn.seq2seq import TranslationModel, select
from attnlab.types import PAD, SOS, Batch, Hypotheses


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
    finished = [Finished.none(sentences, size // groups, device) for _ in range(groups)]
    live = torch.arange(sentences, device=device)
    last = torch.full((sentences, 1), SOS, device=device)  # [live, Q]: Q = 1 at the first step, then K
    sums = torch.zeros(sentences, 1, device=device)  # [live, Q]: log-probability so far
    for step in range(max_length + 1):
        logits, step_weights, state = model.step(last, state, sources)
        weights[step, live, : step_weights.size(1)] = step_weights.float()
        copy_ids = None if batch.copy_ids is None else batch.copy_ids[live]  # [live, S]
        log_p = log_probabilities(logits, copy_ids, must_end=step == max_length)  # [live, Q, V]
        if step < max_length:
            log_p = constraints(
                log_p, sums, live, step, partial(_beam_history, tokens, parents, live, step, last.size(1))
            )
        last, parent, sums = extend_groups(
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
    return trace_back(finished, tokens, parents, weights, batch.source_lengths)


def _beam_history(tokens: Tensor, parents: Tensor, live: Tensor, step: int, beams: int) -> Tensor:
    """Return the tokens [live, Q, step] of the current hypotheses; other shapes as in `beam`."""
    beam = torch.arange(beams, device=live.device).expand(len(live), -1)  # [live, Q]
    path = []
    for earlier in range(step - 1, -1, -1):
        path.append(tokens[earlier, live].gather(1, beam))
        beam = parents[earlier, live].gather(1, beam)
    return torch.stack(path[::-1], dim=-1) if path else beam[..., None][..., :0]
