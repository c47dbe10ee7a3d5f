"""Decode the test examples of each fold in several ways; write results.csv and cross-validation.csv.

python cross_validation.py RUNS CONALA: RUNS has the runs of the recipe on the folds of folds.py. The epoch
and the weights of the reranker of a fold are chosen on a development split of its training file. The recipe
itself was chosen earlier on the default development split of the whole file. A hypothesis scores

    log p(y | x) + a |y| + b (quoted texts that y repeats),

and valid Python comes before other text. The weights a and b are the best of a grid for BLEU. The
hypotheses that are most similar to the references give the approximate upper limit of reranking.
"""

import csv
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from attnlab.api.model import load
from attnlab.config.compose import apply_overrides
from attnlab.data.conala import metrics as conala
from attnlab.data.conala.dataset import Preparation, load_conala
from attnlab.data.corpus import Pair
from attnlab.files.predictions import Prediction
from attnlab.metrics import registry
from attnlab.metrics.text.ngrams import bleu_counts
from attnlab.metrics.texts import WORDS
from attnlab.report.collect import collect
from attnlab.report.record import RunRecord
from attnlab.report.resampling import score_interval
from attnlab.report.results_file import format_results
from attnlab.report.study import Study
from attnlab.training import build
from attnlab.training.model import Model

FOLDER = Path(__file__).parent
FIELDS = ("way", "fold", "sentences", "bleu", "low", "high", "exact_match", "length_ratio", "weights")
ALL, UNSEEN = "all", "all, without the default development split"
BLEU, EXACT_MATCH = conala.bleu_counts(WORDS), registry.metric("conala_exact_match").sentence_counts()
SMOOTHED_BLEU = bleu_counts(WORDS)
SIZE = 20
LENGTH, QUOTED = (0.0, 0.5, 0.75, 1.0, 1.25, 1.5), (0.0, 1.0, 3.0, 10.0)
GRIDS = {"length": [*product(LENGTH, (0.0,))], "length, quoted texts": [*product(LENGTH, QUOTED)]}
"""Values of a and b for each set of features."""
BATCH = 64
INVALID = 1e6
"""Subtracted from the score of text that is not valid Python."""


@dataclass(frozen=True)
class Candidates:
    """The N hypotheses of one sentence.

    Attributes:
        predictions: best first.
        log_p: log p(y | x), [N].
        features: those with the weights a and b, [N, 2].
        counts: of BLEU, [N, C].
        exact: 1 for exact matches, [N].
    """

    predictions: Sequence[Prediction]
    log_p: NDArray[np.float64]
    features: NDArray[np.float64]
    counts: NDArray[np.float64]
    exact: NDArray[np.float64]

    def best(self, weights: tuple[float, ...]) -> int:
        """Return the number of the best hypothesis with the weights a and b."""
        return int(np.argmax(self.log_p + self.features @ np.array(weights)))

    def most_similar(self) -> int:
        """Return the number of an exact match, or else of the hypothesis with the highest smoothed BLEU."""
        similarity = SMOOTHED_BLEU.value(self.counts)  # 0 for texts of less than four tokens
        return int(np.lexsort((similarity, self.exact))[-1])


def main(runs: str, conala_file: str) -> None:
    """Write results.csv and cross-validation.csv."""
    torch.set_num_threads(1)
    folds = sorted(collect([Path(runs)]).finished, key=lambda run: run.variant)
    if len({run.variant for run in folds}) < len(folds):
        sys.exit(f"{runs} has two runs of one fold: remove one of them")
    (FOLDER / "results.csv").write_text(format_results(Study("conala_best", folds)))
    with (FOLDER / "cross-validation.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows(folds, Path(conala_file), cache=Path(runs)))


def rows(folds: Sequence[RunRecord], conala_file: Path, cache: Path) -> list[dict[str, str]]:
    """Decode the test examples of each fold in each way, and score each fold and all of them together."""
    outputs: dict[str, list[Prediction]] = defaultdict(list)
    lines = []
    for run in folds:
        for way, predictions, weights in ways_of_decoding(run):
            outputs[way] += predictions
            lines.append(scores(way, run.variant, predictions, weights))
    developed = load_conala(path=conala_file, cache=cache, preparation=Preparation(slots=True)).splits["val"]
    development = {(pair.source, pair.reference) for pair in developed}
    for way, predictions in outputs.items():
        unseen = [one for one in predictions if {(one.source, text) for text in one.references} - development]
        lines += [scores(way, ALL, predictions), scores(way, UNSEEN, unseen)]
    return lines


def ways_of_decoding(run: RunRecord) -> Iterator[tuple[str, Sequence[Prediction], str]]:
    """Yield the name of each way, its outputs for the test examples, and the reranker's weights."""
    model = load(run.directory)
    splits = build.build_corpus(model.config).splits
    for way, settings in {
        "beam of 5, the recipe": (),
        "greedy": ("reranking=none", "search.beam_size=1"),
    }.items():
        yield way, [one for (one,) in decode(model, splits["test"], settings, nbest=1)], ""
    power = float(model.config.search.length_penalty)
    beam = ("reranking=none", f"search.beam_size={SIZE}")
    val, test = (
        [candidates(one, power) for one in decode(model, splits[name], beam, nbest=SIZE)]
        for name in ("val", "test")
    )
    for name, grid in GRIDS.items():
        weights = max(grid, key=lambda weights: bleu(val, weights))
        chosen = [one.predictions[one.best(weights)] for one in test]
        yield f"beam of {SIZE}, reranked by {name}", chosen, " ".join(map(str, weights))
    limit = [one.predictions[one.most_similar()] for one in test]
    yield f"beam of {SIZE}, most similar to the reference", limit, ""


def decode(
    model: Model, pairs: Sequence[Pair], settings: Sequence[str], *, nbest: int
) -> list[list[Prediction]]:
    """Return the best hypotheses for each pair, also where the same input occurs with other references."""
    config = apply_overrides(model.config, settings)
    translator = build.build_translator(config, model.vocabularies)
    examples = build.encode_pairs(config, model.vocabularies, pairs)
    decoded: list[list[Prediction]] = []
    for start in range(0, len(pairs), BATCH):
        chosen = [*range(start, min(start + BATCH, len(pairs)))]
        with torch.no_grad():
            decoded += translator(
                model.network, examples[chosen], [pairs[row] for row in chosen], nbest=nbest
            )
    return [
        [replace(prediction, references=(pair.reference or "",)) for prediction in predictions]
        for predictions, pair in zip(decoded, pairs, strict=True)
    ]


def candidates(predictions: Sequence[Prediction], power: float) -> Candidates:
    """Compute the features of the hypotheses of one sentence; those that are not valid Python come last.

    Their scores are log p(y | x) / |y|^power.
    """
    lengths = np.array([len(prediction.tokens) for prediction in predictions])
    log_p = np.array([prediction.score for prediction in predictions]) * lengths**power
    valid = np.array([conala.is_valid_python(prediction.hypothesis) for prediction in predictions])
    quoted = [conala.repeated_quotations(prediction) for prediction in predictions]
    return Candidates(
        predictions,
        np.where(valid, log_p, log_p - INVALID),
        np.array([lengths, quoted]).T,
        BLEU.count(predictions),
        EXACT_MATCH.count(predictions)[:, 0],
    )


def bleu(sentences: Sequence[Candidates], weights: tuple[float, ...]) -> float:
    """Return the official BLEU of the best hypothesis of each sentence."""
    return float(BLEU.value(sum(one.counts[one.best(weights)] for one in sentences)))


def scores(way: str, fold: str, predictions: Sequence[Prediction], weights: str = "") -> dict[str, str]:
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
