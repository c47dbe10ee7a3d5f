"""Grammar-constrained search: hypotheses are extended only by tokens with which they can become valid.

B, V, Q as in `attnlab.types` · live: sentences still in the batch
"""

from __future__ import annotations

import ast
import codeop
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from attnlab.data.tokenization.python_code import parse
from attnlab.types import EOS

TESTED = 4
"""Tokens that are tested at most for each one that the search reads."""

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
            return str(error.msg).startswith(("incomplete input", "unterminated"))
        except (ValueError, RecursionError, MemoryError):  # as in `python_code.parse`
            return False
    return True


@dataclass(frozen=True, kw_only=True)
class PythonGrammar:
    """Restriction of outputs to Python code, decided by Python's own parser.

    A hypothesis keeps the most probable tokens with which its text can be continued to valid Python, and EOS
    if its text is valid. This costs a call of the parser, some 50 µs, for each tested token, and reads the
    log-probabilities on the CPU.

    Args:
        decode: maps the row of a sentence in the batch and token ids to text.
        count: number of tokens to keep; a beam of K hypotheses reads 2K.
    """

    decode: Callable[[int, Sequence[int]], str]
    count: int

    def __call__(self, log_p: Tensor, sentences: Tensor, history: Tensor) -> Tensor:
        """Return the log-probabilities with -inf at the tokens that are not kept.

        Args:
            log_p: [live, Q, V].
            sentences: row of each sentence in the batch, [live].
            history: the tokens so far, [live, Q, step].
        """
        best, tokens = log_p.topk(min(TESTED * self.count, log_p.size(-1)), dim=-1)  # [live, Q, tested]
        kept = [
            [self._accept(row, *parts) for parts in zip(*of_row, strict=True)]
            for row, *of_row in zip(
                sentences.tolist(), history.tolist(), tokens.tolist(), best.isfinite().tolist(), strict=True
            )
        ]
        best = best.masked_fill(~torch.tensor(kept, device=best.device), float("-inf"))
        return torch.full_like(log_p, float("-inf")).scatter(-1, tokens, best)

    def _accept(self, row: int, history: list[int], tokens: list[int], possible: list[bool]) -> list[bool]:
        """Return whether each token is kept; the most probable ones come first."""
        accepted: list[bool] = []
        for token, is_possible in zip(tokens, possible, strict=True):
            full = sum(accepted) == self.count
            accepted.append(is_possible and not full and self._is_valid(row, history, token))
        return accepted

    def _is_valid(self, row: int, history: list[int], token: int) -> bool:
        if token == EOS:
            return parse(self.decode(row, history)) is not None
        return can_be_continued(self.decode(row, [*history, token]))
