"""Cache of encoded pairs on disk, so that runs on the same corpus tokenize it only once.

An entry is a folder that is named by a hash of everything that the encoding depends on: texts, vocabularies
and settings. Entries therefore never become outdated. Their arrays are memory-mapped, and the processes of
one machine share the memory.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from attnlab.data.corpus import Pair
from attnlab.data.examples import Examples, Sequences, encode
from attnlab.data.tokenization.vocabularies import Vocabularies
from attnlab.files.writing import open_atomically, remove_abandoned, write_json

log = logging.getLogger(__name__)

FORMAT_VERSION = 3
"""Version of the entries. Increase it when `encode`, the Python tokenizer or the stored arrays change."""
CHECKSUMS = "checksums.json"
"""File with the checksum of each array; written last, so that an entry without it is incomplete."""


def encode_cached(
    folder: Path, pairs: Sequence[Pair], vocabularies: Vocabularies, **settings: Any
) -> Examples:
    """Return `encode(pairs, vocabularies, **settings)`, from the cache if possible.

    Several processes may write the same entry at the same time: each file is replaced atomically by an equal
    one. A damaged entry is written again. If the folder is not writable, the pairs are encoded without
    caching.

    Args:
        folder: folder of the cache.
        pairs: N pairs.
        vocabularies: tokenizers of both sides.
        settings: keyword arguments of `encode`.

    Raises:
        UserError: in the same cases as `encode`.
    """
    entry = folder / _entry_name(pairs, vocabularies, settings)
    with suppress(OSError):
        remove_abandoned(entry)
    if (entry / CHECKSUMS).exists():
        try:
            return _read(entry)
        except (OSError, ValueError, KeyError) as error:
            log.warning("%s is damaged and will be written again: %s", entry, error)
    examples = encode(pairs, vocabularies, **settings)
    try:
        _write(examples, entry)
        return _read(entry)
    except OSError as error:
        log.warning("encoded pairs are not cached in %s: %s", folder, error)
        return examples


def _entry_name(pairs: Sequence[Pair], vocabularies: Vocabularies, settings: dict[str, Any]) -> str:
    """Return a hash of everything that the encoding depends on."""
    digest = hashlib.sha256()
    for part in (FORMAT_VERSION, settings, [tokenizer.to_json() for tokenizer in vocabularies]):
        digest.update(json.dumps(part, sort_keys=True).encode() + b"\n")
    for pair in pairs:
        digest.update(json.dumps((pair.source, pair.target, pair.alignment)).encode() + b"\n")
    return digest.hexdigest()[:32]


def _write(examples: Examples, entry: Path) -> None:
    """Write the arrays, then their checksums."""
    for name, sequences in examples.sequences.items():
        for part in ("tokens", "offsets"):
            with open_atomically(entry / f"{name}-{part}.npy") as file:
                np.save(file, getattr(sequences, part))
    write_json(entry / CHECKSUMS, {path.name: _checksum(path) for path in sorted(entry.glob("*.npy"))})


def _read(entry: Path) -> Examples:
    """Map the arrays of an entry into memory.

    Raises:
        ValueError: if the checksum of an array is wrong.
    """
    checksums = json.loads((entry / CHECKSUMS).read_text())
    for name, checksum in checksums.items():
        if _checksum(entry / name) != checksum:
            raise ValueError(f"{name} has a wrong checksum")

    def load(name: str) -> Any:
        return np.load(entry / f"{name}.npy", mmap_mode="r")

    names = sorted({name.split("-")[0] for name in checksums})
    return Examples(**{name: Sequences(load(f"{name}-tokens"), load(f"{name}-offsets")) for name in names})


def _checksum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "blake2b").hexdigest()
