"""Tokens and labels as visible text, in fonts that contain their characters.

In a token, a space is shown as `␣`, a line break as `↵` and a tab as `⇥`. Invisible characters, and
characters that no installed font contains, are shown as their code point (`U+200B`).
"""

import logging
import re
import unicodedata
from collections.abc import Iterable
from functools import cache

from matplotlib.font_manager import FontEntry, fontManager
from matplotlib.ft2font import FT2Font
from matplotlib.text import Text

log = logging.getLogger(__name__)

FONT = "DejaVu Sans"  # The preferred font; part of matplotlib

_SYMBOLS = str.maketrans({" ": "␣", "\n": "↵", "\t": "⇥"})
_SELECTORS = re.compile("[\u034f\u180b-\u180f\u200c\u200d\ufe00-\ufe0f\U000e0100-\U000e01ef]")
"""Joiners and variation selectors: invisible, but they select the glyphs of the letters beside them."""
_BLANK = re.compile("[\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0]|" + _SELECTORS.pattern)
"""Letters, marks and symbols that leave no mark."""
_KIND = re.compile(
    r" (?:LETTER|SYLLABLE|SYLLABICS|SIGN|VOWEL|INDEPENDENT|CONSONANT|SUBJOINED|CHOSEONG|JUNGSEONG|JONGSEONG|"
    r"MARK|DIGIT|NUMBER|CAPITAL|SMALL|CHARACTER|UNIFIED|COMPATIBILITY|IDEOGRAPH|HIEROGLYPH)\b"
)
"""End of the name of a script in the Unicode name of a character."""


def visible(text: str) -> str:
    """Replace invisible characters by their code points, except selectors beside a visible character."""
    is_word = any(map(_is_visible, text))
    return "".join(
        character
        if _is_visible(character) or character in " \n" or (is_word and _SELECTORS.match(character))
        else _code_point(character)
        for character in text
    )


def token_label(token: str) -> str:
    """Return a token as visible text, with symbols for whitespace and `∅` for the empty token."""
    return visible(token.translate(_SYMBOLS)) or "∅"


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
    only within one font. Scripts that no installed font contains are logged, each once.
    """

    def __init__(self, texts: Iterable[str]) -> None:
        characters = set("".join(map(visible, texts))) - {"\n"}
        self._coverage: dict[str, set[str]] = {}
        for face in _installed_faces():
            font = FT2Font(face.fname, face_index=face.index)
            self._coverage[face.name] = {each for each in characters if font.get_char_index(ord(each))}
            if self._coverage[FONT] == characters:  # the usual case: no other font file needs to be opened
                break
        self._missing = characters.difference(*self._coverage.values())
        for script in sorted({_script(character) for character in self._missing}):
            _warn_of(script)

    def drawable(self, text: str) -> str:
        """Replace invisible characters, and those that no font contains, by their code points."""
        shown = visible(text)
        return "".join(_code_point(each) if each in self._missing else each for each in shown)

    def apply(self, *labels: Text) -> None:
        """Set the fonts of matplotlib texts, and turn off math mode (`$` is a dollar sign)."""
        for label in labels:
            missing = set().union(*self._coverage.values()).intersection(label.get_text())
            fonts = []
            while missing:  # the font with most of the remaining characters
                fonts.append(max(self._coverage, key=lambda font: len(self._coverage[font] & missing)))
                missing -= self._coverage[fonts[-1]]
            label.set(fontfamily=[*dict.fromkeys([*fonts, FONT])], parse_math=False)


def _code_point(character: str) -> str:
    return f"U+{ord(character):04X}"


def _is_visible(character: str) -> bool:
    """False for control and format characters, spaces, lone surrogates and characters without a mark."""
    return unicodedata.category(character)[0] not in "CZ" and not _BLANK.match(character)


def _script(character: str) -> str:
    return _KIND.split(unicodedata.name(character, "unnamed"))[0].title()


@cache  # once for each script
def _warn_of(script: str) -> None:
    log.warning("no installed font has %s characters: figures show their code points", script)


def _installed_faces() -> list[FontEntry]:
    """Return one upright face of each installed family: the preferred font first, then sans-serif fonts."""
    faces: dict[str, FontEntry] = {}
    for face in sorted(fontManager.ttflist, key=lambda face: face.weight != 400):  # regular weight first
        # The Last Resort font has a placeholder glyph for every character
        if face.style == "normal" and not face.name.startswith("Last Resort"):
            faces.setdefault(face.name, face)
    return sorted(faces.values(), key=lambda face: (face.name != FONT, "Sans" not in face.name, face.name))
