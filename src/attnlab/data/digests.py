"""Digests of the data that a run was trained on: of its files, its splits and its vocabularies."""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from json.encoder import encode_basestring_ascii
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnlab.data.corpus import Corpus, Pair
from attnlab.data.mapped import SIDES, Store, are_plain, computed, hash_texts, text_blocks
from attnlab.data.tokenization.tokenizer import Tokenizer
from attnlab.data.tokenization.vocabularies import Vocabularies
from attnlab.errors import UserError
from attnlab.files.digests import changed_files, file_digest

Record = Mapping[str, Any]  # Plain values of `describe`, stored in checkpoints and in result.json

SPLIT_NAMES = {"train": "training", "val": "validation"}


def describe(corpus: Corpus, vocabularies: Vocabularies) -> dict[str, Any]:
    """Return the SHA-256 of each file, each split and each vocabulary, and the sizes of the splits."""
    return {
        "files": {str(path): file_digest(path) for path in corpus.files},
        "splits": {
            name: {"pairs": len(pairs), "sha256": pairs_digest(pairs)}
            for name, pairs in corpus.splits.items()
        },
        "vocabularies": {
            side: {"size": tokenizer.size, "sha256": hashlib.sha256(tokenizer.to_json().encode()).hexdigest()}
            for side, tokenizer in vocabularies._asdict().items()
        },
    }


def check_unchanged(recorded: Record, current: Record, splits: Iterable[str], *, fix: str) -> None:
    """Raise `UserError` if some splits, or the vocabularies of the training split, are not those of a run."""
    changed = [name for name in splits if recorded["splits"].get(name) != current["splits"].get(name)]
    if changed:
        names = " and ".join(SPLIT_NAMES.get(name, name) for name in changed)
        files = [path for path, digest in current["files"].items() if recorded["files"].get(path) != digest]
        subject = " and ".join(files) or "the dataset, or the version of attnlab,"
        raise UserError(
            f"{subject} changed since this run was started: the {names} data is different. Restore the "
            f"original data, or {fix}"
        )
    if "train" in splits and recorded["vocabularies"] != current["vocabularies"]:
        raise UserError(
            "the vocabularies differ from those that this run was started with, although the data is the "
            f"same. Use the versions of the packages in result.json, or {fix}"
        )


def check_files(recorded: Record, *, fix: str) -> None:
    """Raise `UserError` if a file of a run changed: `check_unchanged` for other data settings."""
    changed = changed_files(recorded)
    if changed:
        raise UserError(
            f"{' and '.join(changed)} changed since this run was started. Restore the original data, or {fix}"
        )


def source_hashes(pairs: Sequence[Pair], tokenizer: Tokenizer) -> NDArray[np.int64]:
    """Return the sorted 64-bit hashes of the distinct sources, to count sources seen in training later."""

    def compute(store: Store) -> None:
        hashes = _source_hashes(pairs, tokenizer)
        hashes.sort()  # in place: `np.unique` needs more memory
        store.append("sources", hashes[np.append(True, hashes[1:] != hashes[:-1])])

    store = computed(pairs, {"sources": tokenizer.digest}, compute, noun="the hashes of the training sources")
    return store.array("sources", writable=True)


def are_seen(pairs: Sequence[Pair], hashes: NDArray[np.int64], tokenizer: Tokenizer) -> NDArray[np.bool_]:
    """Return which pairs have a source that is among those of `source_hashes`, [N]."""
    ours = _source_hashes(pairs, tokenizer)
    places = np.searchsorted(hashes, ours)
    seen: NDArray[np.bool_] = hashes[np.minimum(places, len(hashes) - 1)] == ours
    return seen


def count_duplicates(pairs: Sequence[Pair]) -> int:
    """Count the pairs whose source and target are those of an earlier pair."""

    def compute(store: Store) -> None:
        sides = (chain.from_iterable(text_blocks(pairs, side)) for side in SIDES)
        hashes = hash_texts(map("\0".join, zip(*sides, strict=True)), len(pairs))
        hashes.sort()
        store.append("duplicates", np.array([(hashes[1:] == hashes[:-1]).sum()]))

    store = computed(pairs, {"duplicates": ""}, compute, noun="the number of repeated pairs")
    return int(store.array("duplicates")[0])


def _source_hashes(pairs: Sequence[Pair], tokenizer: Tokenizer) -> NDArray[np.int64]:
    sources = chain.from_iterable(text_blocks(pairs, "source"))
    return hash_texts(map(tokenizer.normalise, sources), len(pairs))


def pairs_digest(pairs: Sequence[Pair]) -> str:
    """Return the digest of everything in the pairs except their post-processing and their origin."""

    def compute(store: Store) -> None:
        digest = hashlib.sha256()
        is_plain = are_plain(pairs)
        if is_plain:  # the same lines, in a quarter of the time
            for sides in zip(*(text_blocks(pairs, side) for side in SIDES), strict=True):
                quoted = zip(*(map(encode_basestring_ascii, texts) for texts in sides), strict=True)
                lines = (f"[{source}, {target}, null, null, null]\n" for source, target in quoted)
                digest.update("".join(lines).encode())
        encode = json.JSONEncoder(default=str).encode
        for pair in () if is_plain else pairs:
            texts = (pair.source, pair.target, pair.alignment, pair.reference, pair.annotations)
            digest.update(encode(texts).encode() + b"\n")
        store.append("sha256", np.frombuffer(digest.digest(), np.uint8))

    store = computed(pairs, {"digest": ""}, compute, noun="the digest of the pairs")
    return store.array("sha256").tobytes().hex()
