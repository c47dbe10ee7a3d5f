"""Corpora, tokenizers, encoded examples and the LightningDataModule.

A dataset is a function that returns a `Corpus`, and an option file in `conf/data/` that names the function.
"""

from attnlab.data.corpus import Alignment, Corpus, Origin, Pair, Preparation
from attnlab.data.splitting import split

__all__ = ["Alignment", "Corpus", "Origin", "Pair", "Preparation", "split"]
