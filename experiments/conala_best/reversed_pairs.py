"""CoNaLa with sources and targets exchanged, for a model of intents given code.

attnlab train data=conala data._target_=reversed_pairs.load, with this folder in PYTHONPATH.
"""

from collections.abc import Sequence
from typing import Any

from attnlab.data.conala import dataset as conala
from attnlab.data.corpus import Corpus, Pair


def load(**settings: Any) -> Corpus:
    """Load CoNaLa with the settings of `load_conala`, and exchange the two texts of each pair."""
    corpus = conala.load_conala(**settings)
    splits = {name: reverse(pairs) for name, pairs in corpus.splits.items()}
    return Corpus(train=splits["train"], val=splits["val"], files=corpus.files)


def reverse(pairs: Sequence[Pair]) -> list[Pair]:
    """Exchange the source and the target of each pair, with the placeholders that both contain."""
    return [Pair(pair.target, pair.source) for pair in pairs]
