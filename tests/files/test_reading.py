from pathlib import Path

import pytest

from attnlab.errors import UserError
from attnlab.files.reading import decode, read_text, split_lines


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
        (b"one\nt\0wo\n", "f, line 2: NUL byte"),
        ("one\n".encode("utf-16"), "f, line 1: NUL byte"),
        ("schön".encode()[:-2], r"f, line 1: not valid UTF-8 \(byte 0xc3\)"),
    ],
)
def test_errors_of_invalid_text_name_the_line(content: bytes, message: str):
    with pytest.raises(UserError, match=message):
        decode(content, name="f")


def test_lines_are_split_at_newlines_only():
    assert split_lines("a\r\nb\u2028c\x0bd\n\ne") == ["a", "b\u2028c\x0bd", "", "e"]
    assert split_lines("a\n") == split_lines("a") == ["a"]
