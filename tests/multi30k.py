"""A small corpus in the layout of Multi30k: three splits and two test sets, each of two aligned files."""

import gzip
import random
from pathlib import Path

NOUNS = {"Ein Mann": "A man", "Eine Frau": "A woman", "Ein Kind": "A child", "Ein Hund": "A dog"}
VERBS = {"sitzt": "sits", "steht": "stands", "schläft": "sleeps", "wartet": "waits", "lächelt": "smiles"}
PLACES = {
    "auf einer Bank": "on a bench",
    "im Schnee": "in the snow",
    "am Strand": "at the beach",
    "vor einem Haus": "in front of a house",
}
WITH = {"": "", ", mit einem Ball": ", with a ball", " und einem Vogel": " and a bird"}
SIZES = {"train": 160, "val": 20, "test_2016_flickr": 12, "test_2017_mscoco": 8}
"""Sentences of each split; no sentence occurs in two splits."""

SPLITS = (
    "data=pairs",
    "data.languages=[de,en]",
    "data.train=train",
    "data.val=val",
    "data.test={flickr2016:test_2016_flickr,mscoco:test_2017_mscoco}",
)
"""Settings that train on the corpus from within its folder."""


def sentences() -> list[tuple[str, str]]:
    """Return every German sentence with its translation, in a fixed random order."""
    pairs = [
        (f"{noun} {verb} {place}{more}.", f"{NOUNS[noun]} {VERBS[verb]} {PLACES[place]}{WITH[more]}.")
        for noun in NOUNS
        for verb in VERBS
        for place in PLACES
        for more in WITH
    ]
    random.Random(0).shuffle(pairs)
    return pairs


def write_corpus(folder: Path, *, compressed: tuple[str, ...] = ()) -> dict[str, list[tuple[str, str]]]:
    """Write `train.de`, `train.en` and so on; those of the `compressed` splits as `.gz`."""
    pairs = iter(sentences())
    corpus = {split: [next(pairs) for _ in range(size)] for split, size in SIZES.items()}
    for split, chosen in corpus.items():
        for side, language in enumerate(("de", "en")):
            content = "".join(f"{pair[side]}\n" for pair in chosen).encode()
            if split in compressed:
                (folder / f"{split}.{language}.gz").write_bytes(gzip.compress(content))
            else:
                (folder / f"{split}.{language}").write_bytes(content)
    return corpus
