"""BLEU and chrF as sacreBLEU computes them (Post 2018, arXiv 1804.08771; Popović 2015)."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable
from functools import cache, lru_cache
from itertools import chain, zip_longest
from typing import TYPE_CHECKING

from attnlab.errors import UserError
from attnlab.metrics import sentence_counts
from attnlab.metrics.registry import text_metric
from attnlab.metrics.sentence_counts import SentenceCounts
from attnlab.metrics.texts import WORDS, Texts, UndefinedScoreError

if TYPE_CHECKING:
    from sacrebleu.metrics.base import Metric
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

MIN_BLEU_TOKENS = 4  # Number of tokens of the shortest reference that contains a 4-gram

UNSPACED = (
    *("CJK", "HIRAGANA", "KATAKANA"),
    *("THAI", "LAO", "KHMER", "MYANMAR", "TIBETAN", "JAVANESE", "BALINESE"),
)
"""Scripts without spaces between words, as the Unicode names of their letters begin."""


def bleu_metric(tokenizer: str) -> BLEU:
    """Return sacreBLEU's BLEU with one of its tokenizers."""
    from sacrebleu.metrics.bleu import BLEU

    try:
        return BLEU(tokenize=tokenizer, force=True)  # no warning about tokenised text, which is common here
    except (ImportError, RuntimeError) as error:
        raise UserError(f"bleu.tokenize={tokenizer}: {' '.join(str(error).split())}") from error


def guess_tokenizer(references: Iterable[str]) -> str:
    """Return sacreBLEU's tokenizer for the script of most letters: "zh", "char" for others without spaces.

    "13a", words and punctuation marks, for scripts with spaces. Japanese is not "ja-mecab", which needs
    further packages.
    """
    counts = Counter(character for text in references for character in text)
    scripts: Counter[str] = Counter()
    for character, count in counts.items():
        if character.isalpha():
            scripts[unicodedata.name(character, "").partition(" ")[0]] += count
    unspaced = sum(scripts[script] for script in UNSPACED)
    if 2 * unspaced <= scripts.total():
        return WORDS
    # Chinese has no kana, and a Japanese text has many
    return "zh" if scripts["CJK"] >= 0.9 * unspaced else "char"


@cache
def bleu_counts(tokenizer: str) -> SentenceCounts:
    """Return the counts of `bleu` per sentence."""
    return sentence_counts.bleu_counts(bleu_metric(tokenizer), smooth=True)


def chrf_metric() -> CHRF:
    """Return sacreBLEU's chrF with its default settings."""
    from sacrebleu.metrics.chrf import CHRF

    return CHRF()


def signature(metric: Metric, texts: Texts) -> str:
    """Return sacreBLEU's signature of a metric of these texts."""
    corpus_score(metric, texts)  # sets the number of references
    return str(metric.get_signature())


def corpus_score(metric: Metric, texts: Texts, prepare: Callable[[str], str] = str) -> float:
    """Return the score (0 to 100) of prepared texts, whose numbers of references may differ."""
    references = ([*map(prepare, each)] for each in texts.references)
    streams = [*zip_longest(*references)]  # None where a text has fewer references than another
    score: float = metric.corpus_score([*map(prepare, texts.hypotheses)], streams).score
    return min(score, 100.0)  # sacreBLEU's may be rounded to 100.00000000000004


@text_metric(
    label="BLEU",
    format="points",
    direction="higher",
    signature=lambda texts: signature(bleu_metric(texts.bleu_tokenizer), texts),
    counts=bleu_counts,
    default=True,
    rank=2,
)
def bleu(texts: Texts) -> float:
    """Return corpus BLEU (0 to 100) as sacreBLEU computes it by default, over the tokens of one tokenizer."""
    metric = bleu_metric(texts.bleu_tokenizer)
    check_four_grams(texts, lambda text: metric.tokenizer(text).split())
    return corpus_score(metric, texts)


def check_four_grams(texts: Texts, tokenize: Callable[[str], list[str]]) -> None:
    """Raise `UndefinedScoreError` if no reference has the four tokens of a 4-gram."""
    if all(len(tokenize(text)) < MIN_BLEU_TOKENS for text in chain.from_iterable(texts.references)):
        raise UndefinedScoreError(f"no reference has {MIN_BLEU_TOKENS} tokens, the length of a 4-gram")


@text_metric(
    label="chrF",
    format="points",
    direction="higher",
    signature=lambda texts: signature(chrf_metric(), texts),
    counts=lambda _: sentence_counts.chrf_counts(),
    default=True,
    rank=3,
)
def chrf(texts: Texts) -> float:
    """Return corpus chrF2 (0 to 100) as sacreBLEU computes it by default."""
    if not any(map(str.strip, chain.from_iterable(texts.references))):
        raise UndefinedScoreError("all references are empty")
    return corpus_score(chrf_metric(), texts)


@lru_cache(maxsize=2**16)  # variants often have equal outputs
def similarity(text: str, reference: str) -> float:
    """Return chrF2 (0 to 100) of one text."""
    return 100.0 if text == reference else float(chrf_metric().sentence_score(text, [reference]).score)
