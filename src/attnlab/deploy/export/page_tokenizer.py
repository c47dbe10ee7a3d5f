"""Description of a tokenizer for `tokenizer.js`."""

import json
from typing import Any

from attnlab.data.features import FEATURE
from attnlab.data.tokenization.graphemes import START as GRAPHEMES
from attnlab.data.tokenization.tokenizer import PresplitTokenizer, Tokenizer
from attnlab.data.tokenization.train import CHARACTERS
from attnlab.errors import UserError

JAVASCRIPT_PATTERNS = {
    CHARACTERS["signs"]: r"[^\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\p{White_Space}]",
    "(?m:.)": r"[^]",
}
"""Expressions that JavaScript writes differently: its `\\w` and `\\s` are not classes of Unicode."""

Step = list[Any]
"""Name of a function in `tokenizer.js`, and its arguments after the text."""


def describe(tokenizer: Tokenizer, *, side: str) -> dict[str, Any]:
    """Return the steps, the vocabulary and the decoder of a tokenizer as JSON data."""
    if isinstance(tokenizer, PresplitTokenizer):
        raise _unsupported(side, type(tokenizer).__name__)
    pipeline = json.loads(tokenizer.to_json())
    try:
        return {
            "normalize": _normalize(pipeline["normalizer"]),
            "split": _split(pipeline["pre_tokenizer"]),
            "model": _model(pipeline["model"]),
            "join": _join(pipeline["decoder"]),
        }
    except _UnknownPartError as error:
        raise _unsupported(side, str(error)) from error


class _UnknownPartError(Exception):
    """A part of a tokenizer that has no counterpart in `tokenizer.js`."""


def _unsupported(side: str, part: str) -> UserError:
    return UserError(
        f"--page: the {side} tokenizer ({part}) does not run in a browser. Use --onnx, or train with another "
        "tokenizer, such as tokenizer=words, characters or subwords"
    )


def _normalize(node: dict[str, Any] | None) -> list[Step]:
    match node:
        case None:
            return []
        case {"type": "Sequence", "normalizers": parts}:
            return [step for part in parts for step in _normalize(part)]
        case {"type": "NFC" | "NFD" | "NFKC" | "NFKD" as form}:
            return [["form", form]]
        case {"type": "Lowercase"}:
            return [["lowercase"]]
        case {"type": "Strip", "strip_left": left, "strip_right": right}:
            return [["strip", left, right]]
        case {"type": "Replace", "pattern": {"Regex": pattern}, "content": content}:
            return [["replace", _pattern(pattern), content]]
        case {"type": "Replace", "pattern": {"String": text}, "content": content}:
            return [["replaceText", text, content]]
    raise _UnknownPartError(node["type"])


def _split(node: dict[str, Any]) -> list[Step]:
    match node:
        case {"type": "Sequence", "pretokenizers": parts}:
            return [step for part in parts for step in _split(part)]
        case {"type": "WhitespaceSplit"}:
            return [["space"]]
        case {"type": "Split", "behavior": "Isolated", "invert": False, "pattern": {"Regex": pattern}}:
            return [["isolate", _pattern(pattern)]]
        case {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}:
            return [["metaspace"]]
    raise _UnknownPartError(node["type"])


def _model(node: dict[str, Any]) -> dict[str, Any]:
    match node:
        case {"type": "WordLevel", "vocab": vocabulary}:
            return {"type": "words", "vocabulary": sorted(vocabulary, key=vocabulary.__getitem__)}
        case {
            "type": "BPE",
            "vocab": vocabulary,
            "merges": merges,
            "fuse_unk": False,
            "byte_fallback": False,
        }:
            pieces = sorted(vocabulary, key=vocabulary.__getitem__)
            prefix = node["continuing_subword_prefix"] or ""
            return {"type": "merges", "vocabulary": pieces, "merges": merges, "prefix": prefix}
        case {"type": "Unigram", "vocab": scored, "byte_fallback": False}:
            pieces, scores = [piece for piece, _ in scored], [score for _, score in scored]
            return {"type": "scores", "vocabulary": pieces, "scores": scores}
    raise _UnknownPartError(node["type"])


def _join(node: dict[str, Any] | None) -> str:
    match node:
        case None:
            return "space"
        case {"type": "Fuse"}:
            return "nothing"
        case {"type": "WordPiece", "prefix": "##", "cleanup": False}:
            return "words"
        case {"type": "Metaspace"}:
            return "metaspace"
    raise _UnknownPartError(node["type"])


def _pattern(pattern: str) -> str:
    """Return a pattern of `tokenization.train` as JavaScript writes it."""
    known = [*CHARACTERS.values(), FEATURE, "(?m:.)"]
    rest, parts = pattern, []
    while rest:
        if rest.startswith(GRAPHEMES):  # always last
            parts.append(rest.replace(r"\x{", r"\u{"))
            break
        start = next((start for start in known if f"{rest}|".startswith(f"{start}|")), None)
        if start is None:
            raise _UnknownPartError(f"the pattern {pattern}")
        parts.append(JAVASCRIPT_PATTERNS.get(start, start))
        rest = rest[len(start) + 1 :]
    return "|".join(parts)
