"""`attnlab verify`: a run that is trained again, killed and resumed, has the same results."""

import re
import shutil
import tempfile
from pathlib import Path

import pytest
import torch

from attnlab.files.run_directory import Run
from attnlab.jobs.verification import find_difference, read_outputs
from commands import attnlab

pytestmark = pytest.mark.slow


def copy_of(run: Run, folder: Path) -> Run:
    return Run(Path(shutil.copytree(run.directory, folder / run.directory.name, symlinks=True)))


@pytest.fixture(autouse=True)
def _scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def test_run_that_is_killed_and_resumed_has_the_same_results(trained: Run, tmp_path: Path) -> None:
    completed = attnlab("verify", str(trained.directory), "--kills", "2", folder=tmp_path)
    lines = completed.stdout.splitlines()
    assert len([line for line in lines if line.startswith("kill ")]) == 2
    assert re.fullmatch(r"PASS  kills: 2, trainings: [1-9]", lines[2])  # one may end before its kill
    digests = dict(line.split("  ")[::-1] for line in lines[3:])
    assert {"result.json", "metrics.csv", "predictions/test.jsonl", "checkpoints/last.ckpt"} < {*digests}
    assert not [*tmp_path.iterdir()]


def test_run_with_other_results_fails_at_the_first_difference(trained: Run, tmp_path: Path) -> None:
    run = copy_of(trained, tmp_path)
    text = run.config.read_text()
    assert "  max_epochs: 12\n" in text
    run.config.write_text(text.replace("  max_epochs: 12\n", "  max_epochs: 1\n"))
    run.write_result("finished", python="2.7")
    completed = attnlab("verify", str(run.directory), "--kills", "0", folder=tmp_path, code=1)
    first, place, *others = completed.stdout.splitlines()
    digest = run.read_result()["epoch_digests"][0]
    assert first.startswith(f"FAIL  result.json, epoch_digests.0: {digest!r}, again: ")
    assert place.startswith(f"kills: 0, trainings: 1, the last one in {tmp_path}/attnlab-verify-")
    assert any(line.startswith("different python: 2.7, again: 3.") for line in others)


def test_every_output_is_compared(trained: Run, tmp_path: Path) -> None:
    expected = read_outputs(trained)
    run = copy_of(trained, tmp_path)
    assert find_difference(expected, read_outputs(run)) is None
    checkpoint = torch.load(run.last, weights_only=True)
    name, weight = next(iter(checkpoint["state_dict"].items()))
    weight.view(-1)[0] += 1e-6
    torch.save(checkpoint, run.last)
    assert str(find_difference(expected, read_outputs(run))).startswith(
        f"checkpoints/last.ckpt, state_dict.{name}: "
    )
    path = run.predictions / "test.jsonl"
    path.write_text(path.read_text().replace('"', "'", 1))
    assert str(find_difference(expected, read_outputs(run))).startswith("predictions/test.jsonl, row 1: {")
    rows = run.metrics.read_text().splitlines(keepends=True)
    run.metrics.write_text("".join(["7,7,throughput/x,0.5\n", *rows, "7,7,val/loss,0.5\n"]))
    compared = sum("throughput/" not in row for row in rows)
    difference = f"metrics.csv, row {compared + 1}: missing, again: 7,7,val/loss,0.5"
    assert find_difference(expected, read_outputs(run)) == difference


def test_unfinished_and_incomplete_runs_are_refused(trained: Run, tmp_path: Path) -> None:
    run = copy_of(trained, tmp_path)
    (run.predictions / "test.jsonl").unlink()
    completed = attnlab("verify", str(run.directory), folder=tmp_path, code=1)
    assert completed.stderr.endswith("predictions/test.jsonl was deleted, so that it cannot be compared\n")
    run.write_result("interrupted")
    completed = attnlab("verify", str(run.directory), folder=tmp_path, code=1)
    assert completed.stderr == f"attnlab: {run.directory} is not finished: train it first\n"
