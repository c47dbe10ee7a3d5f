"""Sentences of a page's attention explorer: the outputs of several variants and their attention weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean
from typing import Any

from sacrebleu.metrics.chrf import CHRF

from attnlab.analysis.collect import RunRecord, Study
from attnlab.runs.directory import Run
from attnlab.runs.predictions import Prediction, pack, read_predictions

LARGEST = 12_000_000
"""Maximum number of characters of all sentences together, which keeps a page below 15 MB."""


@dataclass(frozen=True)
class Sentence:
    """A source and the output of each variant that has one."""

    source: str
    reference: str
    outputs: list[Prediction | None]  # in the order of the variants

    @property
    def score(self) -> float | None:
        """Mean score over the outputs that have one."""
        scores = [score_of(output) for output in self.outputs if output is not None]
        known = [score for score in scores if score is not None]
        return fmean(known) if known else None

    @property
    def disagreement(self) -> float | None:
        """Disagreement of the outputs, 0 to 100."""
        return disagreement([output.hypothesis for output in self.outputs if output is not None])


def gather(study: Study) -> tuple[list[tuple[str, int]], list[Sentence]]:
    """Return the (variant, seed) of one run per variant, and the sentences whose weights these runs kept.

    The run is the first, by seed, that kept any. Sentences are matched by index and source, so that a variant
    trained on other data has no output beside the others.
    """
    runs = [(run, outputs) for group in study.by_variant().values() for run, outputs in _first_kept(group)]
    outputs: dict[tuple[int, str], dict[int, Prediction]] = {}
    for column, (_, predictions) in enumerate(runs):
        for prediction in predictions:
            outputs.setdefault((prediction.index, prediction.source), {})[column] = prediction
    sentences = [
        Sentence(source, next(iter(row.values())).reference, [row.get(column) for column in range(len(runs))])
        for (_, source), row in sorted(outputs.items(), key=lambda item: item[0])
    ]
    return [(run.variant, run.seed) for run, _ in runs], sentences


def score_of(prediction: Prediction) -> float | None:
    """Return chrF2 (0 to 100) where there is a reference, else the score of the search."""
    if not prediction.reference:
        return prediction.score
    return chrf(prediction.hypothesis, prediction.reference)


def chrf(hypothesis: str, reference: str) -> float:
    """Return chrF2 of one sentence by sacreBLEU, 0 to 100."""
    return 100.0 if hypothesis == reference else float(CHRF().sentence_score(hypothesis, [reference]).score)


def disagreement(texts: Sequence[str]) -> float | None:
    """Return 100 minus the mean chrF1 (symmetric) over all pairs of texts; None for fewer than two texts."""
    if len(texts) < 2:
        return None
    symmetric = CHRF(beta=1)
    return 100 - fmean(
        100.0 if one == other else float(symmetric.sentence_score(one, [other]).score)
        for one, other in combinations(texts, 2)
    )


def as_plain(variants: Sequence[dict[str, str]], sentences: Sequence[Sentence], score: str) -> dict[str, Any]:
    """Return the data that the explorer reads as JSON; `score` is the label of the scores.

    The source tokens of an output are left out where they equal those of the first output, and the last
    sentences are left out where all would exceed `LARGEST`.
    """
    kept, size = [], 0
    for sentence in sentences:
        first = next((output.source_tokens for output in sentence.outputs if output is not None), [])
        plain = {
            "source": sentence.source,
            "reference": sentence.reference or None,
            "tokens": first,
            "score": _rounded(sentence.score),
            "disagreement": _rounded(sentence.disagreement) if sentence.reference else None,
            "outputs": [None if output is None else _plain(output, first) for output in sentence.outputs],
        }
        size += _characters(plain)
        if size > LARGEST:
            break
        kept.append(plain)
    return {"variants": variants, "score": score, "sentences": kept, "left_out": len(sentences) - len(kept)}


def _first_kept(runs: Sequence[RunRecord]) -> list[tuple[RunRecord, list[Prediction]]]:
    for run in runs:
        predictions = read_predictions(Run(run.directory).attention)
        if predictions:
            return [(run, predictions)]
    return []


def _plain(output: Prediction, source_tokens: list[str]) -> dict[str, Any]:
    plain: dict[str, Any] = {
        "text": output.hypothesis,
        "tokens": output.tokens,
        "weights": pack(output.weights),
        "score": _rounded(score_of(output)),
        "exact": bool(output.reference) and output.hypothesis.split() == output.reference.split(),
    }
    if output.alignment is not None:
        plain["alignment"] = output.alignment
    if output.source_tokens != source_tokens:
        plain["source"] = output.source_tokens
    return plain


def _characters(plain: Any) -> int:
    """Estimate the number of characters of an object as JSON."""
    if isinstance(plain, dict):
        return sum(len(key) + 4 + _characters(value) for key, value in plain.items())
    if isinstance(plain, list):
        return sum(1 + _characters(value) for value in plain)
    return 2 + len(plain.encode(errors="replace")) if isinstance(plain, str) else 6


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 2)
