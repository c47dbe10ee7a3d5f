"""What outputs looked at, as it is kept in a file: a JSON line a sentence, a byte a weight.

T tokens of an output, "<eos>" the last · S tokens of its source
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attnlab.runs.files import write_atomically

STEPS = 255
"""A weight is kept as the nearest of so many equal steps from 0 to 1."""


class Attended(NamedTuple):
    """One output, and where each of its tokens looked."""

    index: int  # type: ignore[assignment]  # its place in the split; hides tuple.index, which a record can spare
    source: list[str]  # S tokens
    output: list[str]  # T tokens
    weights: str | None  # [T, S], packed; None of a mechanism without weights
    alignment: list[list[int]] | None = None  # [row, column] of each gold link; None where there is no gold


def pack(weights: ArrayLike) -> str | None:
    """Weights [T, S], each 0 to 1, as base64 of a byte each, row by row; None where all are 0."""
    array = np.asarray(weights, dtype=float)
    if not array.any():
        return None
    return base64.b64encode(np.rint(array * STEPS).astype(np.uint8).tobytes()).decode("ascii")


def unpack(packed: str, shape: tuple[int, int]) -> NDArray[np.float64]:
    """The weights of `pack`, [T, S], to 1/510."""
    return np.frombuffer(base64.b64decode(packed), dtype=np.uint8).reshape(shape) / STEPS


def write(path: Path, sentences: Iterable[Attended]) -> None:
    """Write a file of them, whole or not at all."""
    lines = (json.dumps(sentence._asdict(), ensure_ascii=False) for sentence in sentences)
    write_atomically(path, "".join(f"{line}\n" for line in lines))


def read(path: Path) -> list[Attended]:
    """The sentences of a file; none where there is no file."""
    if not path.is_file():
        return []
    # Not splitlines: a token may hold a U+2028
    return [Attended(**json.loads(line)) for line in path.read_text(encoding="utf-8").split("\n") if line]
