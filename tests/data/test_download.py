import hashlib
from pathlib import Path

import pytest

from attnlab.data.download import download
from attnlab.errors import UserError

CONTENT = b"some data\n" * 1000
HASH = "sha256:" + hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def url(served: tuple[Path, str]) -> str:
    folder, address = served
    (folder / "file.txt").write_bytes(CONTENT)
    return f"{address}/file.txt"


@pytest.mark.parametrize("known_hash", [HASH, None])
def test_file_is_downloaded_once(url: str, served: tuple[Path, str], tmp_path: Path, known_hash: str | None):
    cache = tmp_path / "deep" / "cache"
    path = download(url, known_hash=known_hash, cache=cache)
    assert path.read_bytes() == CONTENT
    assert path.parent == cache
    (served[0] / "file.txt").unlink()
    assert download(url, known_hash=known_hash, cache=str(cache)) == path


def test_wrong_hash_is_an_error_and_leaves_no_file(url: str, tmp_path: Path):
    with pytest.raises(UserError, match=rf"{url} cannot be downloaded .* data.path=FILE") as caught:
        download(url, known_hash="sha256:" + "0" * 64, cache=tmp_path / "cache")
    assert "does not match the known hash" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert list((tmp_path / "cache").iterdir()) == []


def test_damaged_file_in_the_cache_is_downloaded_again(url: str, tmp_path: Path):
    path = download(url, known_hash=HASH, cache=tmp_path / "cache")
    path.write_bytes(CONTENT[:50])
    assert download(url, known_hash=HASH, cache=tmp_path / "cache").read_bytes() == CONTENT


def test_errors_name_the_address(url: str, tmp_path: Path):
    with pytest.raises(UserError, match=rf"{url}x cannot be downloaded to .*404"):
        download(url + "x", known_hash=None, cache=tmp_path / "cache")
    with pytest.raises(UserError, match="nosuch://a/b cannot be downloaded"):
        download("nosuch://a/b", known_hash=None, cache=tmp_path / "cache")
    with pytest.raises(UserError, match="cannot be downloaded"):
        download("http://127.0.0.1:9/file", known_hash=None, cache=tmp_path / "cache")  # no server
    assert list((tmp_path / "cache").iterdir()) == []


def test_errors_name_a_cache_that_cannot_be_written(url: str, tmp_path: Path):
    (tmp_path / "cache").write_text("a file where the folder should be")
    with pytest.raises(UserError, match=rf"to {tmp_path}/cache"):
        download(url, known_hash=None, cache=tmp_path / "cache")
