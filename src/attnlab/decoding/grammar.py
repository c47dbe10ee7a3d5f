"""Grammar-constrained search: hypotheses are extended only by tokens with which they can become valid.

B, V, Q as in `attnlab.types` · live: sentences still in the batch
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice

import torch
from torch import Tensor

from attnlab.types import EOS

TESTED = 8
"""Continuations that are tested at most for each one that is kept."""

Accepts = Callable[[str, bool], bool]
"""A grammar: for a text and True, whether the text is valid; for a text and False, whether it is valid or can
become valid by more text at its end. The option group `grammar` chooses one."""


@dataclass(frozen=True, kw_only=True)
class Grammar:
    """Restriction of outputs to the texts of a grammar.

    Of the continuations of all hypotheses of a sentence, the most probable ones are kept whose text the
    grammar accepts; and so is the best one of the first hypothesis. The log-probabilities are read on the
    CPU.

    Args:
        accepts: the grammar.
        decode: maps the row of a sentence in the batch and token ids to text.
        count: number of continuations to keep for a sentence; a beam of K hypotheses reads 2K.
    """

    accepts: Accepts
    decode: Callable[[int, Sequence[int]], str]
    count: int

    def __call__(self, log_p: Tensor, sums: Tensor, sentences: Tensor, history: Tensor) -> Tensor:
        """Return the log-probabilities with -inf for the continuations that are not kept."""
        totals = (log_p + sums[..., None]).flatten(1)  # [live, Q * V]
        size = log_p.size(-1)
        best = totals.topk(min(TESTED * self.count, totals.size(1)), dim=-1)  # [live, tested]
        greedy = log_p[:, 0].topk(min(2 * TESTED, size), dim=-1).indices.tolist()  # beam 0, see `beam`
        counts = best.values.isfinite().sum(dim=-1).tolist()  # 0 for finished sentences
        kept = torch.zeros_like(totals, dtype=torch.bool)
        for number, (row, hypotheses, count) in enumerate(
            zip(sentences.tolist(), history.tolist(), counts, strict=True)
        ):
            is_valid = partial(self._is_valid, row, hypotheses, size)
            tested = best.indices[number, :count].tolist()
            kept[number, [*islice(filter(is_valid, tested), self.count)]] = True
            kept[number, [*islice(filter(is_valid, greedy[number][:count]), 1)]] = True
        return log_p.masked_fill(~kept.view_as(log_p), float("-inf"))

    def _is_valid(self, row: int, hypotheses: list[list[int]], size: int, place: int) -> bool:
        history, token = hypotheses[place // size], place % size
        ids = history if token == EOS else [*history, token]
        return self.accepts(self.decode(row, ids), token == EOS)
