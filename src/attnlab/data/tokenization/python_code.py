r"""Python code cut into pieces, and put together again.

A piece is a name, a number or an operator; a quotation mark with its prefix, such as `r'`; a word, a run of
blanks, an escape or a single sign inside a string or a comment; the end of a line; or one of the marks below.
`print('two words')` is cut into `print ( ' two ␣ words ' )`: what a string says can be learnt and copied word
by word.

Blanks between pieces are not pieces: `join` puts them where PEP 8 has them. So code that Python can read
comes back with the same syntax tree, but with blanks and indents as `join` has them and no empty lines. Any
other text (Python 2, shell, half a snippet) comes back to the last character: where its blanks are not those
that `join` would put, they are pieces too, and `GLUE` is a piece where there is none that it would put.
"""

from __future__ import annotations

import ast
import io
import keyword
import re
import tokenize
import warnings
from collections.abc import Iterable, Iterator
from functools import lru_cache

INDENT, DEDENT, GLUE = "⇥", "⇤", "⁀"
"""Marks: one level further in, one back, no blank here. A text that is not Python and holds them itself,
outside of strings and comments, comes back without them."""

QUOTES = "'''|\"\"\"|'|\""
OPENING = re.compile(f"[rbuft]{{0,2}}({QUOTES})", re.IGNORECASE)
OPERATORS = r"\*\*=?|//=?|>>=?|<<=?|[-+*/%&|^=!<>@:]=|->|\.\.\."
OUTSIDE = re.compile(rf"{OPENING.pattern}|\d+\.\d+|\w+|{OPERATORS}|\n|[^\S\n]+|.", re.IGNORECASE | re.DOTALL)
"""One piece of text that is neither in a string nor in a comment."""

PREFIXES = frozenset({"-", "+", "~", "*", "**", "@"})
"""Operators that stand before a value; all but `~` also between two."""


def parse(code: str) -> ast.Module | None:
    """The syntax tree of Python code; None where Python cannot read it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an invalid escape or `1 is 1` is odd, but it parses
        try:
            return ast.parse(code)
        # A NUL or a lone surrogate is a ValueError; too deep a nesting exhausts the parser
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None


def same_tree(code: str, other: str) -> bool:
    """Whether both are Python and have the same syntax tree; False where that is too deep to compare."""
    trees = parse(code), parse(other)
    try:
        return None not in trees and ast.dump(trees[0]) == ast.dump(trees[1])  # type: ignore[arg-type]
    except RecursionError:
        return False


@lru_cache(maxsize=1 << 14)  # each text is cut for its slots, for the vocabulary and for its ids
def cut(code: str) -> tuple[str, ...]:
    """The pieces of a text: by Python's own tokenizer where it is Python, else sign by sign."""
    if parse(code) is not None:
        try:
            pieces = _by_python(code)
        except (tokenize.TokenError, SyntaxError):  # an odd line break that the parser alone can read
            pieces = []
        if same_tree(code, join(pieces)):
            return tuple(pieces)
    return tuple(_verbatim(code))


def join(pieces: Iterable[str]) -> str:
    """The text of these pieces, whoever put them together."""
    page = _Page()
    return "".join(page.gap(piece) + page.write(piece) for piece in pieces)


def units(code: str) -> list[tuple[str, ...]]:
    """The pieces of a text, with each string or comment as one (opening, content, closing)."""
    found: list[tuple[str, ...]] = []
    page = _Page()
    for piece in cut(code):
        inside = page.end
        page.write(piece)
        if not inside:
            found.append((piece, "") if page.end else (piece,))
        elif page.end:
            found[-1] = (found[-1][0], found[-1][1] + piece)
        else:
            found[-1] = (*found[-1], piece)
    return found


class _Page:
    """What was written so far, as far as the next gap depends on it."""

    def __init__(self) -> None:
        self.left = ""  # the piece before; "" where no gap may follow
        self.prefix = False  # whether that is an operator that stands before a value
        self.end = ""  # what ends the string or comment we are in; "" outside of both
        self.brackets: list[str] = []
        self.level = 0
        self.fresh = True  # at the beginning of a line

    def gap(self, piece: str) -> str:
        """What is put before this piece."""
        if self.end or piece in (INDENT, DEDENT, GLUE) or piece.isspace():
            return ""
        if self.fresh:
            return "    " * self.level
        return self._between(piece)

    def write(self, piece: str) -> str:
        """Take note of this piece; returns what it reads."""
        if self.end:
            if piece == self.end:
                self.end, self.left, self.prefix, self.fresh = "", piece, False, piece == "\n"
            return piece
        if piece in (INDENT, DEDENT):
            self.level = max(0, self.level + (1 if piece == INDENT else -1))
            return ""
        if piece == GLUE or piece.isspace():
            self.left, self.fresh = "", piece == "\n"
            return "" if piece == GLUE else piece
        self.prefix = piece in PREFIXES and (self.fresh or self.prefix or self._awaits_value())
        self.fresh = False
        self.left = piece
        if opening := OPENING.fullmatch(piece):
            self.end = opening[1]
        elif piece == "#":
            self.end = "\n"
        elif piece in {"(", "[", "{"}:
            self.brackets.append(piece)
        elif piece in {")", "]", "}"} and self.brackets:
            self.brackets.pop()
        return piece

    def _awaits_value(self) -> bool:
        """Whether an operator after the piece before can only stand before a value."""
        return _is_keyword(self.left) or not re.search(r"[\w)\]}'\"]$", self.left)

    def _between(self, piece: str) -> str:
        """The gap between the piece before and this one, in the middle of a line."""
        left, inner = self.left, self.brackets[-1] if self.brackets else ""
        if piece == "#":
            return "  " if left else ""
        tight = (
            left in {"", "(", "[", "{"}
            or piece in {")", "]", "}", ",", ";"}
            or (piece == ":" and left != ",")
            or self.prefix
            or (piece in {"(", "["} and not self._awaits_value())
            or ("." in {left, piece} and not (_is_keyword(left) or _is_keyword(piece)))
            or (inner == "(" and "=" in {left, piece})  # f(key=value)
            or (inner == "[" and left == ":")  # a[1:2]
        )
        return "" if tight else " "


def _is_keyword(piece: str) -> bool:
    return keyword.iskeyword(piece) and piece not in {"None", "True", "False"}


def _by_python(code: str) -> list[str]:
    """The pieces of Python code, without its own blanks, indents and empty lines."""
    pieces: list[str] = []
    comment = False
    for kind, text in _tokens(code):
        if kind == tokenize.NEWLINE or (kind == tokenize.NL and comment):
            pieces += ["\n"] * (pieces[-1:] not in ([], ["\n"]))
        elif kind == tokenize.STRING:
            opening = OPENING.match(text)
            assert opening is not None
            content = text[opening.end() : -len(opening[1])]
            pieces += [opening[0], *_inside(opening[1]).findall(content), opening[1]]
        elif kind == tokenize.COMMENT:
            pieces += ["#", *_inside("\n").findall(text[1:])]
        elif kind in (tokenize.INDENT, tokenize.DEDENT):
            pieces.append(INDENT if kind == tokenize.INDENT else DEDENT)
        elif kind not in (tokenize.NL, tokenize.ENDMARKER):
            pieces.append(text)
        comment = kind == tokenize.COMMENT
    while pieces and pieces[-1] in ("\n", INDENT, DEDENT):
        pieces.pop()
    return pieces


def _tokens(code: str) -> Iterator[tuple[int, str]]:
    """Python's tokens, as (kind, text); f-strings are whole, as they were before Python 3.12."""
    lines = code.split("\n")
    begin, depth = 0, 0
    for token in tokenize.generate_tokens(io.StringIO(code).readline):
        name = tokenize.tok_name[token.type]
        if name.endswith("STRING_START"):
            begin = begin if depth else _offset(lines, token.start)
            depth += 1
        elif name.endswith("STRING_END"):
            depth -= 1
            if depth == 0:
                yield tokenize.STRING, code[begin : _offset(lines, token.end)]
        elif depth == 0:
            yield token.type, token.string


def _offset(lines: list[str], place: tuple[int, int]) -> int:
    """Where in a text this (line from 1, column from 0) is."""
    line, column = place
    return sum(len(text) + 1 for text in lines[: line - 1]) + column


def _inside(end: str) -> re.Pattern[str]:
    """One piece of text in a string or comment that ends so."""
    return re.compile(rf"{re.escape(end)}|\\.|\w+|\n|[^\S\n]+|.", re.DOTALL)


def _verbatim(text: str) -> list[str]:
    """The pieces of any text; its blanks are pieces where `join` would put others."""
    page, pieces, at, blanks = _Page(), [], 0, ""
    while at < len(text):
        match = (_inside(page.end) if page.end else OUTSIDE).match(text, at)
        assert match is not None
        piece, at = match[0], match.end()
        if piece.isspace() and piece != "\n" and not page.end:
            blanks = piece
            continue
        if blanks != page.gap(piece):
            pieces.append(blanks or GLUE)
            page.write(pieces[-1])
        pieces.append(piece)
        page.write(piece)
        blanks = ""
    return pieces + [blanks] * bool(blanks)
