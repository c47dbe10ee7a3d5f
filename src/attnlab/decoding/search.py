"""Greedy search and sampling, batched over sentences.

The attention keys are computed once per sentence. Finished sentences leave the batch several at a time,
because each removal copies the memories of all remaining sentences.

B, S, V, K, Q as in `attnlab.types` · T: steps, max_length + 1 · live: sentences still in the batch
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Required, TypedDict, Unpack

import numpy as np
import torch
from torch import Tensor

from attnlab.decoding.constraints import UNRESTRICTED, Constraints, log_probabilities
from attnlab.decoding.sampling import Sampler
from attnlab.nn.seq2seq import TranslationModel, select
from attnlab.types import EOS, PAD, SOS, Batch, Hypotheses

REMOVAL_SHARE = 1 / 8  # Finished sentences are removed once they make up this share of the batch

REMOVAL_SHARE_ON_GPU = 1 / 2
"""This share on a GPU: `attnlab.fast.graphs` records a step for each number of sentences."""

STEPS_TO_CHECK = 8
"""A GPU looks for finished sentences after this number of steps, because the CPU waits for it then."""


Row = tuple[list[int], float, Tensor, list[float]]
"""Tokens, score, attention weights [length + 1, S] and log-probabilities of a hypothesis."""


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
    """Take the most probable token at each step; return one hypothesis per sentence.

    The model is in evaluation mode; targets of the batch are ignored.
    """
    rows = _decode_rows(model, batch, lambda log_p, live, step: argmax(log_p), **settings)
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
    """Draw K = `size` samples per sentence, best first, which may be equal; otherwise as `greedy`."""
    random = sampler.random_numbers(batch.indices, size, settings["max_length"] + 1).to(batch.source.device)

    def choose(log_p: Tensor, live: Tensor, step: int) -> Tensor:
        return sampler.choose(log_p[:, 0], random[live, step])[:, None]

    rows = _decode_rows(model, batch, choose, copies=size, **settings)
    ranked = [sorted(rows[i : i + size], key=lambda row: -row[1]) for i in range(0, len(rows), size)]
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
) -> list[Row]:
    """Decode R = B * copies hypotheses that do not compete with each other, neighbours for each sentence.

    `choose` returns the next tokens [live, 1] for log-probabilities [live, 1, V], the rows of the hypotheses
    [live] and the step. The results are tokens, score, weights and log-probabilities of each hypothesis.
    """
    sources, state = model.encode(batch) if encoded is None else encoded
    device = batch.source.device
    sentences = torch.arange(len(batch.source), device=device).repeat_interleave(copies)  # [R]
    if copies > 1:
        sources, state = select(sources, sentences), select(state, sentences)
    size = len(sentences)
    record = _Record(size, max_length + 1, batch.source.size(1), device)
    live = torch.arange(size, device=device)  # [live]: rows still being decoded
    unfinished = torch.ones(size, 1, dtype=torch.bool, device=device)  # [live, 1]
    # A hypothesis has no others to be ranked among. Sums are fp32, whatever the weights of the network are
    no_sums = torch.zeros(size, 1, dtype=torch.float32, device=device)  # [live, 1]
    last = torch.full((size, 1), SOS, device=device)  # [live, 1]
    copy_ids = None if batch.copy_ids is None else batch.copy_ids[sentences]  # [live, S]
    for step in range(max_length + 1):
        logits, weights, state = model.step(last, state, sources)
        log_p = log_probabilities(logits, copy_ids, must_end=step == max_length)  # [live, 1, V]
        if step < max_length:
            log_p = constraints(log_p, no_sums, sentences, step, partial(record.history, live))
        last = choose(log_p, live, step)  # [live, 1]
        chosen = log_p.gather(-1, last[..., None])  # [live, 1, 1]
        record.new.append((last, weights, chosen))  # also after EOS, where it is ignored
        unfinished = unfinished & (last != EOS)
        remaining = rows_to_keep(unfinished, step)
        if len(remaining) == 0:
            break
        if should_remove(live, remaining):
            record.write(live)
            live, last, unfinished, no_sums, sentences, copy_ids, sources, state = select(
                (live, last, unfinished, no_sums, sentences, copy_ids, sources, state), remaining
            )
    record.write(live)
    return record.hypotheses(batch.source_lengths.repeat_interleave(copies).tolist(), length_penalty)


class _Record:
    """Tokens, attention weights and log-probabilities of R hypotheses, of width S, in up to T steps.

    Those of the last steps are kept in a list, and are written when the live hypotheses change: a step of a
    single sentence takes hardly longer than it takes to start its operators.
    """

    def __init__(self, size: int, steps: int, width: int, device: torch.device) -> None:
        self.tokens = torch.full((size, steps), PAD, device=device)  # [R, T]
        self.weights = torch.zeros(size, steps, width, dtype=torch.float32, device=device)  # [R, T, S]
        self.log_p = torch.zeros(size, steps, dtype=torch.float32, device=device)  # [R, T]
        self.written = 0  # steps
        self.new: list[tuple[Tensor, Tensor, Tensor]] = []  # each [live, 1], [live, 1, S] and [live, 1, 1]

    def history(self, live: Tensor) -> Tensor:
        """Return the tokens so far, [live, 1, step]."""
        parts = [self.tokens[live, : self.written], *(tokens for tokens, _, _ in self.new)]
        return torch.cat(parts, dim=1)[:, None]

    def write(self, live: Tensor) -> None:
        """Write the new steps of the live hypotheses, [live]."""
        steps = slice(self.written, self.written + len(self.new))
        tokens, weights, log_p = (torch.cat(parts, dim=1) for parts in zip(*self.new, strict=True))
        self.tokens[live, steps] = tokens
        self.weights[live, steps] = weights.float()
        self.log_p[live, steps] = log_p[..., 0]
        self.written = steps.stop
        self.new.clear()

    def hypotheses(self, lengths: Sequence[int], length_penalty: float) -> list[Row]:
        """Return each hypothesis, given its number of source tokens."""
        weights, log_p = self.weights.cpu(), self.log_p.cpu()
        # One addition after the other, as in a beam search, so that equal hypotheses have equal scores
        sums = np.add.accumulate(log_p.numpy(), axis=1).tolist()
        outputs = []
        for row, (ids, values) in enumerate(zip(self.tokens.tolist(), log_p.tolist(), strict=True)):
            end = ids.index(EOS)
            score = sums[row][end] / (end + 1) ** length_penalty
            outputs.append((ids[:end], score, weights[row, : end + 1, : lengths[row]], values[: end + 1]))
        return outputs


def rows_to_keep(unfinished: Tensor, step: int) -> Tensor:
    """Return the rows [≤ live] of unfinished sentences [live, …]; after most steps of a GPU, all rows."""
    if unfinished.is_cuda and (step + 1) % STEPS_TO_CHECK != 0:
        return torch.arange(len(unfinished), device=unfinished.device)
    return unfinished.nonzero()[:, 0]


def should_remove(live: Tensor, remaining: Tensor) -> bool:
    """Return whether so many sentences [live] are finished that keeping only those [remaining] pays."""
    share = REMOVAL_SHARE_ON_GPU if live.is_cuda else REMOVAL_SHARE
    return len(live) - len(remaining) >= share * len(live)


def argmax(values: Tensor) -> Tensor:
    """Return the argmax [...] of values [..., V]; NumPy's is ten times faster on a CPU."""
    if values.device.type == "cpu":
        return torch.from_numpy(values.numpy().argmax(axis=-1))
    return values.argmax(dim=-1)
