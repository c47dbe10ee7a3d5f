"""BLEU as sacreBLEU computes it (Post 2018, arXiv 1804.08771)."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from attnlab.metrics.registry import text_metric
from attnlab.metrics.texts import Texts, UndefinedScoreError

if TYPE_CHECKING:
    from sacrebleu.metrics.bleu import BLEU

    from attnlab.metrics.sentence_counts import SentenceCounts

MIN_BLEU_TOKENS = 4
"""Number of tokens of the shortest reference that contains a 4-gram."""


def bleu_metric(tokenizer: str) -> BLEU:
    """Return sacreBLEU's BLEU with one of its tokenizers."""
    from sacrebleu.metrics.bleu import BLEU

    return BLEU(tokenize=tokenizer, force=True)  # no warning about tokenised text, which is common here


@cache
def counts(tokenizer: str) -> SentenceCounts:
    """Return the counts of `bleu` per sentence."""
    from attnlab.metrics.sentence_counts import bleu_counts

    return bleu_counts(bleu_metric(tokenizer), smooth=True)


def signature(tokenizer: str) -> str:
    """Return sacreBLEU's signature of `bleu`."""
    metric = bleu_metric(tokenizer)
    metric.corpus_score([""], [[""]])  # sacreBLEU sets the number of references when it scores
    return str(metric.get_signature())


@text_metric(
    label="BLEU",
    format="points",
    direction="higher",
    signature=signature,
    counts=counts,
    default=True,
    rank=2,
)
def bleu(texts: Texts) -> float:
    """Return corpus BLEU (0 to 100) as sacreBLEU computes it by default."""
    score = bleu_metric(texts.bleu_tokenizer).corpus_score(texts.hypotheses, [texts.references])
    check_four_grams(counts(texts.bleu_tokenizer), texts)
    return float(score.score)


def check_four_grams(counts: SentenceCounts, texts: Texts) -> None:
    """Raise `UndefinedScoreError` if no reference has the four tokens of a 4-gram."""
    if counts.count(texts.hypotheses, texts.references)[:, 1].max() < MIN_BLEU_TOKENS:
        raise UndefinedScoreError(f"no reference has {MIN_BLEU_TOKENS} tokens, the length of a 4-gram")
