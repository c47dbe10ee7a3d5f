"""Train rerankers of the 20 best hypotheses; write what each feature is worth to reranker.csv.

python reranker.py RUNS REVERSED: RUNS has the runs of the recipe, REVERSED that of a model of intents given
code (Yin & Neubig 2019 call its score reconstruction). A hypothesis scores

    log p(y | x) + a |y| + b (quoted texts that y repeats) + c log p(x | y),

and valid Python comes before other text. The weights a, b and c are the best of a grid for the mean BLEU of
all networks on the development split. The hypotheses that are most similar to the references are written as
well: they are about the limit of a reranker.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from statistics import fmean

import numpy as np
import torch
from numpy.typing import NDArray

from attnlab.api.model import load
from attnlab.config.compose import apply_overrides
from attnlab.data.conala import metrics as conala
from attnlab.data.conala.placeholders import RestorePlaceholders, replace_in_code
from attnlab.data.corpus import Pair
from attnlab.decoding.targets import score
from attnlab.files.predictions import Prediction
from attnlab.metrics import registry
from attnlab.metrics.text.ngrams import bleu_counts
from attnlab.metrics.texts import WORDS, Texts
from attnlab.report.collect import collect
from attnlab.report.results_file import format_results
from attnlab.report.study import Study
from attnlab.training import build
from attnlab.training.model import Model

RESULTS = Path(__file__).with_name("reranker.csv")
BLEU, EXACT_MATCH = conala.bleu_counts(WORDS), registry.metric("conala_exact_match").sentence_counts()
SMOOTHED_BLEU = bleu_counts(WORDS)
SIZE = 20
LENGTH = (0.0, 0.5, 0.75, 1.0, 1.25, 1.5)
QUOTED = (0.0, 1.0, 3.0, 10.0)
REVERSED = (0.0, 0.1, 0.2, 0.3, 0.5, 0.7)
GRIDS = {
    "length": (LENGTH, (0.0,), (0.0,)),
    "length, quoted texts": (LENGTH, QUOTED, (0.0,)),
    "length, quoted texts, reversed model": (LENGTH, QUOTED, REVERSED),
}
"""Values of a, b and c for each set of features."""
BATCH = 64
INVALID = 1e6
"""Subtracted from the score of text that is not valid Python."""
EMPTY = "None"
"""Code in place of an empty hypothesis, which no tokenizer accepts."""


@dataclass(frozen=True)
class Candidates:
    """The N hypotheses of one sentence.

    Attributes:
        log_p: log p(y | x), [N].
        features: those with the weights a, b and c, [N, 3].
        counts: of BLEU, [N, C].
        exact: 1 for exact matches, [N].
    """

    predictions: list[Prediction]
    log_p: NDArray[np.float64]
    features: NDArray[np.float64]
    counts: NDArray[np.float64]
    exact: NDArray[np.float64]

    def best(self, weights: tuple[float, ...]) -> int:
        """Return the number of the best hypothesis with the weights a, b and c."""
        return int(np.argmax(self.log_p + self.features @ np.array(weights)))

    def most_similar(self) -> int:
        """Return the number of an exact match, or else of the hypothesis with the highest smoothed BLEU."""
        similarity = SMOOTHED_BLEU.value(self.counts)  # 0 for texts of less than four tokens
        return int(np.lexsort((similarity, self.exact))[-1])


Choice = Callable[[Candidates], int]
"""Returns the number of the hypothesis that is chosen."""


def main(runs: str, reversed_runs: str) -> None:
    """Write reranker.csv and print the chosen weights."""
    torch.set_num_threads(1)
    records = collect([Path(runs)]).finished
    directories = [record.directory for record in records]
    (reversed_run,) = collect([Path(reversed_runs)]).finished
    backward = load(reversed_run.directory, trust=["reversed_pairs"])
    networks = [decode(load(directory), backward) for directory in directories]
    ensemble = decode(load(directories), backward)
    choices: dict[str, Choice] = {"most similar to the reference": Candidates.most_similar}
    for name, grid in GRIDS.items():
        weights = max(product(*grid), key=lambda w: fmean(bleu(one["val"], w) for one in networks))
        print(f"{name}: a, b, c = {weights}", file=sys.stderr)
        choices[f"reranked by {name}"] = partial(Candidates.best, weights=weights)
    rows = []
    for name, choice in choices.items():
        variant = f"beam of {SIZE}, {name}"
        for record, splits in zip(records, networks, strict=True):
            rows.append(replace(record, variant=variant, scores=scores(splits, choice)))
        of_ensemble = scores(ensemble, choice)
        rows.append(replace(records[0], variant=f"ensemble of all seeds, {variant}", scores=of_ensemble))
    RESULTS.write_text(format_results(Study("conala_best", rows)))


def decode(model: Model, backward: Model | None = None) -> dict[str, list[Candidates]]:
    """Return the hypotheses of every sentence of the development and the test examples."""
    config = apply_overrides(model.config, ["reranking=none", f"search.beam_size={SIZE}"])
    translator = build.build_translator(config, model.vocabularies)
    decoded = {}
    for split, pairs in build.build_corpus(config).splits.items():
        if split == "train":
            continue
        examples = build.encode_pairs(config, model.vocabularies, pairs)
        predictions: list[list[Prediction]] = []
        for start in range(0, len(pairs), BATCH):
            rows = [*range(start, min(start + BATCH, len(pairs)))]
            with torch.no_grad():
                found = translator(model.network, examples[rows], [pairs[row] for row in rows], nbest=SIZE)
            predictions += found
        decoded[split] = [
            candidates(one, pair, backward, float(config.search.length_penalty))
            for one, pair in zip(predictions, pairs, strict=True)
        ]
    return decoded


def candidates(
    predictions: list[Prediction], pair: Pair, backward: Model | None, length_penalty: float
) -> Candidates:
    """Compute the features of the hypotheses of one pair; those that are not valid Python come last.

    Without the model of intents given code, the last feature is 0.
    """
    lengths = np.array([len(prediction.tokens) for prediction in predictions])
    log_p = np.array([prediction.score for prediction in predictions]) * lengths**length_penalty
    texts = [prediction.hypothesis for prediction in predictions]
    scored = [replace(prediction, references=(pair.reference or "",)) for prediction in predictions]
    of_source = np.zeros(len(texts)) if backward is None else reconstruction(texts, pair, backward)
    quoted = [conala.repeated_quotations(prediction) for prediction in predictions]
    valid = np.array([conala.is_valid_python(text) for text in texts])
    return Candidates(
        predictions,
        np.where(valid, log_p, log_p - INVALID),
        np.array([lengths, quoted, of_source]).T,
        BLEU.count(scored),
        EXACT_MATCH.count(scored)[:, 0],
    )


def reconstruction(texts: Sequence[str], pair: Pair, backward: Model) -> NDArray[np.float64]:
    """Return log p(x | y) of the intent x given each code y, [N]."""
    replaced = pair.postprocess.placeholders if isinstance(pair.postprocess, RestorePlaceholders) else ()
    reversed_pairs = [Pair(replace_in_code(text, replaced) or EMPTY, pair.source) for text in texts]
    examples = build.encode_pairs(backward.config, backward.vocabularies, reversed_pairs)
    log_p: NDArray[np.float64] = score(backward.network, examples[[*range(len(texts))]]).sum(dim=1).numpy()
    return log_p


def bleu(sentences: Sequence[Candidates], weights: tuple[float, ...]) -> float:
    """Return the official BLEU of the best hypothesis of each sentence."""
    return float(BLEU.value(sum(one.counts[one.best(weights)] for one in sentences)))


def scores(splits: dict[str, list[Candidates]], choice: Choice) -> dict[str, float]:
    """Return the metrics of both splits, by the names of `attnlab evaluate`."""
    return {
        f"{split}/{metric.__name__}": float(
            metric(Texts([one.predictions[choice(one)] for one in sentences]))
        )
        for split, sentences in splits.items()
        for metric in (conala.conala_bleu, conala.conala_exact_match, conala.parses)
    }


if __name__ == "__main__":
    main(*sys.argv[1:])
