"""Data of the attention explorer: outputs of several variants for the same sentences, and their weights."""

import json
import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from math import isfinite
from statistics import fmean
from typing import Any

from attnlab.errors import UserError
from attnlab.files.predictions import Prediction
from attnlab.files.run_directory import Run
from attnlab.metrics.errors import edits_of
from attnlab.metrics.text.edit_distance import SPLITS
from attnlab.metrics.text.exact_match import has_equal_words
from attnlab.metrics.text.ngrams import similarity
from attnlab.report.collect import load_predictions
from attnlab.report.heat_map import page_data
from attnlab.report.record import RunRecord
from attnlab.report.study import Study

log = logging.getLogger(__name__)

MAX_CHARACTERS = 12_000_000  # Maximum size of all sentences as JSON, which keeps a page below 15 MB


@dataclass(frozen=True)
class Sentence:
    """A source sentence and its outputs side by side."""

    source: str  # source text
    references: tuple[str, ...]  # reference texts; empty if there are none
    # one output for each variant (or rank of hypothesis); None where there is none
    outputs: list[Prediction | None]
    confusions: Collection[str] = ()  # differences of the outputs from the references, such as "b > p"

    @property
    def score(self) -> float | None:
        """Mean score of the outputs that have one."""
        scores = [score for output in self.outputs if output and (score := score_of(output)) is not None]
        return fmean(scores) if scores else None


def gather_sentences(study: Study) -> tuple[list[tuple[str, int]], list[Sentence]]:
    """Return (variant, seed) of one run per variant, and the sentences for which these runs kept weights.

    The run of a variant is the first, by seed, that kept any. Sentences are matched by index and source, so
    that a variant trained on other data is not compared with the others.
    """
    runs = [(run, kept) for group in study.by_variant().values() for run, kept in kept_attention(group)]
    outputs: dict[tuple[int, str], list[Prediction | None]] = {}
    confusions: dict[tuple[int, str], set[str]] = {}
    for column, (run, predictions) in enumerate(runs):
        split = target_split(run)
        whose = ["", f" ({run.variant})"] if len(runs) > 1 else [""]
        for prediction in predictions:
            key = prediction.index, prediction.source
            outputs.setdefault(key, [None] * len(runs))[column] = prediction
            edits = edits_of(prediction, split) if split and prediction.references else ()
            found = (f"{edit}{name}" for edit in edits for name in whose)
            confusions.setdefault(key, set()).update(found)
    references = {key: next(each.references for each in outputs[key] if each) for key in sorted(outputs)}
    sentences = [
        Sentence(key[1], texts, outputs[key], sorted(confusions[key])) for key, texts in references.items()
    ]
    return [(run.variant, run.seed) for run, _ in runs], sentences


def score_of(output: Prediction) -> float | None:
    """Return chrF2 (0 to 100) if there is a reference, else the score of the search."""
    return max((similarity(output.hypothesis, text) for text in output.references), default=output.score)


def explorer_json(
    variants: Sequence[dict[str, str]], sentences: Sequence[Sentence], score: str
) -> dict[str, Any]:
    """Return the JSON data that explorer.js reads; `score` is the label of the scores.

    Source tokens of an output are omitted if they equal those of the first output. The last sentences are
    omitted if all of them would exceed `MAX_CHARACTERS`; `left_out` is their number.
    """
    kept, size = [], 0
    for sentence in sentences:
        source_tokens = next((output.source_tokens for output in sentence.outputs if output), [])
        data = {
            "source": sentence.source,
            "reference": " | ".join(sentence.references) or None,
            "tokens": source_tokens,
            "score": _round(sentence.score),
            "confusions": [*sentence.confusions],
            "outputs": [output and _output_json(output, source_tokens) for output in sentence.outputs],
        }
        size += len(json.dumps(data, ensure_ascii=False).encode(errors="replace"))
        if size > MAX_CHARACTERS:
            break
        kept.append(data)
    return {"variants": variants, "score": score, "sentences": kept, "left_out": len(sentences) - len(kept)}


def target_split(run: RunRecord) -> Callable[[str], list[str]] | None:
    """Return how targets are split into tokens; None if the sources are not words, read as characters."""
    source = run.config.get("tokenizer") or {}
    target = run.config.get("target_tokenizer") or source
    names = [str(each.get("_target_", "")).rpartition(".")[2] for each in (source, target)]
    return None if names[0] != "characters" or target.get("graphemes") else SPLITS.get(names[1])


def kept_attention(runs: Sequence[RunRecord]) -> list[tuple[RunRecord, list[Prediction]]]:
    """Return the first run that kept attention weights, with its sentences, as a list; empty if none did."""
    for run in runs:
        try:
            predictions = load_predictions(Run(run.directory).attention)
        except UserError as error:
            log.warning("the attention explorer omits %s: %s", run.directory, error)
            continue
        if predictions:
            return [(run, predictions)]
    return []


def _output_json(output: Prediction, source_tokens: list[str]) -> dict[str, Any]:
    has_weights = output.weights is not None and output.weights.size
    data: dict[str, Any] = {
        "text": output.hypothesis,
        **(page_data(output) if has_weights else {"tokens": output.tokens, "weights": None}),
        "score": _round(score_of(output)),
        "exact": any(has_equal_words(output.hypothesis, text) for text in output.references),
    }
    return data if output.source_tokens == source_tokens else {**data, "source": output.source_tokens}


def _round(value: float | None) -> float | None:
    return round(value, 2) if value is not None and isfinite(value) else None
