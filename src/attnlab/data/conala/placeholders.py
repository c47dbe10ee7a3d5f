"""Placeholders for the names and strings that an intent quotes.

    sort list `names` by key 'age'      sorted(names, key=lambda x: x['age'])
    sort list var_0 by key str_0        sorted(var_0, key=lambda x: x['str_0'])

With placeholders a model does not have to produce names and strings that never occur in the training data
(Yin & Neubig 2018, arXiv 1810.02720); they are restored after decoding. Texts between backticks become
`var_0`, `var_1`, …, texts between quotation marks `str_0`, …; equal texts share a placeholder. In code, each
occurrence of the text as a sequence of tokens is replaced (names, numbers, whole expressions), and each
string whose content is the text, which keeps its quotation marks.
"""

import keyword
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

from attnlab.data.conala.python_code import OPENING, cut, join, parse, units

Placeholders = tuple[tuple[str, str], ...]  # Pairs (placeholder, original text)

SPAN = re.compile(
    r"`(?P<code>[^`]+)`"
    r"|(?<![\w`'\"])''(?=\S)(?P<doubled>[^']+)(?<=\S)''(?!\w)"  # ''text'' occurs in CoNaLa as well
    r"|(?<![\w`])[ub]?(?P<quote>['\"])(?P<text>.+?)(?P=quote)(?!\w)",  # not as in keys' or today's
    re.DOTALL | re.IGNORECASE,
)
"""A quoted span of an intent."""


def quoted_texts(intent: str) -> list[str]:
    """Return the distinct texts that an intent quotes, in order of appearance."""
    return list(dict.fromkeys(text for _, text in _spans(intent)))


def replace_in_intent(intent: str) -> tuple[str, Placeholders]:
    """Replace the texts that an intent quotes by placeholders.

    Returns:
        The intent with placeholders, and the placeholders.
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

    def replacement(match: re.Match[str]) -> str:
        return names.get(_quoted_text(match), match[0])

    return SPAN.sub(replacement, intent), tuple((name, text) for text, name in names.items())


def unused_in(intent: str) -> str:
    """Return an expression of all placeholders that an intent does not contain: they have no text."""
    used = "".join(rf"(?!{name}$)" for name in sorted({*re.findall(r"\b(?:var|str)_\d+\b", intent)}))
    return rf"{used}(?:var|str)_\d+"


def replace_in_code(code: str, placeholders: Placeholders) -> str:
    """Replace the texts of the placeholders in Python code.

    Valid Python stays valid: an occurrence such as `(1, 2)` in `f(1, 2)` is kept, because the result would
    not parse. The code is returned unchanged if it contains a placeholder name itself (none of CoNaLa's
    training snippets does).
    """
    parts = units(code)
    for name, text in sorted(placeholders, key=lambda item: -len(item[1])):  # `a.b` before `a`
        parts = [_replace_string(part, name, text) for part in parts]
        parts = _replace_token_runs(parts, name, text)
    replaced = _join_units(parts)
    return replaced if cut(RestorePlaceholders(placeholders)(replaced)) == cut(code) else code


@dataclass(frozen=True)
class RestorePlaceholders:
    """Post-processing of a `Pair` that replaces placeholders by the original texts."""

    placeholders: Placeholders

    def __call__(self, code: str) -> str:
        if not self.placeholders:
            return code
        texts = dict(self.placeholders)
        names = "|".join(map(re.escape, texts))

        def original(match: re.Match[str]) -> str:
            opening, quote, string, bare = match.groups()
            return texts[bare] if bare else _literal(opening.removesuffix(quote), quote, texts[string])

        return re.sub(rf"({OPENING.pattern})({names})\2|\b({names})\b", original, code)


def _spans(intent: str) -> Iterator[tuple[re.Match[str], str]]:
    """Yield the quoted spans and their texts, without keywords and blank code spans."""
    for match in SPAN.finditer(intent):
        text = _quoted_text(match)
        if not keyword.iskeyword(text) and (text.strip() or not match["code"]):
            yield match, text


def _quoted_text(match: re.Match[str]) -> str:
    """Return the text of a span; code is stripped, strings keep their white space."""
    return match["code"].strip() if match["code"] else match["doubled"] or match["text"]


def _join_units(parts: list[tuple[str, ...]]) -> str:
    return join(chain.from_iterable(parts))


def _replace_string(part: tuple[str, ...], name: str, text: str) -> tuple[str, ...]:
    """Return the unit with the placeholder as its content if it is a string with this text."""
    is_string = len(part) == 3 and part[1] == text and OPENING.fullmatch(part[0])
    return (part[0], name, part[2]) if is_string else part


def _replace_token_runs(parts: list[tuple[str, ...]], name: str, text: str) -> list[tuple[str, ...]]:
    """Replace each run of units that equals the text, unless the code would no longer parse."""
    run = units(text)
    replaced, position = [], 0
    while position < len(parts):
        matches = bool(run) and parts[position : position + len(run)] == run
        replaced.append((name,) if matches else parts[position])
        position += len(run) if matches else 1
    return replaced if parse(_join_units(replaced)) or not parse(_join_units(parts)) else parts


def _literal(prefix: str, quote: str, text: str) -> str:
    """Return a string literal whose source between the quotation marks is the text, escaped if necessary."""
    other = {"'": '"', '"': "'"}.get(quote, quote)
    if quote in text and other not in text:
        quote = other
    elif quote in text:
        text = text.replace(quote, f"\\{quote}")
    return f"{prefix}{quote}{text}{quote}"
