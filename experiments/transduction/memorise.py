"""Memorising baseline of historical normalisation: python memorise.py TRAIN DEV ...

A word that occurs in the training file gets its most frequent normalisation there, the first one at a tie;
any other word stays as it is. Prints the word error rate of all words, of known and of unknown words.
"""

import sys
from collections import Counter, defaultdict
from pathlib import Path


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


def error_rate(pairs: list[tuple[str, str]], table: dict[str, str]) -> float:
    """Return the percentage of wrong words."""
    return 100 * sum(table.get(word, word) != norm for word, norm in pairs) / len(pairs)


def main(*paths: str) -> None:
    """Print Markdown, one row per corpus."""
    print(
        "| training file | pairs | words | unknown words | WER | WER, known | WER, unknown | WER of copying |"
    )
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for train, dev in zip(paths[::2], paths[1::2], strict=True):
        training, pairs = read(train), read(dev)
        table = memorise(training)
        known = [pair for pair in pairs if pair[0] in table]
        unknown = [pair for pair in pairs if pair[0] not in table]
        rates = [error_rate(part, table) for part in (pairs, known, unknown)]
        numbers = " | ".join(f"{rate:.2f}" for rate in (*rates, error_rate(pairs, {})))
        print(f"| {Path(train).name} | {len(training):,} | {len(pairs):,} | {len(unknown):,} | {numbers} |")


if __name__ == "__main__":
    main(*sys.argv[1:])
