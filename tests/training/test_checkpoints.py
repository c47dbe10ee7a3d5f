"""Checkpoint files that are whole, and those that are not."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch

from attnlab.errors import UserError
from attnlab.training.checkpoints import AtomicCheckpointIO, load, load_newest

CONTENT = {"weights": torch.arange(600.0), "step": 7, "names": ["a", "b"]}


def save(path: Path, **content: Any) -> bytes:
    AtomicCheckpointIO().save_checkpoint({**CONTENT, **content}, path)
    return path.read_bytes()


def test_what_was_saved_is_read_and_nothing_else_is_left(tmp_path: Path) -> None:
    save(tmp_path / "a.ckpt")
    read = load(tmp_path / "a.ckpt")
    assert torch.equal(read.pop("weights"), CONTENT["weights"])
    assert read == {"step": 7, "names": ["a", "b"]}
    assert [path.name for path in tmp_path.iterdir()] == ["a.ckpt"]


def test_a_bit_flipped_anywhere_is_found_or_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.ckpt"
    whole = save(path)
    found, places = 0, range(0, len(whole), 31)
    for place in places:
        damaged = bytearray(whole)
        damaged[place] ^= 1 << place % 8
        path.write_bytes(damaged)
        try:
            read = load(path)
        except UserError:
            found += 1
        else:
            assert torch.equal(read.pop("weights"), CONTENT["weights"])
            assert read == {"step": 7, "names": ["a", "b"]}
    assert found / len(places) > 0.6  # the rest is padding, and what the archive says twice


def test_torch_itself_does_not_see_a_flipped_bit(tmp_path: Path) -> None:
    """If it did, `load` would need no digest of its own."""
    path = tmp_path / "a.ckpt"
    whole = save(path)
    (entry,) = (e for e in zipfile.ZipFile(path).infolist() if e.filename.endswith("data/0"))
    damaged = bytearray(whole)
    damaged[entry.header_offset + 300] ^= 1
    path.write_bytes(damaged)
    assert not torch.equal(torch.load(path, weights_only=True)["weights"], CONTENT["weights"])
    with pytest.raises(UserError, match=r"a\.ckpt cannot be read, it is cut short, damaged.*force=true"):
        load(path)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.999])
def test_a_file_cut_short_is_found(tmp_path: Path, share: float) -> None:
    path = tmp_path / "a.ckpt"
    whole = save(path)
    path.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(UserError, match="cut short"):
        load(path)


def test_the_newest_whole_one_is_taken(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    last, previous = tmp_path / "last.ckpt", tmp_path / "previous.ckpt"
    assert load_newest(last, previous) is None
    save(previous, step=6)
    assert load_newest(last, previous)[0] == previous  # type: ignore[index]
    whole = save(last)
    path, content = load_newest(last, previous)  # type: ignore[misc]
    assert (path, content["step"]) == (last, 7)
    assert caplog.messages == []

    last.write_bytes(whole[:-1])
    path, content = load_newest(last, previous)  # type: ignore[misc]
    assert (path, content["step"]) == (previous, 6)
    (line,) = caplog.messages
    assert line == f"{last} is damaged: going on from the one before it, previous.ckpt"
    assert not last.exists()  # what is saved next makes the last one the one before: previous.ckpt is safe


def test_none_that_is_whole(tmp_path: Path) -> None:
    last, previous = tmp_path / "last.ckpt", tmp_path / "previous.ckpt"
    for path in (last, previous):
        path.write_bytes(b"")
    with pytest.raises(UserError, match=r"last\.ckpt and previous\.ckpt in .* cannot be read: force=true"):
        load_newest(last, previous)
    assert last.exists()
    assert previous.exists()
