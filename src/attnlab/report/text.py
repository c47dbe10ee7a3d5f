"""Tokens and labels as visible text, in fonts that contain their characters.

A space is shown as `␣`, a line break as `↵` and a tab as `⇥`. Invisible characters, and characters that no
installed font contains, are shown as their code point (`U+200B`).
"""

import unicodedata
from collections.abc import Iterable, Mapping

from matplotlib.font_manager import FontEntry, fontManager
from matplotlib.ft2font import FT2Font
from matplotlib.text import Text

FONT = "DejaVu Sans"
"""The preferred font; part of matplotlib."""

_SYMBOLS = str.maketrans({" ": "␣", "\n": "↵", "\t": "⇥"})
_JOINERS = "\u200c\u200d"  # invisible, but they select the glyphs of Indic and Arabic words


def with_whitespace_symbols(token: str) -> str:
    """Replace spaces, line breaks and tabs by symbols."""
    return token.translate(_SYMBOLS)


def visible(token: str) -> str:
    """Make a token safe to print: symbols for whitespace, code points for invisible characters."""
    return "".join(
        character if _is_visible(character) else _code_point(character)
        for character in with_whitespace_symbols(token)
    )


def truncate(label: str, length: int) -> str:
    """Shorten a label to at most `length` characters, with an ellipsis, without splitting a letter."""
    if len(label) <= length:
        return label
    end = length - 1
    while end > 1 and unicodedata.category(label[end])[0] == "M":  # a vowel sign belongs to its letter
        end -= 1
    return label[:end] + "…"


class LabelFonts:
    """Font selection for the labels of one figure.

    Each label is set in as few fonts as contain its characters, because matplotlib shapes a word correctly
    only within one font.

    Args:
        texts: all labels of the figure.
    """

    def __init__(self, texts: Iterable[str]) -> None:
        characters = {character for text in texts for character in text if _is_visible(character)}
        self._coverage = _select_fonts(characters)
        self._drawable = set().union("\n", *self._coverage.values())

    def drawable(self, text: str) -> str:
        """Replace each character that no font contains by its code point."""
        return "".join(
            character if character in self._drawable else _code_point(character) for character in text
        )

    def apply(self, *labels: Text) -> None:
        """Set the fonts of matplotlib texts, and turn off math mode (`$` is a dollar sign)."""
        for label in labels:
            fonts = _minimal_cover(self._coverage, set(label.get_text()))
            label.set(fontfamily=list(dict.fromkeys([*fonts, FONT])), parse_math=False)


def _code_point(character: str) -> str:
    return f"U+{ord(character):04X}"


def _is_visible(character: str) -> bool:
    """False for control and format characters, unusual spaces and lone surrogates."""
    return character in " " + _JOINERS or unicodedata.category(character)[0] not in "CZ"


def _select_fonts(characters: set[str]) -> dict[str, set[str]]:
    """Return a few installed fonts that together contain the characters, and the characters of each."""
    coverage: dict[str, set[str]] = {}
    for face in _installed_faces():
        font = FT2Font(face.fname, face_index=face.index)
        coverage[face.name] = {character for character in characters if font.get_char_index(ord(character))}
        if coverage[FONT] == characters:  # the usual case: no other font file needs to be opened
            break
    selected = {FONT, *_minimal_cover(coverage, characters)}
    return {name: contained for name, contained in coverage.items() if name in selected}


def _installed_faces() -> list[FontEntry]:
    """Return one upright face of each installed family: the preferred font first, then sans-serif fonts."""
    faces: dict[str, FontEntry] = {}
    for face in sorted(fontManager.ttflist, key=lambda face: face.weight != 400):  # regular weight first
        # The Last Resort font has a placeholder glyph for every character
        if face.style == "normal" and not face.name.startswith("Last Resort"):
            faces.setdefault(face.name, face)
    return sorted(faces.values(), key=lambda face: (face.name != FONT, "Sans" not in face.name, face.name))


def _minimal_cover(coverage: Mapping[str, set[str]], characters: set[str]) -> list[str]:
    """Cover the characters greedily: repeatedly take the font that contains most of the remaining ones."""
    fonts: list[str] = []
    missing = set().union(*coverage.values()) & characters
    while missing:
        fonts.append(max(coverage, key=lambda font: len(coverage[font] & missing)))
        missing.difference_update(coverage[fonts[-1]])
    return fonts
