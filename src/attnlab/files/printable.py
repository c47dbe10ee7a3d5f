"""Texts of foreign files, made safe to print. Imports nothing heavy."""

from __future__ import annotations

import unicodedata

DIRECTIONS = {*map(chr, (*range(0x202A, 0x202F), *range(0x2066, 0x206A)))}
"""Characters that change the direction of the text after them."""


def printable(text: str) -> str:
    r"""Escape control characters (`\x1b`), which a terminal would execute, and characters of direction."""
    return "".join(
        character.encode("unicode_escape").decode()
        if unicodedata.category(character) in ("Cc", "Cs") or character in DIRECTIONS
        else character
        for character in text
    )
