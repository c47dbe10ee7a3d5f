r"""Splitting of Python code into pieces, and the inverse.

A piece is a name, a number or an operator; a quotation mark with its prefix, such as `r'`; a word, a run of
spaces, an escape or a single sign inside a string or comment; the end of a line; or one of the markers below.
`print('two words')` is split into `print ( ' two ␣ words ' )`, so that a model can learn and copy the
content of strings word by word.

White space between pieces is not a piece: `join` inserts it according to PEP 8. Valid Python therefore keeps
its syntax tree, but gets the spaces and indents of `join` and loses empty lines. Other text (Python 2,
shell, incomplete snippets) is restored exactly: where its white space differs from that of `join` the white
space is a piece, and where `join` would insert a space that the text lacks there is a `GLUE` piece.
"""

import ast
import io
import keyword
import re
import tokenize
import warnings
from collections.abc import Iterable, Iterator
from functools import lru_cache

INDENT, DEDENT, GLUE = "⇥", "⇤", "⁀"
"""Markers: increase the indent by one level, decrease it, insert no space here. They are lost from invalid
Python that contains these characters outside of strings and comments."""

QUOTES = "'''|\"\"\"|'|\""
OPENING = re.compile(f"[rbuft]{{0,2}}({QUOTES})", re.IGNORECASE)
OPERATORS = r"\*\*=?|//=?|>>=?|<<=?|[-+*/%&|^=!<>@:]=|->|\.\.\."
OUTSIDE = re.compile(rf"{OPENING.pattern}|\d+\.\d+|\w+|{OPERATORS}|\n|[^\S\n]+|.", re.IGNORECASE | re.DOTALL)
"""A piece of text outside of strings and comments."""

PREFIX_OPERATORS = frozenset({"-", "+", "~", "*", "**", "@"})
"""Operators that can precede a value; all except `~` can also be binary."""


def parse(code: str) -> ast.Module | None:
    """Return the syntax tree of Python code, or None if the code is not valid."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an invalid escape or `1 is 1` is unusual, but valid
        try:
            return ast.parse(code)
        # ValueError: NUL or lone surrogate; RecursionError, MemoryError: nesting too deep for the parser
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None


def same_tree(code: str, other: str) -> bool:
    """Return whether both texts are valid Python with equal syntax trees; False if too deep to compare."""
    trees = parse(code), parse(other)
    try:
        return None not in trees and len({ast.dump(tree) for tree in trees if tree is not None}) == 1
    except RecursionError:
        return False


@lru_cache(maxsize=1 << 14)  # each text is split for its placeholders, for the vocabulary and for its ids
def cut(code: str) -> tuple[str, ...]:
    """Split a text into pieces: with Python's tokenizer if it is valid, else with regular expressions."""
    if parse(code) is not None:
        try:
            pieces = _pieces_of_python(code)
        except (tokenize.TokenError, SyntaxError):  # unusual line breaks that only the parser accepts
            pieces = []
        if same_tree(code, join(pieces)):
            return tuple(pieces)
    return tuple(_pieces_of_text(code))


def join(pieces: Iterable[str]) -> str:
    """Return the text of a sequence of pieces, which may be any sequence that a model generates."""
    writer = _Writer()
    return "".join(writer.gap(piece) + writer.write(piece) for piece in pieces)


def units(code: str) -> list[tuple[str, ...]]:
    """Return the pieces of a text, with each string or comment as one unit (opening, content, closing)."""
    result: list[tuple[str, ...]] = []
    writer = _Writer()
    for piece in cut(code):
        inside = writer.end
        writer.write(piece)
        if not inside:
            result.append((piece, "") if writer.end else (piece,))
        elif writer.end:
            result[-1] = (result[-1][0], result[-1][1] + piece)
        else:
            result[-1] = (*result[-1], piece)
    return result


class _Writer:
    """State of the text written so far that determines the white space before the next piece."""

    def __init__(self) -> None:
        self.left = ""  # previous piece; "" if no space may follow
        self.prefix = False  # whether the previous piece is an operator before a value
        self.end = ""  # piece that ends the current string or comment; "" outside of both
        self.brackets: list[str] = []
        self.level = 0
        self.fresh = True  # at the beginning of a line

    def gap(self, piece: str) -> str:
        if self.end or piece in (INDENT, DEDENT, GLUE) or piece.isspace():
            return ""
        if self.fresh:
            return "    " * self.level
        return self._space_before(piece)

    def write(self, piece: str) -> str:
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
        self.prefix = piece in PREFIX_OPERATORS and (self.fresh or self.prefix or self._expects_value())
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

    def _expects_value(self) -> bool:
        """Return whether an operator after the previous piece can only be a prefix."""
        return _is_keyword(self.left) or not re.search(r"[\w)\]}'\"]$", self.left)

    def _space_before(self, piece: str) -> str:
        """Return the white space between the previous piece and this one within a line."""
        left, inner = self.left, self.brackets[-1] if self.brackets else ""
        if piece == "#":
            return "  " if left else ""
        tight = (
            left in {"", "(", "[", "{"}
            or piece in {")", "]", "}", ",", ";"}
            or (piece == ":" and left != ",")
            or self.prefix
            or (piece in {"(", "["} and not self._expects_value())
            or ("." in {left, piece} and not (_is_keyword(left) or _is_keyword(piece)))
            or (inner == "(" and "=" in {left, piece})  # f(key=value)
            or (inner == "[" and left == ":")  # a[1:2]
        )
        return "" if tight else " "


def _is_keyword(piece: str) -> bool:
    return keyword.iskeyword(piece) and piece not in {"None", "True", "False"}


def _pieces_of_python(code: str) -> list[str]:
    """Return the pieces of valid Python, without its white space, indents and empty lines."""
    pieces: list[str] = []
    comment = False
    for kind, text in _python_tokens(code):
        if kind == tokenize.NEWLINE or (kind == tokenize.NL and comment):
            pieces += ["\n"] * (pieces[-1:] not in ([], ["\n"]))
        elif kind == tokenize.STRING:
            opening = OPENING.match(text)
            assert opening is not None
            content = text[opening.end() : -len(opening[1])]
            pieces += [opening[0], *_inside_pattern(opening[1]).findall(content), opening[1]]
        elif kind == tokenize.COMMENT:
            pieces += ["#", *_inside_pattern("\n").findall(text[1:])]
        elif kind in (tokenize.INDENT, tokenize.DEDENT):
            pieces.append(INDENT if kind == tokenize.INDENT else DEDENT)
        elif kind not in (tokenize.NL, tokenize.ENDMARKER):
            pieces.append(text)
        comment = kind == tokenize.COMMENT
    while pieces and pieces[-1] in ("\n", INDENT, DEDENT):
        pieces.pop()
    return pieces


def _python_tokens(code: str) -> Iterator[tuple[int, str]]:
    """Yield Python's tokens as (kind, text); an f-string is one token, as before Python 3.12."""
    lines = code.split("\n")
    start, depth = 0, 0
    for token in tokenize.generate_tokens(io.StringIO(code).readline):
        name = tokenize.tok_name[token.type]
        if name.endswith("STRING_START"):
            start = start if depth else _offset(lines, token.start)
            depth += 1
        elif name.endswith("STRING_END"):
            depth -= 1
            if depth == 0:
                yield tokenize.STRING, code[start : _offset(lines, token.end)]
        elif depth == 0:
            yield token.type, token.string


def _offset(lines: list[str], position: tuple[int, int]) -> int:
    """Return the offset in a text of a position (line from 1, column from 0)."""
    line, column = position
    return sum(len(text) + 1 for text in lines[: line - 1]) + column


def _inside_pattern(end: str) -> re.Pattern[str]:
    """Return a pattern of a piece inside a string or comment that ends with `end`."""
    return re.compile(rf"{re.escape(end)}|\\.|\w+|\n|[^\S\n]+|.", re.DOTALL)


def _pieces_of_text(text: str) -> list[str]:
    """Return the pieces of any text; white space is a piece where `join` would insert something else."""
    writer, pieces, position, white_space = _Writer(), [], 0, ""
    while position < len(text):
        match = (_inside_pattern(writer.end) if writer.end else OUTSIDE).match(text, position)
        assert match is not None
        piece, position = match[0], match.end()
        if piece.isspace() and piece != "\n" and not writer.end:
            white_space = piece
            continue
        if white_space != writer.gap(piece):
            pieces.append(white_space or GLUE)
            writer.write(pieces[-1])
        pieces.append(piece)
        writer.write(piece)
        white_space = ""
    return pieces + [white_space] * bool(white_space)
