"""The sentences of a page's attention explorer: outputs side by side, and what each looked at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean
from typing import Any

from sacrebleu.metrics.chrf import CHRF

from attnlab.analysis.collect import RunRecord, Study
from attnlab.runs import attention_records
from attnlab.runs.directory import Run

LARGEST = 12_000_000
"""Characters that all sentences together may take of a page, which then stays under 15 MB."""


@dataclass(frozen=True)
class Output:
    """What one variant made of a sentence."""

    text: str
    tokens: list[str]  # T, "<eos>" the last
    source: list[str]  # S tokens, as this variant's tokenizer cut them
    weights: str | None  # [T, S], packed by `attnlab.runs.attention_records`; None without weights
    score: float | None = None  # to sort by: chrF, 0 to 100, or a search's score
    exact: bool = False  # it is the reference
    alignment: list[list[int]] | None = None  # [row, column] of each gold link; None where there is no gold


@dataclass(frozen=True)
class Sentence:
    """A source, and an output of each variant that has one."""

    source: str
    reference: str | None
    outputs: list[Output | None]  # in the order of the variants
    disagreement: float | None = None  # 0 to 100

    @property
    def score(self) -> float | None:
        """The mean over the outputs that have one."""
        scores = [output.score for output in self.outputs if output is not None and output.score is not None]
        return fmean(scores) if scores else None


def gather(study: Study) -> tuple[list[tuple[str, int]], list[Sentence]]:
    """The (variant, seed) of one run a variant, and the sentences whose weights these runs kept.

    The run is the first by seed that kept any. Sentences are matched by their place in the split and their
    source, so that a variant trained on other data has no output beside the others.
    """
    runs = [(run, looks) for group in study.by_variant().values() for run, looks in _first_kept(group)]
    sources: dict[tuple[int, str], str] = {}
    outputs: dict[tuple[int, str], dict[int, Output]] = {}
    for column, (run, looks) in enumerate(runs):
        predictions = {prediction.index: prediction for prediction in run.predictions}
        for look in looks:
            found = predictions.get(look.index)
            if found is None:
                continue
            key = look.index, found.source
            sources.setdefault(key, found.reference)
            outputs.setdefault(key, {})[column] = Output(
                found.hypothesis,
                look.output,
                look.source,
                look.weights,
                chrf(found.hypothesis, found.reference),
                found.hypothesis.split() == found.reference.split(),
                look.alignment,
            )
    sentences = []
    for (index, source), reference in sorted(sources.items()):
        row = [outputs[index, source].get(column) for column in range(len(runs))]
        texts = [output.text for output in row if output is not None]
        sentences.append(Sentence(source, reference, row, disagreement(texts)))
    return [(run.variant, run.seed) for run, _ in runs], sentences


def chrf(hypothesis: str, reference: str) -> float:
    """chrF2 of one sentence by sacreBLEU, 0 to 100."""
    return 100.0 if hypothesis == reference else float(CHRF().sentence_score(hypothesis, [reference]).score)


def disagreement(texts: Sequence[str]) -> float | None:
    """100 less the mean chrF1, which favours neither side, between any two texts; None of fewer than two."""
    if len(texts) < 2:
        return None
    symmetric = CHRF(beta=1)
    return 100 - fmean(
        100.0 if one == other else float(symmetric.sentence_score(one, [other]).score)
        for one, other in combinations(texts, 2)
    )


def as_plain(variants: Sequence[dict[str, str]], sentences: Sequence[Sentence], score: str) -> dict[str, Any]:
    """What the explorer reads as JSON, `score` being what to call scores.

    An output's source tokens are left out where they are the first's, and the last sentences where all would
    be more than `LARGEST`.
    """
    kept, size = [], 0
    for sentence in sentences:
        first = next((output.source for output in sentence.outputs if output is not None), [])
        plain = {
            "source": sentence.source,
            "reference": sentence.reference,
            "tokens": first,
            "score": _rounded(sentence.score),
            "disagreement": _rounded(sentence.disagreement),
            "outputs": [None if output is None else _plain(output, first) for output in sentence.outputs],
        }
        size += _characters(plain)
        if size > LARGEST:
            break
        kept.append(plain)
    return {"variants": variants, "score": score, "sentences": kept, "left_out": len(sentences) - len(kept)}


def _first_kept(runs: Sequence[RunRecord]) -> list[tuple[RunRecord, list[attention_records.Attended]]]:
    for run in runs:
        looks = attention_records.read(Run(run.directory).attention)
        if looks:
            return [(run, looks)]
    return []


def _plain(output: Output, source: list[str]) -> dict[str, Any]:
    plain: dict[str, Any] = {
        "text": output.text,
        "tokens": output.tokens,
        "weights": output.weights,
        "score": _rounded(output.score),
        "exact": output.exact,
    }
    if output.alignment is not None:
        plain["alignment"] = output.alignment
    if output.source != source:
        plain["source"] = output.source
    return plain


def _characters(plain: Any) -> int:
    """About how many characters of JSON this takes."""
    if isinstance(plain, dict):
        return sum(len(key) + 4 + _characters(value) for key, value in plain.items())
    if isinstance(plain, list):
        return sum(1 + _characters(value) for value in plain)
    return 2 + len(plain.encode(errors="replace")) if isinstance(plain, str) else 6


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 2)
