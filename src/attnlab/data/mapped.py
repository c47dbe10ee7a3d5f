"""Arrays in memory or in mapped files, and pairs in such files, for corpora that do not fit into memory.

The files are written once under the digest of all that they depend on (`attnlab.files.cache`). Processes
share their pages. A `Pair` is made from them when it is read, and is not kept.

N pairs
"""

import hashlib
import json
import mmap
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, Literal, overload

import numpy as np
import tokenizers
from numpy.typing import NDArray

from attnlab.data.corpus import Origin, Pair
from attnlab.errors import UserError
from attnlab.files.cache import Cached, Key, deferred_messages, find, find_or_write, with_progress

Side = Literal["source", "target"]
SIDES: tuple[Side, Side] = ("source", "target")

IN_MEMORY = 100_000  # Pairs up to this number are kept as a list
BLOCK = 10_000  # Pairs that are read, encoded or written at a time


class Store:
    """Arrays by name that grow block by block: in memory, or in files that are mapped into memory.

    Args:
        folder: folder of the files; None for arrays in memory.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder
        self._blocks: dict[str, list[NDArray[Any]]] = {}
        self._maps: list[mmap.mmap] = []

    def append(self, name: str, values: NDArray[Any]) -> int:
        """Append values, always of the same type, to an array, which need not exist; return its new size."""
        if self.folder is None:
            self._blocks.setdefault(name, []).append(values)
            return sum(map(len, self._blocks[name]))
        with (self.folder / f"{name}.{values.dtype}").open("ab") as file:
            file.write(values.tobytes())
            return file.tell() // values.itemsize

    def array(self, name: str, *, writable: bool = False) -> NDArray[Any]:
        """Return an array; changes of a `writable` one do not change its file."""
        if self.folder is None:
            blocks = self._blocks.get(name, [np.empty(0, np.int64)])
            self._blocks[name] = blocks if len(blocks) == 1 else [np.concatenate(blocks)]
            return self._blocks[name][0]
        (path,) = self.folder.glob(f"{name}.*")
        if not path.stat().st_size:
            return np.empty(0, path.suffix[1:])
        with path.open("rb") as file:
            access = mmap.ACCESS_COPY if writable else mmap.ACCESS_READ
            self._maps.append(mmap.mmap(file.fileno(), 0, access=access))
        return np.frombuffer(self._maps[-1], path.suffix[1:])

    def release(self) -> None:
        """Remove the pages read so far from the memory of this process; they stay in the system's cache."""
        for mapped in self._maps:
            mapped.madvise(mmap.MADV_DONTNEED)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_maps": []}


class MappedPairs(Sequence[Pair]):
    """Pairs in the files of `write_pairs`, or some of them in any order.

    Args:
        rows: numbers of the pairs in the files, [N]; None for all.
        digest: identifies the pairs and their order; None for the digest of the folder.

    Attributes:
        origins: number of the first pair in the files, file and unit of pairs that follow each other.
    """

    def __init__(
        self, cached: Cached, rows: NDArray[np.int32] | None = None, digest: str | None = None
    ) -> None:
        self._arguments = cached, rows, digest
        self.digest = digest or cached.digest
        self.root = cached.folder.parents[1]  # of the cache
        self._store = Store(cached.folder)
        self._text, self._bounds, self._lines = map(self._store.array, ("text", "bounds", "lines"))
        self._rows = rows
        self._size = len(self._lines if rows is None else rows)
        self.origins: list[tuple[int, str, str]] = cached.values["origins"]
        self._starts = [row for row, _, _ in self.origins]

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
        return self._read(np.array([range(self._size)[index]]))[0]

    def __iter__(self) -> Iterator[Pair]:
        for start in range(0, self._size, BLOCK):
            yield from self._read(np.arange(start, min(start + BLOCK, self._size)))

    def select(self, positions: NDArray[Any]) -> Sequence[Pair]:
        """Return the pairs at these positions: a list of a few, or a view of many."""
        if len(positions) <= IN_MEMORY:
            return self._read(positions)
        rows = self._rows_of(positions).astype(np.int32)
        digest = hashlib.sha256(self._arguments[0].digest.encode() + rows.tobytes())
        return MappedPairs(self._arguments[0], rows, digest.hexdigest()[:32])

    @property
    def is_plain(self) -> bool:
        """True if no pair of the files has more than its texts and its origin."""
        return bool((self._bounds[2::3] == self._bounds[3::3]).all())

    def _rows_of(self, positions: NDArray[Any]) -> NDArray[Any]:
        return positions if self._rows is None else self._rows[positions]

    def texts(self, column: int, positions: NDArray[Any]) -> list[str]:
        """Return the sources (column 0), the targets (1) or the JSON of the other attributes (2)."""
        places = 3 * self._rows_of(positions).astype(np.int64) + column
        spans = zip(self._bounds[places].tolist(), self._bounds[places + 1].tolist(), strict=True)
        text = self._text.data
        texts = [str(text[start:end], "utf-8") for start, end in spans]
        self._store.release()
        return texts

    def _read(self, positions: NDArray[Any]) -> list[Pair]:
        rows = self._rows_of(positions)
        columns = (self.texts(column, positions) for column in range(3))
        pairs = []
        for row, line, source, target, extra in zip(
            rows.tolist(), self._lines[rows].tolist(), *columns, strict=True
        ):
            _, file, unit = self.origins[bisect_right(self._starts, row) - 1]
            origin = Origin(file, line, unit)
            pairs.append(Pair(source, target, origin=origin, **(_read_extra(extra) if extra else {})))
        return pairs


def gather(
    read: Callable[[], Iterator[Pair]], *, cache: Path | None, key: Callable[[], Key | None], noun: str
) -> Sequence[Pair]:
    """Return pairs that are read one by one: a list of a few, or files of the cache for many."""
    described = None if cache is None else key()
    if cache is None or described is None:
        return list(read())
    described = {**described, **_versions()}
    if found := find(cache, described):
        return MappedPairs(found)
    with deferred_messages() as messages:
        first = list(islice(read(), IN_MEMORY + 1))
        if len(first) <= IN_MEMORY:
            return first
        messages.clear()  # they are logged when the pairs are read again

    def write(folder: Path) -> dict[str, Any]:
        values = write_pairs(folder, read())
        if {**(key() or {}), **_versions()} != described:  # else its files would have the old digest for good
            raise UserError(f"{noun} changed while they were read: start again")
        return values

    return MappedPairs(find_or_write(cache, described, write, noun=noun))


def computed(pairs: Sequence[Pair], key: Key, compute: Callable[[Store], None], *, noun: str) -> Store:
    """Return the arrays that `compute` appends to a store; those of mapped pairs are files of the cache.

    Their `key` is everything that they depend on besides the pairs, and `noun` describes them in messages.
    """
    if not isinstance(pairs, MappedPairs):
        store = Store()
        compute(store)
        return store

    def write(folder: Path) -> dict[str, Any]:
        compute(Store(folder))
        return {}

    key = {**key, "pairs": pairs.digest, **_versions()}
    return Store(find_or_write(pairs.root, key, write, noun=noun).folder)


def write_pairs(folder: Path, pairs: Iterable[Pair]) -> dict[str, Any]:
    """Write pairs into a folder, and return the values that `MappedPairs` needs.

    "text" has the source, the target and the other attributes of each pair in turn, in UTF-8; "bounds" their
    ends, [3 N + 1], and "lines" the lines that the pairs were read from, [N].
    """
    store = Store(folder)
    origins: list[tuple[int, str, str]] = []
    count = 0
    store.append("bounds", np.zeros(1, np.int64))
    for block in with_progress(batched(pairs, BLOCK), "pairs read", size=len):
        parts: list[bytes] = []
        lines: list[int] = []
        for row, pair in enumerate(block, start=count):
            assert pair.origin is not None
            place = pair.origin.file, pair.origin.unit
            if not origins or place != origins[-1][1:]:
                origins.append((row, *place))
            parts += (pair.source.encode(), pair.target.encode(), _extra(pair))
            lines.append(pair.origin.line)
        text = np.frombuffer(b"".join(parts), np.uint8)
        start = store.append("text", text) - len(text)
        store.append("bounds", start + np.cumsum(np.fromiter(map(len, parts), np.int64, len(parts))))
        count = store.append("lines", np.array(lines, np.int64))
    return {"origins": origins}


def count_by_file(pairs: Sequence[Pair]) -> dict[str, int]:
    """Return the number of pairs of each file, in the order of their first pairs."""
    if not isinstance(pairs, MappedPairs):
        return Counter(pair.origin.file for pair in pairs if pair.origin)
    counts: Counter[str] = Counter()
    for (start, file, _), (end, *_) in pairwise([*pairs.origins, (len(pairs), "", "")]):
        counts[file] += end - start
    return counts


def select(pairs: Sequence[Pair], positions: NDArray[Any]) -> Sequence[Pair]:
    """Return the pairs at these positions."""
    if isinstance(pairs, MappedPairs):
        return pairs.select(positions)
    return [pairs[position] for position in positions.tolist()]


def text_blocks(pairs: Sequence[Pair], side: Side) -> Iterator[list[str]]:
    """Yield the texts of one side, of `BLOCK` pairs at a time; no `Pair` is made of mapped ones."""
    for start in range(0, len(pairs), BLOCK):
        end = min(start + BLOCK, len(pairs))
        if isinstance(pairs, MappedPairs):
            yield pairs.texts(int(side == "target"), np.arange(start, end))
        else:
            yield [getattr(pair, side) for pair in pairs[start:end]]


def are_plain(pairs: Sequence[Pair]) -> bool:
    """Return whether no pair has more than its texts and its origin."""
    return pairs.is_plain if isinstance(pairs, MappedPairs) else not any(map(_extra, pairs))


def hash_texts(texts: Iterable[str], count: int) -> NDArray[np.int64]:
    """Return the 64-bit hash of each of `count` texts: among 12 million, two are equal with p = 4e-6."""
    digests = (hashlib.blake2b(text.encode(), digest_size=8).digest() for text in texts)
    return np.fromiter((int.from_bytes(digest, "little", signed=True) for digest in digests), np.int64, count)


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
