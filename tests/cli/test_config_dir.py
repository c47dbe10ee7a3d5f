"""Options and modules of a user's own folder, in every command that composes options."""

from pathlib import Path

import pytest

from attnlab.cli.main import run
from attnlab.config.options import config_dirs, keys_of, options_of, user_folders
from commands import attnlab
from tiny_runs import SYNTHETIC, TINY

MODULE = """
from attnlab.nn.encoders import BagEncoder


class Halves(BagEncoder):
    pass


def ends_in_one(text):
    return text.endswith("1")
"""

OPTIONS = {
    "encoder/halves.yaml": "_target_: own_parts.Halves\nsize: 8\n",
    "reranking/ones.yaml": "coverage_penalty: 0.0\n"
    "accepts: {_target_: own_parts.ends_in_one, _partial_: true}\n",
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    for name, content in OPTIONS.items():
        path = folder / "conf" / name
        path.parent.mkdir(parents=True)
        path.write_text(content)
    (folder / "own_parts.py").write_text(MODULE)
    return folder


@pytest.mark.slow
def test_options_and_modules_of_a_folder_are_found_by_training_and_evaluation(
    project: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    tiny = (*TINY, *SYNTHETIC, "trainer.max_epochs=1", "logger=none", "callbacks.attention_figures.count=0")
    attnlab("train", "--config-dir", "../project/conf", "encoder=halves", *tiny, folder=folder)
    (result,) = folder.glob("outputs/*/*/result.json")
    evaluation = ("evaluate", str(result.parent), "--trust", "own_parts")
    attnlab(*evaluation, "reranking=ones", "--config-dir=../project/conf", folder=folder)


def test_options_of_a_folder_are_listed_inside_the_block_only(project: Path) -> None:
    with config_dirs([str(project / "conf")]):
        assert {"halves", "recurrent"} < {*options_of("encoder")}
        assert keys_of("encoder", "halves") == {"size"}
    assert "halves" not in options_of("encoder")
    assert not user_folders()


@pytest.mark.parametrize("command", ["train", "evaluate", "predict"])
def test_an_option_with_the_name_of_a_shipped_one_is_refused(
    command: str, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "conf" / "encoder" / "bag.yaml").write_text("size: 8\n")
    assert run([command, "--config-dir", str(project / "conf"), "encoder=bag"]) == 2
    assert "attnlab has an option encoder=bag of its own. Rename the file" in capsys.readouterr().err


def test_two_folders_with_one_option_and_broken_files_are_named(project: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    (other / "encoder").mkdir(parents=True)
    for folder in (project / "conf", other):
        (folder / "encoder" / "mine.yaml").write_text("size: 8\n")
    folders = [f"--config-dir={project / 'conf'}", f"--config-dir={other}"]
    refused = attnlab("train", *folders, "--cfg", "job", folder=tmp_path, code=2)
    assert f"{other / 'encoder' / 'mine.yaml'}: {project / 'conf'}" in refused.stderr
    for text, message in (("a: [1", "while parsing a flow sequence"), ("- 1", "is a mapping of settings")):
        (other / "encoder" / "mine.yaml").write_text(text)
        error = attnlab("train", folders[1], "encoder=mine", "--cfg", "job", folder=tmp_path, code=2).stderr
        assert "mine.yaml" in error
        assert message in error


@pytest.mark.parametrize(
    ("words", "message"),
    [(["--config-dir", "nowhere"], "nowhere: no such folder"), (["-cd"], "-cd needs a folder of options")],
)
def test_folders_that_do_not_exist_are_refused(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["train", *words]) == 2
    assert message in capsys.readouterr().err
