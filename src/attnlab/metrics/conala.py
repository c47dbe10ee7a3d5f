"""The official scoring of CoNaLa: its tokens, its BLEU, and whether an output is Python at all.

The BLEU is the one of the challenge's own script: corpus BLEU-4 with clipped counts and one reference,
without smoothing and with case kept, over the tokens of `tokenize`. sacreBLEU computes the same number once
the tokens are given.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from sacrebleu.metrics.bleu import BLEU

from attnlab.data.tokenization.python_code import parse

SIGNATURE = "BLEU-4|nrefs:1|case:mixed|eff:no|tok:conala|smooth:none"
"""What `bleu` computes, in the manner of a sacreBLEU signature."""


def tokenize(code: str) -> list[str]:
    """Split code as the official script does.

    Every character but letters, digits and `_` stands alone, camelCase is cut at its humps, and both kinds
    of quotes become a backtick.
    """
    code = re.sub(r"([^A-Za-z0-9_])", r" \1 ", code)
    code = re.sub(r"([a-z])([A-Z])", r"\1 \2", code)
    return re.sub("[\"']", "`", code).split()


def bleu(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """Official corpus BLEU-4 of raw code strings, 0 to 100; 0 where some n-gram order has no match."""
    metric = BLEU(tokenize="none", smooth_method="none", force=True)
    return float(metric.corpus_score(_spaced(hypotheses), [_spaced(references)]).score)


def occurrences(tokens: Sequence[str], among: Sequence[str]) -> int:
    """How often a run of tokens occurs in others; 0 for an empty run."""
    size = len(tokens)
    return sum(among[i : i + size] == tokens for i in range(len(among) - size + 1)) if size else 0


def parses(code: str) -> bool:
    """Tell whether Python reads the code as at least one statement; an empty output does not count."""
    tree = parse(code)
    return tree is not None and bool(tree.body)


def _spaced(texts: Sequence[str]) -> list[str]:
    return [" ".join(tokenize(text)) for text in texts]
