"""The commands `attnlab pack` and `attnlab info`."""

from pathlib import Path

import pytest
import torch
import yaml

import attnlab
from attnlab.cli.main import run as run_command
from attnlab.errors import UserError
from attnlab.files.run_directory import Run
from attnlab.training.checkpoints import read_checkpoint, save_checkpoint
from exports import WORDS, write_checkpoint


def test_packed_run_predicts_the_same_and_has_its_scores(
    trained: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_command(["pack", str(trained.directory), "--licence", "CC0", "--citation", "Me | 2026"]) == 0
    (name,) = (path.name for path in tmp_path.iterdir())
    assert capsys.readouterr().out.split()[::2] == [name, "MB"]
    assert read_checkpoint(Path(name)).keys() == {"state_dict", "attnlab"}
    sources = ["3 4 5", "7 7"]
    outputs = [
        [(each.hypothesis, each.score) for each in attnlab.load(model).translate(sources)]
        for model in (trained, name)
    ]
    assert outputs[0] == outputs[1]
    assert run_command(["info", name]) == 0
    card = capsys.readouterr().out
    match = 100 * trained.read_result()["metrics"]["test/exact_match"]
    facts = yaml.safe_load(card.split("```")[1].removeprefix("yaml"))
    assert facts["scores"]["test/exact_match"] == f"{match:.1f} %"
    assert (facts["licence"], facts["citation"]) == ("CC0", "Me | 2026")
    result = trained.read_result()
    assert facts["parameters"] == result["parameters"]
    assert (facts["python"], facts["torch"]) == (result["python"], result["packages"]["torch"])
    assert facts.get("commit") == result["git_commit"]
    assert facts["tokenizers"] == {"source": "symbols", "target": "symbols"}
    assert "Description: not stated." in card

    assert run_command(["pack", str(trained.directory)]) == 1
    assert f"{name} exists" in capsys.readouterr().err
    again = attnlab.pack(name, "again.ckpt", licence="CC BY 4.0")
    assert attnlab.model_card(again) == card.strip().replace(name, "again.ckpt").replace("CC0", "CC BY 4.0")


def test_size_is_that_of_the_weights(tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path, "encoder.size=128", "decoder.size=256", "embedding.size=64")
    content = read_checkpoint(checkpoint)
    weights = content["state_dict"]
    tied = next(name for name in weights if name.endswith("embedding.table.weight"))
    weights["network.tied"] = weights[tied]
    save_checkpoint({**content, "optimizer_states": [weights["network.tied"] + 1]}, checkpoint)
    size = sum(value.nbytes for name, value in weights.items() if name != "network.tied")
    assert attnlab.pack(checkpoint, tmp_path / "a.ckpt").stat().st_size < 1.05 * size
    half = attnlab.pack(checkpoint, tmp_path / "b.ckpt", bf16=True)
    assert half.stat().st_size < 0.55 * size
    stored = read_checkpoint(half)["state_dict"]
    assert all(torch.equal(value.bfloat16(), stored[name]) for name, value in weights.items())
    assert f"parameters: {size // 4}\ntypes:\n- torch.bfloat16\n" in attnlab.model_card(half)


def test_files_of_a_card_are_told_apart(tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path)
    content = read_checkpoint(checkpoint)
    for files, shown in (
        ({"a/b/train.tsv": "1f", "a/b/dev.tsv": "2e"}, {"train.tsv": "1f", "dev.tsv": "2e"}),
        ({"aa/train.tsv": "1f", "bb/train.tsv": "2e"}, {"aa/train.tsv": "1f", "bb/train.tsv": "2e"}),
    ):
        content["attnlab"]["data"] = {"files": files, "splits": {}}
        save_checkpoint(content, checkpoint)
        facts = yaml.safe_load(attnlab.model_card(checkpoint).split("```")[1].removeprefix("yaml"))
        assert facts["sha256"] == shown


def test_weights_of_half_size_are_restored_in_full_precision(tmp_path: Path) -> None:
    half = attnlab.pack(write_checkpoint(tmp_path), tmp_path / "half.ckpt", bf16=True)
    model = attnlab.load(half)
    assert {value.dtype for value in model.network.state_dict().values()} == {torch.float32}
    (output,) = model.translate(" ".join(WORDS[-2:]))
    assert output.tokens


@pytest.mark.parametrize("config", [{}, {"name": 3, "variant": "\x1b[2J", "seed": 0, "data": []}, []])
def test_contents_of_other_files_are_a_one_line_error(
    config: object, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "model.ckpt"
    torch.save({"attnlab": {"config": config}, "state_dict": {}}, path)
    assert run_command(["info", str(path)]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"attnlab: {path} ")
    with pytest.raises(UserError):
        attnlab.pack(path, tmp_path / "packed.ckpt")
