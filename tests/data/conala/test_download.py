from pathlib import Path

import pytest

from attnlab.data.conala.dataset import download
from attnlab.errors import UserError

CONTENT = b"some data\n" * 1000


@pytest.fixture
def url(served: tuple[Path, str]) -> str:
    folder, address = served
    (folder / "file.txt").write_bytes(CONTENT)
    return f"{address}/file.txt"


def test_file_is_downloaded_once(url: str, served: tuple[Path, str], tmp_path: Path):
    cache = tmp_path / "deep" / "cache"
    path = download(url, cache=cache)
    assert path.read_bytes() == CONTENT
    assert path.parent == cache
    (served[0] / "file.txt").unlink()
    assert download(url, cache=str(cache)) == path


def test_errors_name_the_address(url: str, tmp_path: Path):
    with pytest.raises(UserError, match=rf"{url}x cannot be downloaded to .*404"):
        download(url + "x", cache=tmp_path / "cache")
    with pytest.raises(UserError, match="nosuch://a/b cannot be downloaded"):
        download("nosuch://a/b", cache=tmp_path / "cache")
    with pytest.raises(UserError, match="cannot be downloaded"):
        download("http://127.0.0.1:9/file", cache=tmp_path / "cache")  # no server
    assert list((tmp_path / "cache").iterdir()) == []


def test_errors_name_a_cache_that_cannot_be_written(url: str, tmp_path: Path):
    (tmp_path / "cache").write_text("a file where the folder should be")
    with pytest.raises(UserError, match=rf"to {tmp_path}/cache"):
        download(url, cache=tmp_path / "cache")
