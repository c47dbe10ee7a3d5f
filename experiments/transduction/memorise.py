"""Memorising baseline of historical normalisation: python memorise.py TRAIN DEV ...

A word that occurs in the training file gets its most frequent normalisation there, the first one at a tie;
any other word stays as it is. Prints the word error rate of all words, of known and of unknown words.
summary.py compares networks with it.
"""

import sys
from collections import Counter, defaultdict
from collections.abc import Container
from pathlib import Path

Output = tuple[str, str, str]
"""A word, its normalisation, and the output for it."""


def read(path: str) -> list[tuple[str, str]]:
    """Return the pairs of a file with `TOKEN<TAB>NORM`; empty lines separate sentences."""
    lines = Path(path).read_text(encoding="utf-8").splitlines()
    rows = (line.split("\t") for line in lines if line.strip())
    return [(row[0], row[1]) for row in rows if len(row) > 1 and row[0].strip() and row[1].strip()]


def memorise(pairs: list[tuple[str, str]]) -> dict[str, str]:
    """Return the most frequent normalisation of each word."""
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for word, norm in pairs:
        counts[word][norm] += 1
    return {word: norms.most_common(1)[0][0] for word, norms in counts.items()}


def rates_apart(outputs: list[Output], known: Container[str]) -> tuple[float, float, float]:
    """Return the percentage of wrong outputs: of all words, of known and of unknown ones."""
    parts = ([output for output in outputs if (output[0] in known) is wanted] for wanted in (True, False))
    return error_rate(outputs), *map(error_rate, parts)  # type: ignore[return-value]


def error_rate(outputs: list[Output]) -> float:
    """Return the percentage of wrong outputs."""
    return 100 * sum(output != norm for _, norm, output in outputs) / len(outputs)


def main(*paths: str) -> None:
    """Print Markdown, one row per corpus."""
    print(
        "| training file | pairs | words | unknown words | WER | WER, known | WER, unknown | WER of copying |"
    )
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for train, dev in zip(paths[::2], paths[1::2], strict=True):
        training, pairs = read(train), read(dev)
        table = memorise(training)
        outputs = [(word, norm, table.get(word, word)) for word, norm in pairs]
        copies = [(word, norm, word) for word, norm in pairs]
        unknown = sum(word not in table for word, _ in pairs)
        numbers = " | ".join(f"{rate:.2f}" for rate in (*rates_apart(outputs, table), error_rate(copies)))
        print(f"| {Path(train).name} | {len(training):,} | {len(pairs):,} | {unknown:,} | {numbers} |")


if __name__ == "__main__":
    main(*sys.argv[1:])
