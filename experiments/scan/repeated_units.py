"""SCAN with answers of units and numbers of repetitions: data._target_=repeated_units.load.

The answer of "jump around left thrice" becomes two tokens, `I_TURN_LEFT+I_JUMP *12`. Outputs are expanded to
actions before they are scored.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import groupby, pairwise
from typing import Any

from attnlab.data.corpus import Corpus, Pair
from attnlab.data.datasets.scan import generate_scan

UNITS = 16


def load(**settings: Any) -> Corpus:
    """Return the corpus of `generate_scan`, its answers compressed with the units of the training answers."""
    corpus = generate_scan(**settings)
    units = frequent_units([pair.target for pair in corpus.train], UNITS)

    def compressed(pairs: Sequence[Pair]) -> list[Pair]:
        answers = [compress(pair.target, units) for pair in pairs]
        return [
            Pair(pair.source, answer, reference=pair.target, postprocess=expand)
            for pair, answer in zip(pairs, answers, strict=True)
        ]

    return Corpus(
        train=compressed(corpus.train),
        val=compressed(corpus.val),
        test={name: compressed(pairs) for name, pairs in corpus.test.items()},
    )


def frequent_units(answers: Sequence[str], count: int) -> list[tuple[str, str]]:
    """Return the pairs that byte-pair encoding of actions joins, the most frequent first.

    A symbol is not joined with itself, so that repetitions can be counted. Of equally frequent pairs the
    first by code points is joined.
    """
    rows = Counter(tuple(answer.split()) for answer in answers)
    units: list[tuple[str, str]] = []
    for _ in range(count):
        pairs: Counter[tuple[str, str]] = Counter()
        for row, times in rows.items():
            for pair in pairwise(row):
                if pair[0] != pair[1]:
                    pairs[pair] += times
        units.append(min(pairs, key=lambda pair: (-pairs[pair], pair)))
        joined: Counter[tuple[str, ...]] = Counter()
        for row, times in rows.items():
            joined[_join(row, units[-1])] += times
        rows = joined
    return units


def compress(answer: str, units: Sequence[tuple[str, str]]) -> str:
    """Return an answer as units, each followed by its number of repetitions if there are several."""
    row: Sequence[str] = answer.split()
    for pair in units:
        row = _join(row, pair)
    runs = [(unit, len(list(run))) for unit, run in groupby(row)]
    return " ".join(unit if length == 1 else f"{unit} *{length}" for unit, length in runs)


def expand(compressed: str) -> str:
    """Return the actions of a compressed answer; a number without a unit before it is left out."""
    actions: list[str] = []
    unit: list[str] = []
    for token in compressed.split():
        if token.startswith("*"):
            actions += unit * (int(token[1:]) - 1)
        else:
            unit = token.split("+")
            actions += unit
    return " ".join(actions)


def _join(row: Sequence[str], pair: tuple[str, str]) -> tuple[str, ...]:
    """Replace each occurrence of a pair of neighbours by one symbol, from left to right."""
    symbols: list[str] = []
    for symbol in row:
        if symbols and (symbols[-1], symbol) == pair:
            symbols[-1] = "+".join(pair)
        else:
            symbols.append(symbol)
    return tuple(symbols)
