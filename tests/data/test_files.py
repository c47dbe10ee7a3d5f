from pathlib import Path

import pytest

from attnlab.data.files import decode, read_text, split_lines
from attnlab.errors import UserError


def test_a_byte_order_mark_is_not_text(tmp_path: Path):
    file = tmp_path / "a.txt"
    file.write_bytes(b"\xef\xbb\xbfsch\xc3\xb6n")
    assert read_text(file) == "schön"


def test_a_missing_file_and_a_directory_are_named(tmp_path: Path):
    with pytest.raises(UserError, match=r"none\.txt: there is no such file"):
        read_text(tmp_path / "none.txt")
    with pytest.raises(UserError, match=rf"{tmp_path}: cannot be read"):
        read_text(str(tmp_path))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "f: the file is empty"),
        (b" \n\r\n", "f: the file is empty"),
        (b"one\ntwo\nthr\xe9e\n", r"f, line 3: not UTF-8 \(byte 0xe9\)"),
        (b"one\nt\0wo\n", "f, line 2: a NUL byte"),
        ("one\n".encode("utf-16"), "f, line 1: a NUL byte"),
        ("schön".encode()[:-2], r"f, line 1: not UTF-8 \(byte 0xc3\)"),
    ],
)
def test_broken_text_is_named_with_its_line(content: bytes, message: str):
    with pytest.raises(UserError, match=message):
        decode(content, name="f")


def test_lines_end_where_an_editor_ends_them():
    assert split_lines("a\r\nb\u2028c\x0bd\n\ne") == ["a", "b\u2028c\x0bd", "", "e"]
    assert split_lines("a\n") == split_lines("a") == ["a"]
