"""The grammar of Python, for `attnlab.decoding.constraints`: decided by Python's own parser."""

import ast
import codeop
import warnings
from functools import lru_cache

from attnlab.data.conala.python_code import parse

FLAGS = ast.PyCF_ONLY_AST | codeop.Compile().flags
"""Flags of `compile` with which Python's parser reports an unexpected end as "incomplete input"."""


def is_python(code: str, is_complete: bool) -> bool:
    """Return whether code is valid Python; with `is_complete=False`, whether it can become valid."""
    return parse(code) is not None if is_complete else can_be_continued(code)


@lru_cache(maxsize=1 << 16)  # hypotheses of a beam have tokens in common
def can_be_continued(code: str) -> bool:
    """Return whether code is valid Python, or can become valid by more text at its end."""
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
