"""Morphological features of a source, such as `V;IND;PST` or `N;ABL(PL;PSS(2,PL))`.

They follow the source text as symbols of their own: `deve` with `N;ACC` is `deve ⟨N⟩ ⟨ACC⟩`.
"""

from __future__ import annotations

import re
from itertools import accumulate
from typing import TYPE_CHECKING

from attnlab.data.corpus import Pair
from attnlab.errors import UserError
from attnlab.files.predictions import FEATURE
from attnlab.types import UNK

if TYPE_CHECKING:
    from attnlab.data.tokenization.tokenizer import Tokenizer

FEATURE_TOKEN = re.compile(FEATURE.replace(" ", " ?", 1))
"""Pattern of the token of a feature, with or without the space, as the tokenizer splits it."""


def split_features(features: str) -> list[str]:
    """Split features at `;`, `,` and brackets; a bracket is a feature of its own, so that nesting is kept."""
    split = re.findall(r"[()]|[^;,()]+", "".join(features.split()))
    depths = [0, *accumulate((feature == "(") - (feature == ")") for feature in split)]
    if min(depths) < 0 or depths[-1] != 0:
        raise UserError(f"the features {features!r} have a bracket without a counterpart")
    return split


def with_features(source: str, features: str) -> str:
    """Return the source followed by its features."""
    return " ".join([source, *(f"⟨{feature}⟩" for feature in split_features(features))])


def pair_with_features(source: str, target: str = "") -> Pair:
    """Return the pair of `TEXT<TAB>FEATURES`: a `Preparation`."""
    text, tab, features = source.partition("\t")
    if not tab:
        raise UserError(f"{source!r} has no features: give TEXT<TAB>FEATURES; the features may be empty")
    if "\t" in features.strip("\t"):
        raise UserError(f"{source!r} has {source.count(tab) + 1} columns: give TEXT<TAB>FEATURES")
    if not text.strip():
        raise UserError("there is no text before the tab: give TEXT<TAB>FEATURES")
    return Pair(with_features(text, features), target)


def is_feature(token: str) -> bool:
    """Return whether a token, with or without a space before it, is a feature."""
    return FEATURE_TOKEN.fullmatch(token) is not None


def feature_ids(tokenizer: Tokenizer) -> list[int]:
    """Return the ids of the tokens of a vocabulary that are features."""
    ids = range(UNK, tokenizer.size)
    return [id for id, token in zip(ids, tokenizer.tokens(ids), strict=True) if is_feature(token)]
