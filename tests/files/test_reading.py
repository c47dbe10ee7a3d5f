import gzip
import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from attnlab.errors import UserError
from attnlab.files.reading import decode, read_lines, read_text, split_lines


def test_byte_order_mark_is_removed(tmp_path: Path):
    file = tmp_path / "a.txt"
    file.write_bytes(b"\xef\xbb\xbfsch\xc3\xb6n")
    assert read_text(file) == "schön"


def test_errors_name_missing_files_and_directories(tmp_path: Path):
    with pytest.raises(UserError, match=r"none\.txt does not exist"):
        read_text(tmp_path / "none.txt")
    with pytest.raises(UserError, match=rf"{tmp_path} cannot be read"):
        read_text(str(tmp_path))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "f: the file is empty"),
        (b" \n\r\n", "f: the file is empty"),
        (b"one\ntwo\nthr\xe9e\n", r"f, line 3: not valid UTF-8 \(byte 0xe9\)"),
        (b"\nt\0wo\n", "f, line 2: NUL byte"),
        ("one\n".encode("utf-16"), "f, line 1: NUL byte"),
        ("schön".encode()[:-2], r"f, line 1: not valid UTF-8 \(byte 0xc3\)"),
    ],
)
def test_errors_of_invalid_text_name_the_line(content: bytes, message: str):
    with pytest.raises(UserError, match=message):
        decode(content, name="f")


def test_pipes_and_devices_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero"), Path("/dev/null")):
        with pytest.raises(UserError, match=rf"data\.path: {path} is not a regular file"):
            read_text(path, setting="data.path")


def test_lines_are_split_at_newlines_only(tmp_path: Path) -> None:
    (tmp_path / "mac.txt").write_bytes(b"a\rb\r")
    assert list(read_lines(tmp_path / "mac.txt")) == ["a", "b"]
    assert split_lines("a\r\nb\u2028c\x0bd\n\ne") == ["a", "b\u2028c\x0bd", "", "e"]
    assert split_lines("a\n") == split_lines("a") == ["a"]


@pytest.mark.parametrize("compress", [bytes, gzip.compress], ids=["plain", "gzip"])
@pytest.mark.parametrize("end", ["", "\n", "\r\n", "\n\n", "\nlast\rline", "\n" * 3000])
def test_lines_of_a_file_are_those_of_its_text(
    tmp_path: Path, compress: Callable[[bytes], bytes], end: str
) -> None:
    text = "\ufeff" + "\r\n".join(f"straße {i} \u2028" + "x" * (i % 7 * 300) for i in range(100)) + end
    text += "\ufeffno byte order mark" if end else ""
    (tmp_path / "f").write_bytes(compress(text.encode()))
    lines = list(read_lines(tmp_path / "f"))
    assert lines == split_lines(text.removeprefix("\ufeff"))
    assert len(lines) >= 100


def test_errors_of_reading_by_lines_name_the_line(tmp_path: Path) -> None:
    good = b"twelve bytes" * 5 + b"\n"
    for broken, message in (
        (b"caf\xe9\n", r"f, line 31: not valid UTF-8 \(byte 0xe9\)"),
        (b"\0\n", "f, line 31: NUL"),
    ):
        (tmp_path / "f").write_bytes(good * 30 + broken + good * 30)
        lines = read_lines(tmp_path / "f")
        assert next(lines).startswith("twelve")
        with pytest.raises(UserError, match=message):
            list(lines)
    (tmp_path / "f").write_bytes(b" \n" * 400)
    with pytest.raises(UserError, match="f: the file is empty"):
        list(read_lines(tmp_path / "f"))
    (tmp_path / "f").write_bytes(gzip.compress(random.Random(0).randbytes(2000).hex().encode() + good)[:-50])
    with pytest.raises(UserError, match="f: the gzip file is truncated or damaged"):
        list(read_lines(tmp_path / "f"))
