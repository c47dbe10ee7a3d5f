"""Pretrained word vectors in the text formats of word2vec, GloVe and fastText (`.vec`), plain or gzipped."""

import re
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from attnlab.errors import UserError
from attnlab.files.reading import read_lines

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
    for number, line in enumerate(read_lines(path, setting=setting), start=1):
        word, *values = line.rstrip().replace("\t", " ").rsplit(" ", size)
        header = re.fullmatch(r"\d+\s+(\d+)\s*", line) if number == 1 else None
        if not line.strip() or (header and int(header[1]) == size):
            continue
        words += 1
        is_longer = " " in word and _is_number(word.rpartition(" ")[2])
        if header or is_longer or len(values) != size:
            actual = int(header[1]) if header else len(line.split()) - 1
            raise UserError(
                f"{setting}: {path}, line {number}: vectors of size {actual}, but embedding.size={size}. Set "
                f"embedding.size={actual}, or give another file"
            )
        id = id_of(word)
        if id is not None and id not in vectors:
            try:
                vectors[id] = np.array(values, dtype=np.float32)
            except ValueError as error:
                raise UserError(
                    f"{path}, line {number}: {word!r} is not followed by {size} numbers ({error})"
                ) from error
            if not np.isfinite(vectors[id]).all():
                raise UserError(f"{path}, line {number}: the vector of {word!r} is not finite")
    if not vectors:
        raise UserError(
            f"{setting}: {path} has {words} words, but none of the vocabulary. Give vectors of the language "
            "and the tokens of this side: word vectors need tokenizer=whitespace or words"
        )
    return vectors


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
