"""Pretrained word vectors in the text formats of word2vec, GloVe and fastText (`.vec`), plain or gzipped."""

import gzip
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from attnlab.errors import UserError
from attnlab.files.reading import GZIP_MAGIC, check_regular_file

Vector = NDArray[np.float32]


def read_word_vectors(
    path: str, id_of: Callable[[str], int | None], *, size: int, setting: str
) -> dict[int, Vector]:
    """Read the vectors [E] of the words of a vocabulary, by their ids.

    The file is read line by line, so that it may be larger than the memory. The first line may be a header
    with the number of words and their size. If a word occurs twice, its first vector is used.

    Args:
        path: file with one word and its `size` numbers per line, separated by spaces or tabs.
        id_of: returns the id of a word, or None if its vector is not needed.
        size: E, the size of the vectors.
        setting: the setting that gives the file, for error messages.
    """
    vectors: dict[int, Vector] = {}
    words = 0
    for number, line in enumerate(_lines(path, setting), start=1):
        word, *values = line.rstrip().rsplit(" ", size)
        if number == 1 and _is_header(line):
            _check_size(line.split()[1], size, path, setting)
            continue
        if not line.strip():
            continue
        words += 1
        if len(values) != size or (_is_number(word.rpartition(" ")[2]) and " " in word):
            count = len(line.split()) - 1
            _check_size(count, size, f"{path}, line {number}", setting)
        id = id_of(word)
        if id is not None and id not in vectors:
            try:
                vector = np.array(values, dtype=np.float32)
            except ValueError as error:
                raise UserError(
                    f"{path}, line {number}: {word!r} is not followed by {size} numbers ({error})"
                ) from error
            if not np.isfinite(vector).all():
                raise UserError(f"{path}, line {number}: the vector of {word!r} is not finite")
            vectors[id] = vector
    if not vectors:
        raise UserError(
            f"{setting}: {path} has {words} words, but none of the vocabulary. Give vectors of the language "
            "and the tokens of this side: word vectors need tokenizer=whitespace or words"
        )
    return vectors


def _lines(path: str, setting: str) -> Iterator[str]:
    """Yield the lines of a plain or gzipped UTF-8 file."""
    number = 0
    try:
        with _open(path) as file:
            for number, line in enumerate(file, start=1):
                if b"\0" in line:
                    raise UserError(
                        f"{path}, line {number}: NUL byte. Give the text format, not a binary one (.bin)"
                    )
                yield line.decode("utf-8-sig" if number == 1 else "utf-8").replace("\t", " ")
    except FileNotFoundError as error:
        raise UserError(f"{setting}: {path} does not exist. Check the path") from error
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path}, line {number}: not valid UTF-8. Give the text format, not a binary one (.bin)"
        ) from error
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"{setting}: {path} cannot be read ({reason}). Check the file") from error
    if number == 0:
        raise UserError(f"{path}: the file is empty. Download or create it again")


def _open(path: str) -> BinaryIO:
    location = Path(path).expanduser()
    check_regular_file(location, name=path)
    with location.open("rb") as file:
        compressed = file.read(len(GZIP_MAGIC)) == GZIP_MAGIC
    return gzip.open(location) if compressed else location.open("rb")  # type: ignore[return-value]


def _is_header(line: str) -> bool:
    """Return whether a line consists of two whole numbers: the number of words and the size."""
    parts = line.split()
    return len(parts) == 2 and all(part.isdigit() for part in parts)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _check_size(actual: int | str, size: int, location: str, setting: str) -> None:
    """Raise `UserError` if the vectors do not have the size of the embedding."""
    if int(actual) != size:
        raise UserError(
            f"{setting}: {location}: vectors of size {actual}, but embedding.size={size}. Set "
            f"embedding.size={actual}, or give another file"
        )
