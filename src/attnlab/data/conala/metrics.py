"""Metrics of the CoNaLa benchmark (Yin et al. 2018, arXiv 1805.08949): official tokens, BLEU, valid Python.

BLEU is that of the challenge's own script: corpus BLEU-4 with clipped counts, without smoothing
and case-sensitive, over the tokens of `tokenize`. sacreBLEU returns the same number for these tokens.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

from attnlab.data.conala.python_code import parse
from attnlab.files.predictions import Prediction
from attnlab.metrics import sentence_counts
from attnlab.metrics.registry import text_metric
from attnlab.metrics.sentence_counts import SentenceCounts, ratio_counts, share_counts
from attnlab.metrics.text import ngrams
from attnlab.metrics.texts import Texts, UndefinedScoreError, references_of

if TYPE_CHECKING:
    from sacrebleu.metrics.bleu import BLEU


@cache
def bleu_counts(_: str = "") -> SentenceCounts:
    """Return the counts of `conala_bleu` per sentence."""
    return sentence_counts.bleu_counts(bleu_metric(), smooth=False, prepare=spaced)


def signature(texts: Texts) -> str:
    """Return the settings of `conala_bleu` in the format of a sacreBLEU signature."""
    return f"BLEU-4|{ngrams.signature(bleu_metric(), texts).replace('tok:none', 'tok:conala')}"


@text_metric(
    label="CoNaLa BLEU", format="points", direction="higher", signature=signature, counts=bleu_counts, rank=1
)
def conala_bleu(texts: Texts) -> float:
    """Return BLEU-4 (0 to 100) of CoNaLa's official script; 0 if there is no match of some n-gram order."""
    ngrams.check_four_grams(texts, tokenize)
    return ngrams.corpus_score(bleu_metric(), texts, spaced)


@text_metric(
    label="CoNaLa exact match",
    format="share",
    direction="higher",
    counts=lambda _: share_counts(has_equal_tokens),
)
def conala_exact_match(texts: Texts) -> float:
    """Return the share (0 to 1) of hypotheses whose official tokens equal those of the reference."""
    return texts.share(has_equal_tokens)


@text_metric(
    label="parses",
    format="share",
    direction="higher",
    counts=lambda _: share_counts(lambda hypothesis, _: is_valid_python(hypothesis)),
)
def parses(texts: Texts) -> float:
    """Return the share (0 to 1) of hypotheses that are valid Python."""
    return texts.share(lambda hypothesis, _: is_valid_python(hypothesis))


@text_metric(
    label="slot accuracy", format="share", direction="higher", counts=lambda _: ratio_counts(repeated_slots)
)
def slot_accuracy(texts: Texts) -> float:
    """Return the share (0 to 1) of quoted texts that the hypotheses repeat, of those the references repeat.

    In official tokens and at any position, a text that occurs r times in a reference and h times in its
    hypothesis counts as min(r, h) correct of r: models with and without placeholders are comparable.
    """
    correct, total = map(sum, zip(*map(repeated_slots, texts.predictions), strict=True))
    if total == 0:
        raise UndefinedScoreError("no reference repeats a quoted text")
    return correct / total


def repeated_slots(prediction: Prediction) -> tuple[int, int]:
    """Count the quoted texts that hypothesis and reference repeat, and those that the reference repeats."""
    hypothesis = tokenize(prediction.hypothesis)
    quoted = [*map(tokenize, prediction.annotations.get("quoted", ()))]
    counted = []
    for reference in map(tokenize, references_of(prediction)):
        expected = [occurrences(tokens, reference) for tokens in quoted]
        correct = sum(map(min, expected, (occurrences(tokens, hypothesis) for tokens in quoted)))
        counted.append((correct, sum(expected)))
    return min(counted, key=lambda counts: (counts[1] - counts[0], -counts[1]))


def repeated_quotations(prediction: Prediction) -> int:
    """Count the texts quoted in the intent that the hypothesis repeats, in tokens of the official script."""
    hypothesis = tokenize(prediction.hypothesis)
    quoted = prediction.annotations.get("quoted", ())
    return sum(occurrences(tokenize(text), hypothesis) > 0 for text in quoted)


def has_equal_tokens(hypothesis: str, reference: str) -> bool:
    """Return whether the official tokens of two texts are equal."""
    return tokenize(hypothesis) == tokenize(reference)


def tokenize(code: str) -> list[str]:
    """Split code into tokens as the official script does.

    Every character except letters, digits and `_` is a single token, camelCase is split at the capital
    letters, and both kinds of quotation marks become a backtick.
    """
    code = re.sub(r"([^A-Za-z0-9_])", r" \1 ", code)
    code = re.sub(r"([a-z])([A-Z])", r"\1 \2", code)
    return re.sub("[\"']", "`", code).split()


def spaced(code: str) -> str:
    """Return the official tokens of the code, separated by single spaces."""
    return " ".join(tokenize(code))


def bleu_metric() -> BLEU:
    """Return sacreBLEU's BLEU with the settings of the official script, for `spaced` texts."""
    from sacrebleu.metrics.bleu import BLEU

    return BLEU(tokenize="none", smooth_method="none", force=True)


def occurrences(tokens: Sequence[str], text: Sequence[str]) -> int:
    """Count how often a sequence of tokens occurs in a longer one; 0 for an empty sequence."""
    size = len(tokens)
    return sum(text[i : i + size] == tokens for i in range(len(text) - size + 1)) if size else 0


def is_valid_python(code: str) -> bool:
    """Return whether the code parses as at least one Python statement; empty text is not valid."""
    return bool(getattr(parse(code), "body", None))
