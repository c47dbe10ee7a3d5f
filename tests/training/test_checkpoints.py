"""Intact, truncated and damaged checkpoint files."""

import json
import math
import random
import resource
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from attnlab.data.tokenization import train
from attnlab.errors import UserError
from attnlab.training.callbacks.checkpoints import BestCheckpoint
from attnlab.training.checkpoints import (
    read_checkpoint,
    read_contents,
    read_newest_checkpoint,
    save_checkpoint,
)
from attnlab.training.models import network_weights

CONTENT = {"weights": torch.arange(600.0), "step": 7, "names": ["a", "b"]}


def save(path: Path, **content: Any) -> bytes:
    save_checkpoint({**CONTENT, **content}, path)
    return path.read_bytes()


def test_saved_checkpoint_loads_and_leaves_no_temporary_file(tmp_path: Path) -> None:
    save(tmp_path / "a.ckpt")
    read = read_checkpoint(tmp_path / "a.ckpt")
    assert torch.equal(read.pop("weights"), CONTENT["weights"])
    assert read == {"step": 7, "names": ["a", "b"]}
    assert [path.name for path in tmp_path.iterdir()] == ["a.ckpt"]


def test_every_flipped_bit_and_every_cut_is_detected(tmp_path: Path) -> None:
    path = tmp_path / "a.ckpt"
    whole = save(path)
    draw = random.Random(0)
    places = [(place, draw.randrange(8)) for place in range(0, len(whole), 7)]
    places += [(len(whole) - 1 - place, bit) for place in range(60) for bit in range(8)]
    for place, bit in places:
        damaged = bytearray(whole)
        damaged[place] ^= 1 << bit
        path.write_bytes(damaged)
        with pytest.raises(UserError, match=r"a\.ckpt cannot be read"):
            read_checkpoint(path)
    for length in (*range(0, len(whole), 401), *range(len(whole) - 60, len(whole))):
        path.write_bytes(whole[:length])
        with pytest.raises(UserError, match="truncated"):
            read_checkpoint(path)


def test_file_of_torch_save_is_verified_by_its_entries(tmp_path: Path) -> None:
    path = tmp_path / "foreign.ckpt"
    torch.save(CONTENT, path)
    assert read_checkpoint(path)["step"] == 7
    damaged = bytearray(path.read_bytes())
    damaged[damaged.index(torch.arange(100, 110.0).numpy().tobytes())] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(UserError, match=r"the checksum of .* is wrong"):
        read_checkpoint(path)


def test_folder_in_place_of_a_checkpoint_is_not_called_damaged(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"cannot be read \(Is a directory\)$"):
        read_checkpoint(tmp_path)


def test_compressed_entries_are_refused_without_being_read(tmp_path: Path) -> None:
    """torch would load the file: 16 MiB of zeros in 16 KiB."""
    path, bomb = tmp_path / "stored.ckpt", tmp_path / "bomb.ckpt"
    torch.save({"weights": torch.zeros(2**22)}, path)
    with zipfile.ZipFile(path) as stored, zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as compressed:
        for name in stored.namelist():
            compressed.writestr(name, stored.read(name))
    assert bomb.stat().st_size < 2**15
    with pytest.raises(UserError, match=r"bomb\.ckpt cannot be read.*it is compressed"):
        read_checkpoint(bomb)


def test_empty_vocabularies_are_refused(tmp_path: Path) -> None:
    words = train.whitespace(["a b"])
    empty = json.loads(words.to_json())
    empty["model"]["vocab"] = {}
    contents = {"config": {}, "vocabularies": [words.to_json(), json.dumps(empty)]}
    with pytest.raises(UserError, match=r"x\.ckpt has an empty vocabulary"):
        read_contents({"attnlab": contents}, tmp_path / "x.ckpt")
    contents["vocabularies"] = [words.to_json()] * 2
    assert read_contents({"attnlab": contents}, tmp_path / "x.ckpt")[1].target.size == words.size


def test_full_disk_keeps_the_earlier_checkpoint(tmp_path: Path) -> None:
    """A limit on the size of files fails as a full disk does."""
    path = tmp_path / "a.ckpt"
    whole = save(path)
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limit[1]))
    try:
        with pytest.raises(UserError, match=r"a\.ckpt cannot be written: no space left"):
            save(path, step=8)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert path.read_bytes() == whole
    assert [path.name for path in tmp_path.iterdir()] == ["a.ckpt"]


def test_newest_intact_checkpoint_is_loaded(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    last, previous = tmp_path / "last.ckpt", tmp_path / "previous.ckpt"
    assert read_newest_checkpoint(last, previous) is None
    save(previous, step=6)
    assert read_newest_checkpoint(last, previous)[0] == previous
    whole = save(last)
    path, content = read_newest_checkpoint(last, previous)
    assert (path, content["step"]) == (last, 7)
    assert caplog.messages == []

    last.write_bytes(whole[:-1])
    path, content = read_newest_checkpoint(last, previous)
    assert (path, content["step"]) == (previous, 6)
    (line,) = caplog.messages
    assert line == f"{last} is damaged; resuming from the previous checkpoint previous.ckpt"
    assert not last.exists()  # the next save renames last.ckpt to previous.ckpt, which must stay intact


def test_weights_that_are_not_numbers_are_refused(tmp_path: Path) -> None:
    """A network with such weights translates everything to empty lines."""
    path = tmp_path / "best.ckpt"
    weights = {"network.a": torch.tensor([1.0, -math.inf]), "network.b.bias": torch.tensor([3, 2])}
    assert network_weights({"state_dict": weights}, path).keys() == {"a", "b.bias"}
    weights["network.b.weight"] = torch.tensor([[0.0, math.nan]])
    with pytest.raises(UserError, match=r"best\.ckpt: b\.weight contains NaN"):
        network_weights({"state_dict": weights}, path)


@pytest.mark.parametrize(
    ("monitor", "mode", "worst", "other"),
    [("val/wer", "min", 100.0, 40.0), ("val/exact_match", "max", 0.0, 0.6)],
)
def test_later_checkpoint_replaces_one_without_a_right_output(
    tmp_path: Path, monitor: str, mode: str, worst: float, other: float
) -> None:
    trainer: Any = SimpleNamespace(strategy=SimpleNamespace(reduce_boolean_decision=bool))
    best = BestCheckpoint(tmp_path / "best.ckpt", monitor=monitor, mode=mode)
    for score, replaced in ((worst, True), (other, False)):
        best.best_k_models, best.kth_best_model_path = {"best": torch.tensor(score)}, "best"
        assert best.check_monitor_top_k(trainer, torch.tensor(score)) is replaced
    assert best.check_monitor_top_k(trainer, torch.tensor(worst)) is False


def test_contents_of_a_version_with_other_loss_settings_are_read(tmp_path: Path) -> None:
    words = train.whitespace(["a b"])
    config = {"loss": {"coverage": 1.0}, "callbacks": {"attention_figures": {"count": 4}}, "seed": 1}
    contents = {"config": config, "vocabularies": [words.to_json(), words.to_json()]}
    read, _ = read_contents({"attnlab": contents}, tmp_path / "x.ckpt")
    assert read == {"loss": {"terms": {}}, "callbacks": {}, "logger": {}, "seed": 1}
