"""Pairs in files that are mapped into memory, for corpora that do not fit into it.

The files are written once under the digest of all that they depend on (`attnlab.files.cache`). Processes
share their pages. A `Pair` is made from them when it is read, and is not kept. They are mapped as NumPy
arrays: training needs no further package, and batches are indexed by the same code as in memory.

N pairs
"""

import hashlib
import json
import logging
import mmap
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import chain, islice
from pathlib import Path
from typing import Any, overload

import numpy as np
import tokenizers
from numpy.typing import DTypeLike, NDArray

from attnlab.data.corpus import Origin, Pair
from attnlab.files.cache import Cached, Key, deferred_messages, find, find_or_write, with_progress

IN_MEMORY = 100_000
"""Pairs up to this number are kept as a list."""
BLOCK = 10_000
"""Pairs that are read, encoded or written at a time."""


class MappedArray:
    """A file of numbers as a read-only array.

    Args:
        path: the file.
        dtype: type of the numbers.
    """

    def __init__(self, path: Path, dtype: DTypeLike) -> None:
        self._arguments = path, dtype
        self._map = None
        if path.stat().st_size:
            with path.open("rb") as file:
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self.array: NDArray[Any] = np.frombuffer(self._map or b"", dtype)

    def release(self) -> None:
        """Remove the pages read so far from the memory of this process; they stay in the system's cache."""
        if self._map is not None:
            self._map.madvise(mmap.MADV_DONTNEED)

    def __reduce__(self) -> tuple[Any, ...]:
        return MappedArray, self._arguments


class MappedPairs(Sequence[Pair]):
    """Pairs in the files of `write_pairs`, or some of them in any order.

    Args:
        cached: folder of the files.
        rows: numbers of the pairs in the files, [N]; None for all.
        digest: identifies the pairs and their order; None for the digest of the folder.
    """

    def __init__(
        self, cached: Cached, rows: NDArray[Any] | MappedArray | None = None, digest: str | None = None
    ) -> None:
        self._arguments = cached, rows, digest
        self.digest = digest or cached.digest
        self._text = MappedArray(cached.folder / "text", np.uint8)
        self._bounds = MappedArray(cached.folder / "bounds", np.int64)
        self._lines = MappedArray(cached.folder / "lines", np.int64)
        self._rows = rows.array if isinstance(rows, MappedArray) else rows
        self._size = len(self._lines.array) if self._rows is None else len(self._rows)
        self._folder = cached.folder
        self._origins: list[tuple[int, str, str]] = cached.values["origins"]
        self._starts = [row for row, _, _ in self._origins]

    def __reduce__(self) -> tuple[Any, ...]:
        return MappedPairs, self._arguments

    def __len__(self) -> int:
        return self._size

    @overload
    def __getitem__(self, index: int) -> Pair: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Pair]: ...
    def __getitem__(self, index: int | slice) -> Pair | Sequence[Pair]:
        if isinstance(index, slice):
            positions = range(self._size)[index]
            return self.select(np.arange(positions.start, positions.stop, positions.step))
        return self._read(self._rows_of(np.array([range(self._size)[index]])))[0]

    def __iter__(self) -> Iterator[Pair]:
        for start in range(0, self._size, BLOCK):
            yield from self._read(self._rows_of(np.arange(start, min(start + BLOCK, self._size))))

    def select(self, positions: NDArray[Any]) -> Sequence[Pair]:
        """Return the pairs at these positions: a list of a few, or a view of many."""
        rows = self._rows_of(positions)
        if len(rows) <= IN_MEMORY:
            return self._read(rows)
        digest = hashlib.sha256(self.digest.encode() + np.ascontiguousarray(positions, np.int64).tobytes())
        return MappedPairs(self._arguments[0], rows.astype(np.int32), digest.hexdigest()[:32])

    def cached(self, key: Key, write: Callable[[Path], dict[str, Any]], *, noun: str) -> Cached:
        """Return files that are computed from these pairs; see `find_or_write`."""
        key = {**key, "pairs": self.digest, **_versions()}
        return find_or_write(self._folder.parents[1], key, write, noun=noun)

    def view(self, cached: Cached, name: str) -> Sequence[Pair]:
        """Return the pairs whose positions are a file of int64 of `cached`."""
        positions = MappedArray(cached.folder / name, np.int64)
        if len(positions.array) <= IN_MEMORY or self._rows is not None:
            return self.select(positions.array)
        return MappedPairs(self._arguments[0], positions, f"{cached.digest}/{name}")

    def _rows_of(self, positions: NDArray[Any]) -> NDArray[Any]:
        return positions if self._rows is None else self._rows[positions]

    def _read(self, rows: NDArray[Any]) -> list[Pair]:
        places = (3 * rows.astype(np.int64)[:, None] + np.arange(4)).ravel()
        bounds = iter(self._bounds.array[places].tolist())
        text = self._text.array.data
        pairs = []
        for row, line, start in zip(rows.tolist(), self._lines.array[rows].tolist(), bounds, strict=False):
            middle, end, after = next(bounds), next(bounds), next(bounds)
            _, file, unit = self._origins[bisect_right(self._starts, row) - 1]
            extra = _read_extra(str(text[end:after], "utf-8")) if after > end else {}
            source, target = str(text[start:middle], "utf-8"), str(text[middle:end], "utf-8")
            pairs.append(Pair(source, target, origin=Origin(file, line, unit), **extra))
        for array in (self._text, self._bounds, self._lines):
            array.release()
        return pairs


def gather(
    pairs: Iterator[Pair], *, cache: Path | None, key: Callable[[], Key | None], noun: str
) -> Sequence[Pair]:
    """Return pairs that are read one by one: a list of a few, or files of the cache for many.

    Args:
        pairs: the pairs with their origins, and without post-processing.
        cache: folder of the cache; None for a list in any case.
        key: everything that the pairs depend on; None if it cannot be determined.
        noun: the pairs in messages.
    """
    described = None if cache is None else key()
    if cache is None or described is None:
        return list(pairs)
    described = {**described, **_versions()}
    if found := find(cache, described):
        return MappedPairs(found)
    with deferred_messages() as messages:
        first = list(islice(pairs, IN_MEMORY + 1))
        if len(first) <= IN_MEMORY:
            return first
        before = [*messages]
        messages.clear()

        def write(folder: Path) -> dict[str, Any]:
            for name, level, message in before:
                logging.getLogger(name).log(level, "%s", message)
            return write_pairs(folder, chain(first, pairs))

        return MappedPairs(find_or_write(cache, described, write, noun=noun))


def write_pairs(folder: Path, pairs: Iterable[Pair]) -> dict[str, Any]:
    """Write pairs into a folder, and return the values that `MappedPairs` needs.

    "text" has the source, the target and the other attributes of each pair in turn, in UTF-8; "bounds" their
    ends, [3 N + 1], and "lines" the lines that the pairs were read from, [N].
    """
    origins: list[tuple[int, str, str]] = []
    end = count = 0
    blocks = with_progress(batched(pairs, BLOCK), "pairs read", size=len)
    with (folder / "text").open("wb") as text, (folder / "bounds").open("wb") as bounds:
        bounds.write(np.zeros(1, np.int64).tobytes())
        with (folder / "lines").open("wb") as lines:
            for block in blocks:
                parts: list[bytes] = []
                for row, pair in enumerate(block, start=count):
                    assert pair.origin is not None
                    place = pair.origin.file, pair.origin.unit
                    if not origins or place != origins[-1][1:]:
                        origins.append((row, *place))
                    parts += (pair.source.encode(), pair.target.encode(), _extra(pair))
                text.write(b"".join(parts))
                ends = end + np.cumsum(np.fromiter(map(len, parts), np.int64, len(parts)))
                bounds.write(ends.tobytes())
                lines.write(np.array([pair.origin.line for pair in block if pair.origin], np.int64).tobytes())
                end, count = int(ends[-1]), count + len(block)
    return {"origins": origins}


def select(pairs: Sequence[Pair], positions: NDArray[Any]) -> Sequence[Pair]:
    """Return the pairs at these positions."""
    if isinstance(pairs, MappedPairs):
        return pairs.select(positions)
    return [pairs[position] for position in positions.tolist()]


def batched(items: Iterable[Any], size: int) -> Iterator[list[Any]]:
    """Yield lists of at most `size` successive items."""
    iterator = iter(items)
    return iter(lambda: list(islice(iterator, size)), [])


@cache
def _versions() -> Mapping[str, Any]:
    """Return what files depend on besides their key: the code that writes them, and its packages."""
    code = hashlib.sha256()
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        code.update(path.read_bytes())
    return {"code": code.hexdigest(), "tokenizers": tokenizers.__version__}


def _extra(pair: Pair) -> bytes:
    values = pair.alignment, pair.reference, pair.annotations, pair.excludes
    return b"" if values == (None, None, None, None) else json.dumps(values).encode()


def _read_extra(text: str) -> dict[str, Any]:
    alignment, reference, annotations, excludes = json.loads(text)
    links = None if alignment is None else tuple((source, target) for source, target in alignment)
    return {"alignment": links, "reference": reference, "annotations": annotations, "excludes": excludes}
