"""Slots: what an intent quotes is named in the intent and in the code, and put back after decoding.

    sort list `names` by key 'age'      sorted(names, key=lambda x: x['age'])
    sort list var_0 by key str_0        sorted(var_0, key=lambda x: x['str_0'])

A network then need not spell names and strings that it has never seen (Yin & Neubig 2018, arXiv 1810.02720).
What stands between backticks is `var_0`, `var_1`, …, between quotation marks `str_0`, …; equal texts share a
slot. In the code every equal run of tokens is replaced, names, numbers and whole expressions among them, and
every string that reads so between its quotation marks, which stay.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterator
from itertools import chain

from attnlab.data.tokenization.python_code import OPENING, cut, join, parse, units

Placeholders = tuple[tuple[str, str], ...]
"""Names and the texts they stand for."""

SPAN = re.compile(
    r"`(?P<code>[^`]+)`"
    r"|(?<![\w`'\"])''(?=\S)(?P<doubled>[^']+)(?<=\S)''(?!\w)"  # ''text'', as some write it
    r"|(?<![\w`])[ub]?(?P<quote>['\"])(?P<text>.+?)(?P=quote)(?!\w)",  # but not the 's of keys' or today's
    re.DOTALL | re.IGNORECASE,
)


def quoted(intent: str) -> list[str]:
    """The texts that an intent quotes, each once, in their order."""
    return list(dict.fromkeys(text for _, text in _spans(intent)))


def name(intent: str) -> tuple[str, Placeholders]:
    """The intent with names in place of what it quotes, and what they stand for.

    Python's keywords stay, and a name that the intent uses itself is not given.
    """
    names: dict[str, str] = {}
    counts = {"var": 0, "str": 0}
    for match, text in _spans(intent):
        if text in names:
            continue
        kind = "var" if match["code"] else "str"
        while re.search(rf"\b{kind}_{counts[kind]}\b", intent):
            counts[kind] += 1
        names[text] = f"{kind}_{counts[kind]}"
        counts[kind] += 1

    def replaced(match: re.Match[str]) -> str:
        return names.get(_text(match), match[0])

    return SPAN.sub(replaced, intent), tuple((slot, text) for text, slot in names.items())


def take_out(code: str, slots: Placeholders) -> str:
    """The code with names in place of what they stand for.

    Python stays Python: runs of tokens are left where a name would not do, such as the `(1, 2)` of `f(1, 2)`.
    All of the code is left where it has such a name itself, as no snippet of CoNaLa's training file has.
    """
    parts = units(code)
    for slot, text in sorted(slots, key=lambda item: -len(item[1])):  # `a.b` before `a`
        parts = [_in_string(part, slot, text) for part in parts]
        parts = _name_runs(parts, slot, text)
    named = _write(parts)
    return named if cut(put_back(named, slots)) == cut(code) else code


def put_back(code: str, slots: Placeholders) -> str:
    """The code with what its names stand for.

    Where a text would end the string it comes into, that is written with other quotation marks, or else with
    a backslash.
    """
    if not slots:
        return code
    texts = dict(slots)
    slot = "|".join(map(re.escape, texts))

    def restored(match: re.Match[str]) -> str:
        opening, quote, string, bare = match.groups()
        return texts[bare] if bare else _literal(opening.removesuffix(quote), quote, texts[string])

    return re.sub(rf"({OPENING.pattern})({slot})\2|\b({slot})\b", restored, code)


def _spans(intent: str) -> Iterator[tuple[re.Match[str], str]]:
    """What an intent quotes, but for keywords and mere blanks between backticks."""
    for match in SPAN.finditer(intent):
        text = _text(match)
        if not keyword.iskeyword(text) and (text.strip() or not match["code"]):
            yield match, text


def _text(match: re.Match[str]) -> str:
    """What a span reads; blanks at the edges of code mean nothing."""
    return match["code"].strip() if match["code"] else match["doubled"] or match["text"]


def _write(parts: list[tuple[str, ...]]) -> str:
    return join(chain.from_iterable(parts))


def _in_string(part: tuple[str, ...], slot: str, text: str) -> tuple[str, ...]:
    """A unit of code, with the slot in it if it is a string that reads so."""
    is_string = len(part) == 3 and part[1] == text and OPENING.fullmatch(part[0])
    return (part[0], slot, part[2]) if is_string else part


def _name_runs(parts: list[tuple[str, ...]], slot: str, text: str) -> list[tuple[str, ...]]:
    """The units of code, with the slot in place of every run of them that is the text."""
    run = units(text)
    named, at = [], 0
    while at < len(parts):
        found = bool(run) and parts[at : at + len(run)] == run
        named.append((slot,) if found else parts[at])
        at += len(run) if found else 1
    return named if parse(_write(named)) or not parse(_write(parts)) else parts


def _literal(prefix: str, quote: str, text: str) -> str:
    """A string that reads `text` between its quotation marks."""
    other = {"'": '"', '"': "'"}.get(quote, quote)
    if quote in text and other not in text:
        quote = other
    elif quote in text:
        text = text.replace(quote, f"\\{quote}")
    return f"{prefix}{quote}{text}{quote}"
