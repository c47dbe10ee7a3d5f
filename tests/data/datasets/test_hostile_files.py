"""Broken files of every format: one line that names the file, and the line where there is one."""

import gzip
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from attnlab.data.datasets.pairs import load_pairs as load
from attnlab.errors import UserError

GOOD = "".join(f"source {i}\ttarget {i}\n" for i in range(20)).encode()
OBJECTS = "".join(f'{{"source": "source {i}", "target": "target {i}"}}\n' for i in range(20)).encode()
LINES = "".join(f"line {i}\n" for i in range(20)).encode()
LONG = b"x" * 200_000

TABLES = [
    (b"", "the file is empty"),
    (b"\xef\xbb\xbf", "the file is empty"),
    (GOOD[:60] + b"\0", "line 4: NUL byte"),
    (GOOD.decode().encode("utf-16"), "line 1: NUL byte"),
    ("straße\tstreet\n".encode("latin-1"), r"line 1: not valid UTF-8 \(byte 0xdf\)"),
    (GOOD + b"caf\xe9\tcoffee\n", "line 21: not valid UTF-8"),
    (GOOD + "🙂".encode()[:3], "line 21: not valid UTF-8"),
    (b"\x89PNG\r\n\x1a\n" + bytes(range(256)), r"line 1: not valid UTF-8 \(byte 0x89\)"),
    (b"\x1f\x8bnot gzip at all", "the gzip file is truncated or damaged"),
    (gzip.compress(GOOD, mtime=0)[:-12], "the gzip file is truncated or damaged"),
    (gzip.compress(GOOD, mtime=0)[:-8] + b"\xff" * 8, "the gzip file is truncated or damaged"),
    (gzip.compress(b"", mtime=0), "the file is empty"),
    (gzip.compress(GOOD + b"\xe9\t\n", mtime=0), "line 21: not valid UTF-8"),
    (b"a,b\nc,d\n", "line 1: 1 column, expected at least 2. Separate columns by tabs"),
    (LONG + b"\n", "line 1: 1 column, expected at least 2"),
    (b"a\t\n\tb\nc\td\n", "line 1: the target is empty, add the text or remove the line"),
    (b"one\tline\n", "training and validation data is empty: 1 pairs"),
    (b"a\tb\nA!\tc\na\td\n", "validation and test data is empty: 3 pairs with 1 different"),
    (OBJECTS, "line 1: 1 column"),
]

JSON = [
    (b"", "the file is empty"),
    (b"[]\n", "line 1: a list in place of a JSON object per line"),
    (b'[\n{"source": "a", "target": "b"}\n]\n', r"line 1: not valid JSON \(Expecting value"),
    (b"5\n", "line 1: a int in place of a JSON object"),
    (b"{}\n", "line 1: no key 'source' among no keys"),
    (OBJECTS + b'{"source": "a"}\n', "line 21: no key 'target' among source. Set data.languages"),
    (b'{"de": "a", "en": "b"}\n', r"line 1: no key 'source' among de, en. Set data.languages=\["),
    (b'{"translation": {"de": "a", "en": "b"}}\n', "line 1: no key 'source' among de, en"),
    (b'{"source": 1, "target": "b"}\n', "line 1: 'source' is int, not text"),
    (b'{"source": ["a"], "target": "b"}\n', "line 1: 'source' is list, not text"),
    (b'{"source": "", "target": "b"}\n', "line 1: the source is empty"),
    (b'{"source": "a", "target": "\\ud800"}\n', "line 1: 'target' is text with a lone surrogate"),
    (OBJECTS + b'{"source": "a", "target": "b"', "line 21: not valid JSON"),
    (OBJECTS.replace(b'"', b"'"), "line 1: not valid JSON"),
    (b"[" * 100_000, "line 1: not valid JSON|line 1: not valid JSON .nested too deeply"),
    (b'{"source": "a", "target": "b"}\n', "training and validation data is empty: 1 pairs"),
]

ALIGNED = [
    (b"", "pairs.en: the file is empty"),
    (LINES[:-8], "pairs.de has 20 lines, but .*pairs.en has 19. The files must have the same number"),
    (LINES + b"more\n", "pairs.de has 20 lines, but .*pairs.en has 21"),
    (LONG, "pairs.de has 20 lines, but .*pairs.en has 1"),
]

LINKS = b"0-0 1-1\n" * 20
ALIGNMENTS = [
    (b"", "links: the file is empty"),
    (LINKS[:-8], "pairs.tsv has 20 lines, but .*links has 19. The files must have the same number"),
    (LINKS + b"0-0\n", "pairs.tsv has 20 lines, but .*links has 21"),
    (GOOD, "line 1: 'source' is not a link. Write SOURCE-TARGET with token numbers from 0, such as 0-0"),
    *(
        (LINKS[:8] + link.encode() + LINKS[11:], f"line 2: '{re.escape(link)}' is not a link")
        for link in ("0:1", "0-", "-1-0", "0-1-2", "0p1", "0,1", "(0,1)", "1.0-1", "a-b", "0–1", "0", "²-0")
    ),
    (LINKS[:8] + LONG + LINKS[11:], "line 2: 'x.*' is not a link"),
    (b"\x89PNG\r\n\x1a\n" * 10, "line 1: not valid UTF-8|has 20 lines, but"),
]


def check(message: str, **settings: object) -> None:
    """Expect one line that matches, without the content of a long line."""
    with pytest.raises(UserError) as caught:
        load(**settings)
    text = str(caught.value)
    assert re.search(message, text), text
    assert "\n" not in text
    assert len(text) < 600


@pytest.mark.parametrize(("content", "message"), TABLES)
def test_broken_tables(tmp_path: Path, content: bytes, message: str):
    (tmp_path / "pairs.tsv").write_bytes(content)
    check(message, path=str(tmp_path / "pairs.tsv"))


@pytest.mark.parametrize(("content", "message"), JSON)
def test_broken_json_lines(tmp_path: Path, content: bytes, message: str):
    (tmp_path / "pairs.jsonl").write_bytes(content)
    check(message, train=str(tmp_path / "pairs.jsonl"))


@pytest.mark.parametrize(("content", "message"), ALIGNED)
def test_broken_aligned_files(tmp_path: Path, content: bytes, message: str):
    (tmp_path / "pairs.de").write_bytes(LINES)
    (tmp_path / "pairs.en").write_bytes(content)
    check(message, train=str(tmp_path / "pairs"), languages=["de", "en"])


@pytest.mark.parametrize(("content", "message"), ALIGNMENTS)
def test_broken_alignment_files(tmp_path: Path, content: bytes, message: str):
    (tmp_path / "pairs.tsv").write_bytes(GOOD)
    (tmp_path / "links").write_bytes(content)
    check(message, path=str(tmp_path / "pairs.tsv"), alignments_path=str(tmp_path / "links"))


@pytest.mark.parametrize(
    ("test", "message"),
    [
        *(
            ({name: "good.tsv"}, "is not a valid name of a test set. Use letters, digits")
            for name in ("", "a/b", "..", "-a", "attention", "ä", "a\n")
        ),
        ({}, r"data.test=\{\}: give a file, or several as"),
        *(
            ({"a": path}, "data.test.a=.* must be the path of a file")
            for path in (None, 5, "", True, [], [5], {"b": "good.tsv"})
        ),
        *((test, "data.test=.* must be the path of a file") for test in (5, "", True, [], [""])),
        ({"a": "none.tsv"}, "data.test.a: none.tsv does not exist"),
        ({"a": "good.tsv", "b": "none.tsv"}, "data.test.b: none.tsv does not exist"),
        ({"a": "."}, "data.test.a: . cannot be read .Is a directory."),
        ({"a": "empty.tsv"}, "empty.tsv: the file is empty"),
    ],
)
def test_unusable_test_sets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, test: object, message: str):
    monkeypatch.chdir(tmp_path)
    Path("good.tsv").write_bytes(GOOD)
    Path("empty.tsv").write_bytes(b"\n")
    check(message, train="good.tsv", test=test)


@pytest.mark.parametrize(
    ("name", "prepare", "message"),
    [
        ("none.tsv", lambda path: None, "none.tsv does not exist. Check the path"),
        ("folder", Path.mkdir, "folder cannot be read .Is a directory."),
        ("good.tsv.gz", lambda path: path.write_bytes(GOOD), "not compressed by gzip. Rename it without .gz"),
        ("a" * 300, lambda path: None, "cannot be read .File name too long."),
        ("nul\0name", lambda path: None, "is not a valid path .embedded null byte."),
    ],
)
def test_unusable_paths(tmp_path: Path, name: str, prepare: Callable[[Path], object], message: str):
    if "\0" not in name:
        prepare(tmp_path / name)
    check(message, path=f"{tmp_path}/{name}")


def test_home_of_an_unknown_user():
    check("is not a valid path .Could not determine home directory", path="~nobody-has-this-name/pairs.tsv")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_unreadable_file(tmp_path: Path):
    (tmp_path / "pairs.tsv").write_bytes(GOOD)
    (tmp_path / "pairs.tsv").chmod(0)
    check("pairs.tsv cannot be read .Permission denied.", path=str(tmp_path / "pairs.tsv"))
