"""Learning curve of normalisation, into learning_curve.csv; prints a table of it.

    python learning_curve.py [CORPORA RUNS LISTS]

CORPORA is the folder of the corpora, LISTS that of modern words, `datasets/modern` of coastalcph/histnorm.
The files that networks need are written into RUNS: CORPUS.dev.txt, CORPUS.TOKENS.txt,
CORPUS.TOKENS.more.txt with invented pairs, and CORPUS.TOKENS.words.txt with modern words. RUNS has the runs
of `experiment=normalisation` with the variants CORPUS-TOKENS and CORPUS-TOKENS-plain. Without arguments,
only the table is printed. Runs that are in the file already are not decoded again.

Tokens are prepared as for the published systems (`preprocess.py --all` of histnorm), and drawn at random.
"""

import csv
import random
import re
import subprocess
import sys
import unicodedata
from itertools import product
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure
from memorise import Output, memorise, rates_apart, read
from rules import Rules, more_pairs
from summary import CORPORA, print_caption, print_row

from attnlab.report.files import save
from attnlab.report.style import STYLE_SHEET, variant_styles

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
LISTS = {"german-ridges": "de", "slovene-goo300k-bohoric": "sl", "swedish-gaw": "sv"}
"""Languages of the lists of modern words."""
BONUS = 4.0
"""Preference for listed words, added to log p. Of 2, 4 and 6 it has the lowest error of a network with 1,000
Swedish tokens (development file)."""
BEAM = 40
LIST = "-list"
"""Ending of the names of models that prefer listed words."""
NETWORKS = {"plain": "-plain", "network": ""}
"""Networks without and with invented pairs, and the ending of their variants."""
MODELS = ("memorised", *(f"{model}{end}" for model in ("rules", *NETWORKS) for end in ("", LIST)))
"""Columns of the table."""

Pair = tuple[str, str]
Key = tuple[str, int, str]
"""Corpus, number of tokens, model."""


def prepare(pairs: list[Pair]) -> list[Pair]:
    """Return the pairs in lower case and NFC, with 0 for digits that stay, without punctuation."""
    prepared = []
    for pair in pairs:
        if any(all(unicodedata.category(sign).startswith("P") for sign in text) for text in pair):
            continue
        word, norm = (unicodedata.normalize("NFC", text).lower().replace(" ", "÷") for text in pair)
        if word == norm:
            word = norm = re.sub(r"[0-9]", "0", word)
        prepared.append((word, norm))
    return prepared


def write_files(corpora: Path, runs: Path, lists: Path) -> None:
    """Write the files of each corpus and number of tokens."""
    runs.mkdir(parents=True, exist_ok=True)
    for corpus in CORPORA:
        write_pairs(runs / f"{corpus}.dev.txt", prepare(read(str(corpora / f"{corpus}.dev.txt"))))
        pairs = prepare(read(str(corpora / f"{corpus}.train.txt")))
        random.Random(0).shuffle(pairs)
        listed = lists / f"combined.{LISTS.get(corpus)}.uniq"
        words = listed.read_text(encoding="utf-8").split() if corpus in LISTS else []
        modern = sorted({word.lower() for word in words if word.isalpha()})
        for tokens in TOKENS:
            drawn = pairs[:tokens]
            write_pairs(runs / f"{corpus}.{tokens}.txt", drawn)
            write_pairs(runs / f"{corpus}.{tokens}.more.txt", more_pairs(drawn, modern))
            preferred = "\n".join(sorted({*modern, *(norm for _, norm in drawn)}))
            (runs / f"{corpus}.{tokens}.words.txt").write_text(preferred, encoding="utf-8")


def write_pairs(path: Path, pairs: list[Pair]) -> None:
    """Write a pair in each line."""
    path.write_text("".join(f"{word}\t{norm}\n" for word, norm in pairs), encoding="utf-8")


def decode(run: Path, words: list[str], train: Path, *settings: str) -> list[str]:
    """Return the outputs of a run: known words by their most frequent form, unknown symbols copied."""
    command = [sys.executable, "-m", "attnlab", "predict", str(run), "--lexicon", str(train)]
    text = "".join(f"{word}\n" for word in words)
    done = subprocess.run(
        [*command, "--unknown", "copy", *settings], input=text, stdout=subprocess.PIPE, text=True, check=True
    )
    return done.stdout.split("\n")[:-1]


def add_rows(runs: Path, rows: dict[Key, tuple[float, ...]]) -> None:
    """Add the error rates that are missing: of memorising, of the rules and of each finished run."""
    for corpus, tokens in product(CORPORA, TOKENS):
        train, listed = (runs / f"{corpus}.{tokens}.{name}txt" for name in ("", "words."))
        dev, table, rules = (
            read(str(runs / f"{corpus}.dev.txt")),
            memorise(read(str(train))),
            Rules(read(str(train))),
        )
        words, modern = sorted({word for word, _ in dev}), {*listed.read_text(encoding="utf-8").split()}
        outputs = {
            "memorised": [table.get(word, word) for word in words],
            "rules": [table.get(word) or rules.normalise(word) for word in words],
            f"rules{LIST}": [table.get(word) or preferred(rules.best(word, BEAM), modern) for word in words],
        }
        for model, variant in NETWORKS.items():
            written = sorted(runs.glob(f"*/{corpus}-{tokens}{variant}-seed0-*/predictions"))
            if written and (corpus, tokens, model) not in rows:
                outputs[model] = decode(written[0].parent, words, train)
                outputs[f"{model}{LIST}"] = decode(written[0].parent, words, train, *list_settings(listed))
        for model, row in outputs.items():
            output_of = dict(zip(words, row, strict=True))
            found: list[Output] = [(word, norm, output_of[word]) for word, norm in dev]
            rows[corpus, tokens, model] = (*(round(rate, 2) for rate in rates_apart(found, table)),)


def list_settings(listed: Path) -> list[str]:
    """Return the settings of a search that prefers listed words."""
    settings = {"path": listed, "bonus": BONUS}
    preference = [f"reranking.prefers.{key}={value}" for key, value in settings.items()]
    return ["reranking=word_list", *preference, "--beam", str(BEAM)]


def preferred(scored: list[tuple[float, str]], modern: set[str]) -> str:
    """Return the best output; listed words are preferred."""
    return max(scored, key=lambda each: each[0] + BONUS * (each[1] in modern))[1]


def read_rows() -> dict[Key, tuple[float, ...]]:
    """Return the error rates of the file, which may not exist."""
    if not FILE.exists():
        return {}
    with FILE.open(newline="") as file:
        _, *lines = csv.reader(file)
    return {(corpus, int(tokens), model): (*map(float, rates),) for corpus, tokens, model, *rates in lines}


def draw(rows: dict[Key, tuple[float, ...]]) -> Figure:
    """Draw the error rates of each corpus over the number of tokens."""
    shown = {f"network{LIST}": "network, list", f"rules{LIST}": "rules, list", "memorised": "memorised"}
    styles = variant_styles(["published", *shown.values()])
    figure = Figure(figsize=(6, 4.6), layout="constrained")
    panels = figure.subplots(2, 2, sharex=True)
    for axes, (corpus, accuracies) in zip(panels.flat, PUBLISHED.items(), strict=True):
        curves = {"published": {n: 100 - share for n, share in zip(TOKENS, accuracies, strict=False)}}
        for model, label in shown.items():
            curves[label] = {n: rows[corpus, n, model][0] for n in TOKENS if (corpus, n, model) in rows}
        for label, curve in curves.items():
            style = styles[label]
            axes.plot(
                [*curve], [*curve.values()], style.marker, ls=style.dash, color=style.colour, label=label
            )
        axes.set(title=corpus, xscale="log", ylim=(0, 55), xticks=(100, 1000, 10000))
        axes.set_xticklabels(["100", "1,000", "10,000"])
        axes.minorticks_off()
    for axes in panels[1]:
        axes.set_xlabel("training tokens")
    for axes in panels[:, 0]:
        axes.set_ylabel("WER [%]")
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return figure


def main(*arguments: str) -> None:
    """Write the file and the figure if there are arguments, and print the table."""
    rows = read_rows()
    if arguments:
        corpora, runs, lists = map(Path, arguments)
        write_files(corpora, runs, lists)
        add_rows(runs, rows)
        with FILE.open("w", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(COLUMNS)
            for key in sorted(rows):
                writer.writerow((*key, *(f"{rate:.2f}" for rate in rows[key])))
        with mpl.rc_context(fname=STYLE_SHEET):
            save(draw(rows), FILE.with_suffix(".svg"))
    print()
    print_caption("WER with n tokens, development files; `published`: test files")
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
