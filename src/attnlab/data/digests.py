"""Digests of the data that a run was trained on: of its files, its splits and its vocabularies."""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnlab.data.corpus import Corpus, Pair
from attnlab.data.mapped import BLOCK, MappedPairs, batched
from attnlab.data.tokenization.tokenizer import Tokenizer
from attnlab.data.tokenization.vocabularies import Vocabularies
from attnlab.errors import UserError
from attnlab.files.digests import changed_files, file_digest

Record = Mapping[str, Any]
"""Plain values of `describe`, stored in checkpoints and in result.json."""

SPLIT_NAMES = {"train": "training", "val": "validation"}


def describe(corpus: Corpus, vocabularies: Vocabularies) -> dict[str, Any]:
    """Return the SHA-256 of each file, each split and each vocabulary, and the sizes of the splits."""
    return {
        "files": {str(path): file_digest(path) for path in corpus.files},
        "splits": {
            name: {"pairs": len(pairs), "sha256": _pairs_digest(pairs)}
            for name, pairs in corpus.splits.items()
        },
        "vocabularies": {
            side: {"size": tokenizer.size, "sha256": _text_digest(tokenizer.to_json())}
            for side, tokenizer in vocabularies._asdict().items()
        },
    }


def check_unchanged(recorded: Record, current: Record, splits: Iterable[str], *, fix: str) -> None:
    """Raise `UserError` if some splits, or the vocabularies of the training split, are not those of a run.

    The records are results of `describe`. `fix` is what a user can do other than restoring the data.
    """
    changed = [name for name in splits if recorded["splits"].get(name) != current["splits"].get(name)]
    if changed:
        names = " and ".join(SPLIT_NAMES.get(name, name) for name in changed)
        files = [
            path
            for path, digest in current["files"].items()
            if recorded["files"].get(path, digest) != digest or path not in recorded["files"]
        ]
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
    """Return the sorted 64-bit hashes of the distinct sources, to count sources seen in training later.

    Sources are compared as the source tokenizer normalises them. Those of mapped pairs are a mapped file.
    """
    if not isinstance(pairs, MappedPairs):
        return np.unique(_hashes(pairs, lambda pair: tokenizer.normalise(pair.source)))

    def write(folder: Path) -> dict[str, Any]:
        hashes = _hashes(pairs, lambda pair: tokenizer.normalise(pair.source))
        hashes.sort()
        hashes[np.append(True, hashes[1:] != hashes[:-1])].tofile(folder / "sources")
        return {}

    key = {"sources": tokenizer.to_json()}
    cached = pairs.cached(key, write, noun="the hashes of the training sources")
    return np.memmap(cached.folder / "sources", np.int64, mode="c")


def are_seen(pairs: Sequence[Pair], hashes: NDArray[np.int64], tokenizer: Tokenizer) -> NDArray[np.bool_]:
    """Return which pairs have a source that is among those of `source_hashes`, [N]."""
    ours = _hashes(pairs, lambda pair: tokenizer.normalise(pair.source))
    places = np.searchsorted(hashes, ours)
    seen: NDArray[np.bool_] = hashes[np.minimum(places, len(hashes) - 1)] == ours
    return seen


def count_duplicates(pairs: Sequence[Pair]) -> int:
    """Count the pairs whose source and target are those of an earlier pair."""
    return len(pairs) - len(np.unique(_hashes(pairs, lambda pair: f"{pair.source}\0{pair.target}")))


def _hashes(pairs: Sequence[Pair], text: Callable[[Pair], str]) -> NDArray[np.int64]:
    """Return the 64-bit hash of a text of each pair, [N]."""
    hashes = np.empty(len(pairs), np.int64)
    for start, block in zip(range(0, len(pairs), BLOCK), batched(pairs, BLOCK), strict=True):
        texts = (text(pair).encode() for pair in block)
        digests = b"".join(hashlib.blake2b(each, digest_size=8).digest() for each in texts)
        hashes[start : start + len(block)] = np.frombuffer(digests, np.int64)
    return hashes


def _pairs_digest(pairs: Sequence[Pair]) -> str:
    """Return the digest of everything in the pairs except their post-processing and their origin."""
    if not isinstance(pairs, MappedPairs):
        return _hash_pairs(pairs)
    cached = pairs.cached(
        {"digest": ""}, lambda _: {"sha256": _hash_pairs(pairs)}, noun="the digest of the pairs"
    )
    return str(cached.values["sha256"])


def _hash_pairs(pairs: Sequence[Pair]) -> str:
    digest = hashlib.sha256()
    encode = json.JSONEncoder(default=str).encode
    for pair in pairs:
        texts = (pair.source, pair.target, pair.alignment, pair.reference, pair.annotations)
        digest.update(encode(texts).encode() + b"\n")
    return digest.hexdigest()


def _text_digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
