"""Encoding of many texts, each distinct word once."""

import json
import re
from collections import defaultdict
from collections.abc import Sequence
from itertools import chain, islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnlab.data.tokenization.tokenizer import Rows, Tokenizer

WORDS = 100_000  # Number of words whose ids are kept
SPACE = "▁"
METASPACE = {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": "always", "split": True}
CHARACTER_CLASSES = re.compile(r"(\|?(\[[^]]+\]|\\p{\w+}))+")
"""Regular expressions that match single characters."""


class WordEncoder:
    """Encodes texts like `Tokenizer.encode_all`, and keeps the ids of their words for later texts.

    Attributes:
        is_wordwise: whether the ids of a text are those of its words; else nothing is kept. That holds for
            the tokenizers of `attnlab.data.tokenization.train` that split at spaces. A custom one may have
            steps that depend on neighbouring words.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        state = json.loads(tokenizer.to_json()) if type(tokenizer) is Tokenizer else {}
        first, *splits = _steps(state.get("pre_tokenizer"))
        self._is_metaspace = first == METASPACE
        self.is_wordwise = (
            (self._is_metaspace or first == {"type": "WhitespaceSplit"})
            and {step["type"] for step in splits} <= {"Split"}
            and all(map(_is_of_characters, _steps(state["normalizer"])))
            and tokenizer.normalise(" ") == " "
            and (state["added_tokens"], state["post_processor"]) == ([], None)
            and state["model"].get("dropout") is None
        )
        self._numbers: defaultdict[str, int] = defaultdict()  # in the order of the first occurrences
        self._numbers.default_factory = self._numbers.__len__
        self._ids = Rows.of([])  # of the numbered words
        self._inner: set[str] = set()  # words that have other ids within a text

    def __call__(self, texts: Sequence[str]) -> Rows:
        """Return the ids of N texts."""
        if not self.is_wordwise:
            return self._tokenizer.encode_all(texts)
        if len(self._numbers) > WORDS:
            self._numbers.clear()
            self._ids = Rows.of([])
        parts = [text.split(" ") for text in texts]
        numbers = self._number(parts)
        if self._inner:  # encode whole texts as if they were words
            parts = [
                words if self._inner.isdisjoint(words) else [text]
                for words, text in zip(parts, texts, strict=True)
            ]
            numbers = self._number(parts)
        rows = self._ids.select(numbers)
        starts = np.cumsum([0, *map(len, parts)])[:-1]
        return Rows(rows.tokens, np.add.reduceat(rows.lengths, starts) if parts else rows.lengths)

    def _number(self, parts: Sequence[Sequence[str]]) -> NDArray[np.int64]:
        """Return the numbers of words, and encode new ones."""
        known = len(self._numbers)
        numbers = np.fromiter(map(self._numbers.__getitem__, chain.from_iterable(parts)), np.int64)
        new = [*islice(self._numbers, known, None)]
        tokens, lengths = self._tokenizer.encode_all(new)
        self._ids = Rows(
            np.concatenate([self._ids.tokens, tokens]), np.concatenate([self._ids.lengths, lengths])
        )
        if self._is_metaspace:
            starts = {"", " ", SPACE}
            self._inner.update(word for word in new if self._tokenizer.normalise(word)[:1] in starts)
        return numbers


def _steps(part: Any) -> list[Any]:
    """Return the steps of a normalizer or a pre-tokenizer, at least one; None for no part."""
    steps = (part or {}).get("normalizers") or (part or {}).get("pretokenizers")
    return [part] if steps is None else [*steps]


def _is_of_characters(step: Any) -> bool:
    """Return whether a step of a normalizer changes each word by itself."""
    return (
        step is None
        or step["type"] in {"NFC", "NFD", "NFKC", "NFKD", "Lowercase"}
        or CHARACTER_CLASSES.fullmatch(step.get("pattern", {}).get("Regex", "")) is not None
    )
