"""Learning curve of normalisation, into learning_curve.csv; prints a table of it.

    python learning_curve.py [CORPORA [RUNS [TEXT ...]]]

CORPORA is the folder of the corpora. The first tokens of each are written to RUNS/CORPUS.TOKENS.txt. RUNS has
the runs of `experiment=normalisation` with the variants CORPUS-TOKENS-MODEL; with files of TEXT in modern
German, German ones are decoded with it as a word list too.
Without arguments, only the table is printed. Runs that are in the file already are not decoded again.
"""

import csv
import subprocess
import sys
from itertools import product
from pathlib import Path

from memorise import memorise, rates_apart, read
from rules import Rules
from summary import CORPORA, print_caption, print_row

FILE = Path(__file__).with_name("learning_curve.csv")
COLUMNS = ("corpus", "tokens", "model", "wer", "wer_known", "wer_unknown")
PUBLISHED = {
    "german-ridges": (59.2, 73.0, 75.0, 80.3, 82.7, 85.9),
    "icelandic-icepahc": (62.6, 67.6, 72.3, 76.4, 78.6, 81.8),
    "slovene-goo300k-bohoric": (67.7, 79.7, 82.9, 88.1, 89.6, 91.1),
    "swedish-gaw": (66.1, 75.0, 78.5, 85.3, 88.6),
}
"""Word accuracy of the best of four systems of Bollmann (2019), test files."""
TOKENS = (100, 500, 1000, 5000, 10000, 25000)
LIST, GERMAN = "-list", "german-ridges"
"""Ending of the names of models that are decoded with a word list, and the corpus for which there is one."""
MODELS = ("memorised", "rules", "plain", "invented", f"plain{LIST}", f"invented{LIST}")
"""Columns of the table."""

Key = tuple[str, int, str]
"""Corpus, number of tokens, model."""


def first_tokens(lines: list[str], count: int) -> list[str]:
    """Return the lines up to the last of `count` tokens; empty lines separate sentences."""
    places = [place for place, line in enumerate(lines) if line.strip()][:count]
    return lines[: places[-1] + 1]


def decode(run: Path, words: list[str], train: str, *settings: str) -> list[str]:
    """Return the outputs of a run: known words by their most frequent form, unknown symbols copied."""
    command = [sys.executable, "-m", "attnlab", "predict", str(run), "--lexicon", train, "--unknown", "copy"]
    text = "".join(f"{word}\n" for word in words)
    done = subprocess.run([*command, *settings], input=text, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.split("\n")[:-1]


def add_rows(corpora: Path, runs: Path, texts: list[str], rows: dict[Key, tuple[float, ...]]) -> None:
    """Add the error rates that are missing: of memorising, of the rules and of each finished run."""
    listed = ("reranking=word_list", f"reranking.prefers.path=[{','.join(texts)}]", "--beam", "20")
    runs.mkdir(parents=True, exist_ok=True)
    for corpus, tokens in product(CORPORA, TOKENS):
        lines = (corpora / f"{corpus}.train.txt").read_text(encoding="utf-8").splitlines(keepends=True)
        train = runs / f"{corpus}.{tokens}.txt"
        train.write_text("".join(first_tokens(lines, tokens)), encoding="utf-8")
        pairs, table = read(str(corpora / f"{corpus}.dev.txt")), memorise(read(str(train)))
        rules, words = Rules(read(str(train))), sorted({word for word, _ in pairs})
        outputs = {"memorised": [table.get(word, word) for word in words]}
        outputs["rules"] = [table.get(word) or rules.normalise(word) for word in words]
        for written in sorted(runs.glob(f"{corpus}-{tokens}-*-seed0-*/predictions")):
            run, model = written.parent, written.parent.name.split("-")[-3]
            if (corpus, tokens, model) not in rows:
                outputs[model] = decode(run, words, str(train))
            if corpus == GERMAN and texts and (corpus, tokens, model + LIST) not in rows:
                outputs[model + LIST] = decode(run, words, str(train), *listed)
        for model, row in outputs.items():
            output_of = dict(zip(words, row, strict=True))
            found = [(word, norm, output_of[word]) for word, norm in pairs]
            rows[corpus, tokens, model] = (*(round(rate, 2) for rate in rates_apart(found, table)),)


def read_rows() -> dict[Key, tuple[float, ...]]:
    """Return the error rates of the file, which may not exist."""
    if not FILE.exists():
        return {}
    with FILE.open(newline="") as file:
        _, *lines = csv.reader(file)
    return {(corpus, int(tokens), model): (*map(float, rates),) for corpus, tokens, model, *rates in lines}


def main(*arguments: str) -> None:
    """Write the file if there are arguments, and print the table."""
    rows = read_rows()
    if arguments:
        corpora, runs, *texts = arguments
        add_rows(Path(corpora), Path(runs), texts, rows)
        with FILE.open("w", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(COLUMNS)
            for key in sorted(rows):
                writer.writerow((*key, *(f"{rate:.2f}" for rate in rows[key])))
    print()
    print_caption("WER with the first n tokens, development files; `published`: test files")
    shown = [model for model in MODELS if any(key[2] == model for key in rows)]
    print_row("corpus", "n", *(f"`{model}`" for model in shown), "published")
    print(f"| --- |{' ---: |' * (len(shown) + 2)}")
    for corpus, accuracies in PUBLISHED.items():
        for tokens, accuracy in zip(TOKENS, accuracies, strict=False):
            cells = (rows.get((corpus, tokens, model), ("–",))[0] for model in shown)
            print_row(corpus, f"{tokens:,}", *cells, 100 - accuracy)
    print()


if __name__ == "__main__":
    main(*sys.argv[1:])
