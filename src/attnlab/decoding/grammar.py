"""Grammar-constrained search: hypotheses are extended only by tokens with which they can become valid.

B, V, Q as in `attnlab.types` · live: sentences still in the batch
"""

import ast
import codeop
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import islice

import torch
from torch import Tensor

from attnlab.data.tokenization.python_code import parse
from attnlab.types import EOS

TESTED = 8
"""Continuations that are tested at most for each one that is kept."""

FLAGS = ast.PyCF_ONLY_AST | codeop.Compile().flags
"""Flags of `compile` with which Python's parser reports an unexpected end as "incomplete input"."""


@lru_cache(maxsize=1 << 16)  # hypotheses of a beam have tokens in common
def can_be_continued(code: str) -> bool:
    """Return whether code is valid Python, or can become valid by more text at its end.

    Nothing before an open string is tested until the string is closed.
    """
    # The line break is no end of a statement: `x =` may go on, and `x y` may not
    return _has_no_error(code) or _has_no_error(f"{code} \\\n")


def _has_no_error(code: str) -> bool:
    """Return whether the parser accepts the code, or misses only what could follow it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an invalid escape or `1 is 1` is unusual, but valid
        try:
            compile(code, "<output>", "exec", FLAGS)
        except SyntaxError as error:
            # Python 3.12 reports an open f-string as an error of its own
            return str(error.msg).startswith(("incomplete input", "unterminated f-string"))
        except (ValueError, RecursionError, MemoryError):  # as in `python_code.parse`
            return False
    return True


@dataclass(frozen=True, kw_only=True)
class PythonGrammar:
    """Restriction of outputs to Python code, decided by Python's own parser.

    Of the continuations of all hypotheses of a sentence, the most probable ones are kept whose text is the
    beginning of valid Python, or valid if they end; and so is the best one of the first hypothesis. Each test
    costs a call of the parser, some 50 µs, and the log-probabilities are read on the CPU.

    Args:
        decode: maps the row of a sentence in the batch and token ids to text.
        count: number of continuations to keep for a sentence; a beam of K hypotheses reads 2K.
    """

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
        if token == EOS:
            return parse(self.decode(row, history)) is not None
        return can_be_continued(self.decode(row, [*history, token]))
