"""Write the scores of the recipe on examples that chose nothing to cross-validation.csv.

python cross_validation.py RUNS CONALA: RUNS has the runs of the recipe on the folds of folds.py. The epoch
and the weights of the reranker (reranker.py) of a fold are chosen on a development split of its training
file. The recipe itself was chosen earlier on the default development split of the whole file.
"""

import csv
import sys
from collections import defaultdict
from functools import partial
from itertools import product
from pathlib import Path

import torch
from reranker import BLEU, EXACT_MATCH, GRIDS, SIZE, Candidates, Choice, bleu, decode

from attnlab.api.model import load
from attnlab.data.conala.dataset import Preparation, load_conala
from attnlab.files.predictions import Prediction
from attnlab.report.collect import collect
from attnlab.report.resampling import score_interval

RESULTS = Path(__file__).with_name("cross-validation.csv")
FIELDS = ("way", "fold", "sentences", "bleu", "low", "high", "exact_match", "length_ratio", "weights")
ALL, UNSEEN = "all", "all, without the default development split"
RECIPE = "beam of 5, the recipe"
RERANKERS = {
    f"beam of {SIZE}, reranked by {name}": GRIDS[name] for name in ("length", "length, quoted texts")
}
LIMIT = f"beam of {SIZE}, most similar to the reference"


def main(runs: str, conala: str) -> None:
    """Write the file."""
    with RESULTS.open("w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows(Path(runs), Path(conala)))


def rows(runs: Path, conala: Path) -> list[dict[str, str]]:
    """Decode the test examples of each fold in each way, and score each fold and all of them together."""
    torch.set_num_threads(1)
    outputs: dict[str, list[Prediction]] = defaultdict(list)
    lines = []
    for run in sorted(collect([runs]).finished, key=lambda run: run.variant):
        decoded = decode(load(run.directory))
        chosen: dict[str, tuple[list[Prediction], str]] = {RECIPE: (run.predictions["test"], "")}
        for way, grid in RERANKERS.items():
            weights = max(product(*grid), key=partial(bleu, decoded["val"]))
            choice: Choice = partial(Candidates.best, weights=weights)
            chosen[way] = (choose(decoded["test"], choice), " ".join(map(str, weights)))
        chosen[LIMIT] = (choose(decoded["test"], Candidates.most_similar), "")
        for way, (predictions, weights_text) in chosen.items():
            outputs[way] += predictions
            lines.append(scores(way, run.variant, predictions, weights_text))
    developed = load_conala(path=conala, cache=runs, preparation=Preparation(slots=True)).splits["val"]
    known = {(pair.source, pair.reference) for pair in developed}
    for way, predictions in outputs.items():
        unseen = [one for one in predictions if {(one.source, text) for text in one.references} - known]
        lines += [scores(way, ALL, predictions), scores(way, UNSEEN, unseen)]
    return lines


def choose(sentences: list[Candidates], choice: Choice) -> list[Prediction]:
    """Return the chosen hypothesis of each sentence."""
    return [one.predictions[choice(one)] for one in sentences]


def scores(way: str, fold: str, predictions: list[Prediction], weights: str = "") -> dict[str, str]:
    """Return a row of the file; the interval of BLEU is that of the bootstrap over sentences."""
    counts = BLEU.count(predictions)
    low, high = score_interval(BLEU, [counts])
    exact, total = EXACT_MATCH.count(predictions).sum(axis=0)
    hypothesis, reference = counts.sum(axis=0)[:2]
    values = (
        len(predictions),
        BLEU.value(counts.sum(axis=0)),
        low,
        high,
        exact / total,
        hypothesis / reference,
    )
    return dict(zip(FIELDS, (way, fold, *(f"{float(value):.6g}" for value in values), weights), strict=True))


if __name__ == "__main__":
    main(*sys.argv[1:])
