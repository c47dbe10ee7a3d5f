"""Commands on checkpoints, run directories and folders of other people: nothing in them is executed."""

import pickle
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import DictConfig, OmegaConf

from attnlab.cli import main
from attnlab.data.tokenization.train import symbols
from attnlab.files.run_directory import Run
from commands import TINY_REVERSE, attnlab
from run_files import write_run

SECRET = "correct-horse-battery-staple"

COSINE = """
from attnlab.nn.attention import Dot

class Cosine(Dot):
    pass
"""

Config = dict[str, Any]


def command_target(marker: Path) -> dict[str, str]:
    """Return a config node that creates the marker file when it is instantiated."""
    return {"_target_": "sympy.sympify", "a": f"__import__('os').system('touch {marker}')"}


def write_checkpoint(path: Path, config: Config) -> Path:
    vocabulary = symbols(["3 4"], count=2).to_json()
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {"config": config, "vocabularies": [vocabulary, vocabulary], "wandb_id": ""}
    torch.save({"attnlab": content, "state_dict": {}}, path)
    return path


@pytest.fixture
def config(composed: Callable[..., DictConfig]) -> Config:
    resolved = composed("embedding.size=4", "encoder.size=4", "decoder.size=4", "data.train_size=9")
    OmegaConf.resolve(resolved)
    return OmegaConf.to_container(resolved)


def assert_refused(completed: subprocess.CompletedProcess[str], *messages: str) -> None:
    assert completed.stdout == ""
    (line,) = completed.stderr.splitlines()
    assert line.startswith("attnlab: ")
    for message in messages:
        assert message in line


@pytest.mark.parametrize("command", ["predict", "evaluate"])
@pytest.mark.parametrize("group", ["encoder", "data"])
def test_malicious_checkpoint_is_refused(command: str, group: str, config: Config, tmp_path: Path) -> None:
    marker = tmp_path / "executed"
    if group == "data":
        config["data"]["preparation"] = command_target(marker)
    else:
        config[group] = command_target(marker)
    path = write_checkpoint(tmp_path / "model.ckpt", config)
    completed = attnlab(command, str(path), folder=tmp_path, stdin="3\n", code=1)
    assert_refused(completed, f"{path} names the class sympy.sympify", "--trust sympy")
    assert not marker.exists()


@pytest.mark.slow
def test_malicious_checkpoint_would_run_if_it_were_trusted(config: Config, tmp_path: Path) -> None:
    """The code of the previous test runs if its class is trusted, so that test can fail."""
    marker = tmp_path / "executed"
    config["normaliser"] = command_target(marker)
    path = write_checkpoint(tmp_path / "model.ckpt", config)
    trusted = ("--trust", "sympy.sympify")
    completed = attnlab("predict", str(path), *trusted, folder=tmp_path, stdin="3\n", code=1)
    assert marker.exists(), completed.stderr


class CreatesFile:
    """Object that creates a file when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.marker,)


@pytest.mark.parametrize("save", [torch.save, lambda value, path: path.write_bytes(pickle.dumps(value))])
def test_pickle_in_place_of_a_checkpoint_is_refused(save: Callable[[Any, Path], Any], tmp_path: Path) -> None:
    marker, path = tmp_path / "executed", tmp_path / "model.ckpt"
    save({"state_dict": CreatesFile(marker)}, path)
    done = attnlab("predict", str(path), folder=tmp_path, stdin="3\n", code=1)
    assert_refused(done, "model.ckpt cannot be read")
    assert not marker.exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    "change",
    [
        lambda config: config.clear(),
        lambda config: config.update(encoder="lstm"),
        lambda config: config["decoder"].update(unknown=3),
        lambda config: config["encoder"].update(_target_="attnlab.nn.encoders.NoSuchEncoder"),
    ],
    ids=["empty", "wrong type", "unknown argument", "unknown class"],
)
def test_checkpoint_with_other_contents_is_a_one_line_error(
    change: Callable[[Config], None], config: Config, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change(config)
    path = write_checkpoint(tmp_path / "model.ckpt", config)
    assert main.run(["predict", str(path)]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("attnlab: ")


@pytest.mark.parametrize("command", ["predict", "evaluate"])
def test_interpolations_of_a_checkpoint_are_refused(command: str, config: Config, tmp_path: Path) -> None:
    config["variant"] = "${oc.env:SECRET}"
    path = write_checkpoint(tmp_path / "model.ckpt", config)
    completed = attnlab(command, str(path), folder=tmp_path, stdin="3\n", code=1, SECRET=SECRET)
    assert_refused(completed, "contains the interpolation '${oc.env:SECRET}' at config.variant")
    assert SECRET not in completed.stderr


def test_malicious_run_directory(config: Config, tmp_path: Path) -> None:
    marker = tmp_path / "executed"
    run = write_run(tmp_path / "outputs", "additive", sentences=[("a", "b", "b")])
    settings = OmegaConf.load(run.config)
    settings.variant = "${oc.env:SECRET}"
    settings.encoder = {"size": "${oc.env:SECRET}", **command_target(marker)}
    run.config.write_text(OmegaConf.to_yaml(settings))
    write_run(tmp_path / "outputs", "none", sentences=[("a", "b", "c")])
    write_checkpoint(run.best, {**config, "encoder": command_target(marker)})

    for command in ("predict", "evaluate"):
        completed = attnlab(command, str(run.directory), folder=tmp_path, stdin="3\n", code=1, SECRET=SECRET)
        assert_refused(completed, "names the class sympy.sympify")
    completed = attnlab("report", "outputs", folder=tmp_path, SECRET=SECRET)
    assert not marker.exists()
    written = [
        path for path in tmp_path.rglob("*") if path.is_file() and not path.is_relative_to(run.directory)
    ]
    assert any(path.suffix == ".html" for path in written)
    assert not [path for path in written if SECRET.encode() in path.read_bytes()]
    assert SECRET not in completed.stdout + completed.stderr


@pytest.mark.slow
def test_files_of_the_current_folder_replace_no_packages(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    (folder / "hydra_plugins" / "evil").mkdir(parents=True)
    for name in ("omegaconf", "torch", "hydra", "numpy", "yaml", "hydra_plugins/evil/__init__"):
        (folder / f"{name}.py").write_text("from pathlib import Path\nPath('executed').touch()\n")
    (folder / "cosine.py").write_text(COSINE)
    overrides = [*TINY_REVERSE, "trainer.max_epochs=1"]

    def program(*arguments: str) -> subprocess.CompletedProcess[str]:
        return attnlab(*arguments, folder=folder, stdin="3 4\n", process=subprocess.Popen)

    program("train", *overrides, "attention=dot", "attention._target_=cosine.Cosine")
    (directory,) = (folder / "outputs" / "reverse").iterdir()
    run = Run(directory)
    program("report", "outputs")
    for command in ("predict", "evaluate"):
        untrusted = attnlab(command, str(directory), folder=folder, stdin="3 4\n", code=1)
        assert_refused(
            untrusted,
            f"{run.best} names the class cosine.Cosine, which is not part of attnlab: add --trust cosine",
        )
        attnlab(command, str(directory), "--trust", "cosine", folder=folder, stdin="3 4\n")
        elsewhere = attnlab(
            command, str(directory), "--trust", "cosine", folder=tmp_path, stdin="3 4\n", code=1
        )
        assert_refused(elsewhere, "cosine.Cosine", "Start the command in the folder")
    assert not (folder / "executed").exists()
