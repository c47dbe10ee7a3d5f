import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from attnlab.data.word_vectors import read_word_vectors
from attnlab.errors import UserError
from attnlab.training.initialisation import load_word_vectors
from tiny_runs import SYNTHETIC, TINY, build_all

IDS = {"dog": 3, "cat": 5, ". .": 7, "7": 9}
GLOVE = "the 0.1 0.2 0.3\ndog 1 2 3\n. . 4 5 6\ndog 9 9 9\ncat -1e-2 0 1\n"


def read(path: Path, content: str | bytes, size: int = 3) -> dict[int, list[float]]:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    vectors = read_word_vectors(str(path), IDS.get, size=size, setting="embedding.source_vectors")
    return {id: vector.tolist() for id, vector in vectors.items()}


@pytest.mark.parametrize(
    "content",
    [
        GLOVE,
        "5 3\n" + GLOVE,
        "\ufeff5 3\r\n" + GLOVE.replace("\n", "\r\n"),
        GLOVE.replace("\n", " \n"),
        GLOVE.replace("dog ", "dog\t"),
        gzip.compress(GLOVE.encode()),
    ],
    ids=["glove", "word2vec", "bom and crlf", "trailing spaces", "tabs", "gzip"],
)
def test_text_formats_are_read(tmp_path: Path, content: str | bytes):
    expected = {3: [1, 2, 3], 7: [4, 5, 6], 5: [np.float32(-0.01), 0, 1]}
    assert read(tmp_path / "vectors.vec", content) == expected


@pytest.mark.parametrize(
    ("content", "expected"), [("dog 0.5\n", {3: [0.5]}), ("7 1 2\ndog 0.5 1\n", {3: [0.5, 1], 9: [1, 2]})]
)
def test_only_two_whole_numbers_are_a_header(
    tmp_path: Path, content: str, expected: dict[int, list[float]]
) -> None:
    assert read(tmp_path / "vectors.vec", content, size=len(expected[3])) == expected


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the file is empty"),
        (b"5 300\ndog 1 2 3\n", r"vectors of size 300, but embedding.size=3. Set embedding.size=300"),
        (b"dog 1 2\n", r"line 1: vectors of size 2, but embedding.size=3"),
        (b"dog 1 2 3 4\n", r"line 1: vectors of size 4, but embedding.size=3"),
        (b"dog 1 2 3\ncat 1 2\n", r"line 2: vectors of size 2"),
        (b"dog 1 x 3\n", r"line 1: 'dog' is not followed by 3 numbers"),
        (b"dog 1 nan 3\n", r"line 1: the vector of 'dog' is not finite"),
        (b"dog inf 1 3\n", r"line 1: the vector of 'dog' is not finite"),
        (b"dog\n", r"line 1: vectors of size 0"),
        (b"horse 1 2 3\n", "has 1 words, but none of the vocabulary"),
        (b"3 3\n", "has 0 words, but none of the vocabulary"),
        (b"dog 1 2 3\nca\0t 1 2 3\n", "line 2: NUL byte."),
        (b"dog 1 2 3\nc\xe9t 1 2 3\n", "line 2: not valid UTF-8"),
        ("dog 1 2 3\n".encode("utf-16"), "line 1: NUL byte"),
        (b"2 3\ndog \x00\x00\x80\x3f\x00\x00", "line 2: NUL byte"),
        (gzip.compress(GLOVE.encode(), mtime=0)[:-9], "truncated or damaged"),
        (b"\x1f\x8bnot gzip", "truncated or damaged"),
        (b'{"dog": [1, 2, 3]}\n', "line 1: vectors of size 3|is not followed by|none of the vocabulary"),
        (b"dog 1 2 3 \ncat;1;2;3\n", "line 2: vectors of size 0"),
        (b" ".join([b"dog"] + [b"1"] * 50_000), "vectors of size 50000"),
    ],
)
def test_invalid_files_are_rejected_in_one_line(tmp_path: Path, content: bytes, message: str):
    with pytest.raises(UserError, match=message) as caught:
        read(tmp_path / "vectors.txt", content)
    assert "vectors.txt" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing_files_and_folders_are_rejected(tmp_path: Path):
    for path, message in ((tmp_path / "none.vec", "does not exist"), (tmp_path, "Is a directory")):
        with pytest.raises(UserError, match=message):
            read_word_vectors(str(path), IDS.get, size=3, setting="embedding.source_vectors")


def test_tables_contain_the_vectors_and_can_be_frozen(composed, tmp_path: Path, caplog):
    caplog.set_level("INFO")
    file = tmp_path / "vectors.txt"
    file.write_text("".join(f"{symbol} {' '.join(['0.5'] * 8)}\n" for symbol in ("3", "4", "unused")))
    overrides = (*TINY, *SYNTHETIC, f"embedding.source_vectors={file}", "embedding.frozen=true")
    config = composed(*overrides)
    module, _ = build_all(config)
    vocabularies, network = module.vocabularies, module.network
    before = network.source_embedding.table.weight.detach().clone()
    report = load_word_vectors(network, vocabularies, source_vectors=str(file), frozen=True)
    assert report == {"source": {"file": str(file), "tokens": 47, "with_vector": 2}}
    assert "2 of 47 tokens have a vector" in caplog.text
    table = network.source_embedding.table.weight
    assert table[3:5].eq(0.5).all()
    assert torch.equal(table[5:], before[5:])
    assert (table.requires_grad, network.target_embedding.table.weight.requires_grad) == (False, True)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"frozen": True}, "set embedding.source_vectors=FILE"),
        ({"shared": True, "target_vectors": "x"}, "give embedding.source_vectors only"),
    ],
)
def test_contradictory_settings_are_rejected(composed, settings: dict[str, Any], message: str):
    module, _ = build_all(composed(*TINY, *SYNTHETIC))
    with pytest.raises(UserError, match=message):
        load_word_vectors(module.network, module.vocabularies, **settings)
