"""Encoded pairs kept on disk, so that a corpus is tokenised once and not by every run that reads it.

An entry is a folder named after a digest of all that encoding depends on: the texts, the vocabularies and the
settings. So an entry is never out of date, and what is read from it is what encoding would give. Its arrays
are mapped into memory, which the processes of a machine share.
"""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from attnlab.data.batching import Examples, Sequences, encode
from attnlab.data.corpus import Pair
from attnlab.data.tokenization.vocabularies import Vocabularies

log = logging.getLogger(__name__)

FORMAT_VERSION = 3
"""Format version of an entry: increase it when `encode`, the Python tokenizer or the stored arrays change."""
DIGESTS = "digests.json"


def encode_once(folder: Path, pairs: Sequence[Pair], vocabularies: Vocabularies, **settings: Any) -> Examples:
    """What `encode(pairs, vocabularies, **settings)` gives, from its entry in the folder, made if need be.

    Any number of processes may ask at once: an entry is written elsewhere and appears whole. One that is
    damaged is made again, and where nothing can be written the pairs are encoded and not kept.
    """
    entry = folder / _key(pairs, vocabularies, settings)
    if entry.exists():
        try:
            return _read(entry)
        except (OSError, ValueError, KeyError) as error:
            log.warning("%s is damaged and made again: %s", entry, error)
            shutil.rmtree(entry, ignore_errors=True)
    examples = encode(pairs, vocabularies, **settings)
    try:
        _write(examples, entry)
        return _read(entry)
    except OSError as error:
        log.warning("going on without %s: %s", folder, error)
        return examples


def _key(pairs: Sequence[Pair], vocabularies: Vocabularies, settings: dict[str, Any]) -> str:
    digest = hashlib.sha256()
    for part in (FORMAT_VERSION, settings, [tokenizer.to_json() for tokenizer in vocabularies]):
        digest.update(json.dumps(part, sort_keys=True).encode() + b"\n")
    for pair in pairs:
        digest.update(json.dumps((pair.source, pair.target, pair.alignment)).encode() + b"\n")
    return digest.hexdigest()[:32]


def _write(examples: Examples, entry: Path) -> None:
    """Put an entry in its place, unless another process was first."""
    entry.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".making-", dir=entry.parent) as name:
        made = Path(name) / entry.name
        made.mkdir()
        for side, sequences in examples.sides.items():
            np.save(made / f"{side}-tokens.npy", sequences.tokens)
            np.save(made / f"{side}-offsets.npy", sequences.offsets)
        digests = {path.name: _digest(path) for path in sorted(made.iterdir())}
        (made / DIGESTS).write_text(json.dumps(digests))
        try:
            made.rename(entry)
        except OSError:
            if not entry.exists():
                raise


def _read(entry: Path) -> Examples:
    """An entry's arrays, mapped. Raises ValueError where a file is not what was written."""
    digests = json.loads((entry / DIGESTS).read_text())
    for name, digest in digests.items():
        if _digest(entry / name) != digest:
            raise ValueError(f"{name} is not what was written")

    def load(name: str) -> Any:
        return np.load(entry / f"{name}.npy", mmap_mode="r")

    sides = sorted({name.split("-")[0] for name in digests})
    return Examples(**{side: Sequences(load(f"{side}-tokens"), load(f"{side}-offsets")) for side in sides})


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "blake2b").hexdigest()
