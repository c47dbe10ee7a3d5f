"""`attnlab average`: the mean of the weights of a run's kept checkpoints."""

from pathlib import Path

import pytest
import torch

from attnlab.errors import UserError
from attnlab.files.run_directory import Run
from attnlab.training.checkpoints import average_checkpoints
from commands import attnlab


@pytest.mark.slow
def test_average_is_the_mean_of_the_last_checkpoints(trained: Run, folder: Path) -> None:
    assert [path.name for path in trained.kept_checkpoints()] == [
        "epoch-10.ckpt",
        "epoch-11.ckpt",
        "epoch-12.ckpt",
    ]
    completed = attnlab("average", str(trained.directory), "--last", "2", folder=folder)
    assert completed.stdout.splitlines() == ["mean of epoch-11.ckpt, epoch-12.ckpt", str(trained.average)]
    one, two, mean = (
        torch.load(path, weights_only=True)["state_dict"]
        for path in (*trained.kept_checkpoints()[1:], trained.average)
    )
    last = torch.load(trained.last, weights_only=True)["state_dict"]
    assert mean.keys() == one.keys()
    for name, value in mean.items():
        assert torch.equal(two[name], last[name])
        assert value.dtype == one[name].dtype
        torch.testing.assert_close(value, (one[name] + two[name]) / 2)
    assert any((one[name] != two[name]).any() for name in one)
    predicted = attnlab("predict", str(trained.average), folder=folder, stdin="3 4\n")
    assert predicted.stdout == "4 3\n"


@pytest.mark.slow
def test_too_few_checkpoints_are_an_error(trained: Run, folder: Path) -> None:
    completed = attnlab("average", str(trained.directory), "--last", "5", folder=folder, code=1)
    assert "has 3 kept checkpoints, and 5 are to be averaged" in completed.stderr
    assert "checkpoint.keep=5 force=true" in completed.stderr


def test_checkpoints_of_different_networks_are_not_averaged(tmp_path: Path) -> None:
    paths = [tmp_path / "epoch-1.ckpt", tmp_path / "epoch-2.ckpt"]
    for size, path in enumerate(paths, start=2):
        torch.save({"state_dict": {"weight": torch.ones(size)}, "attnlab": {}}, path)
    with pytest.raises(UserError, match="their parameters differ"):
        average_checkpoints(paths)
    torch.save({"state_dict": {}}, paths[0])
    with pytest.raises(UserError, match="was not written by attnlab"):
        average_checkpoints(paths)
