"""`attnlab export`: the files and translate.py, compared with `attnlab predict`."""

import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import onnx
import pytest

from attnlab.cli.main import run as run_command
from attnlab.deploy.export import folder
from attnlab.deploy.export.graphs import Graphs
from attnlab.errors import UserError
from attnlab.training.checkpoints import read_checkpoint, read_contents, save_checkpoint
from commands import attnlab
from exports import sentences, write_checkpoint

TEXTS = sentences(50, unknown=True)


class Export(NamedTuple):
    """A checkpoint, its export, and its predictions for `TEXTS`."""

    checkpoint: Path
    onnx: Path
    predicted: list[str]


@pytest.fixture(scope="module")
def export(tmp_path_factory: pytest.TempPathFactory) -> Export:
    path = tmp_path_factory.mktemp("export")
    checkpoint = write_checkpoint(
        path, "attention=coverage_tu", "decoder=luong", "encoder.layers=2", "readout=pointer_generator"
    )
    exported = attnlab("export", str(checkpoint), "--onnx", "onnx", folder=path)
    assert [line.split()[0] for line in exported.stdout.splitlines()] == ["onnx"]
    predicted = attnlab("predict", str(checkpoint), folder=path, stdin="".join(f"{t}\n" for t in TEXTS))
    lines = predicted.stdout.splitlines()
    assert len(set(lines)) > 25, "the outputs must differ, or the comparison shows nothing"
    return Export(checkpoint, path / "onnx", lines)


@pytest.mark.slow
def test_translate_script_equals_predict_without_torch(export: Export) -> None:
    program = (
        "import runpy, sys; runpy.run_path('translate.py', run_name='__main__');"
        "assert not {'torch', 'attnlab'} & {*sys.modules}"
    )
    completed = subprocess.run(
        [sys.executable, "-c", program],
        cwd=export.onnx,
        input="".join(f"{text}\n" for text in TEXTS),
        capture_output=True,
        text=True,
        check=False,
    )
    assert completed.returncode == 0, completed.stderr
    assert completed.stdout.splitlines() == export.predicted


@pytest.mark.slow
def test_export_with_a_large_vocabulary_and_two_layers_equals_predict(tmp_path: Path) -> None:
    words = [f"w{number}" for number in range(130_000)]
    texts = [" ".join(words[first : first + 100]) for first in range(0, len(words), 100)]
    checkpoint = write_checkpoint(tmp_path, "attention=mocha", "decoder.layers=2", texts=texts)
    attnlab("export", str(checkpoint), "--onnx", "onnx", folder=tmp_path)
    lines = ["w129999 w7 w65536", "w1"]
    text = "".join(f"{line}\n" for line in lines)
    predicted = attnlab("predict", str(checkpoint), folder=tmp_path, stdin=text).stdout
    assert len(set(predicted.split())) > 3
    program = [sys.executable, "translate.py"]
    done = subprocess.run(
        program, cwd=tmp_path / "onnx", input=text, capture_output=True, text=True, check=True
    )
    assert done.stdout == predicted


@pytest.mark.slow
def test_translate_script_reports_bad_lines_by_number(tmp_path: Path) -> None:
    closed = ["data=synthetic", "data.train_size=9"]
    encoder = ["encoder=convolutional", "encoder.positions=learned", "encoder.max_positions=6"]
    decoder = ["decoder=luong", "decoder.cell=gru", "decoder.layers=2", "attention=shift"]
    checkpoint = write_checkpoint(tmp_path / "closed", *closed, *encoder, *decoder)
    attnlab("export", str(checkpoint), "--onnx", "onnx", folder=tmp_path)
    lines = [b"3 4", b"", b"3 x", b"3 \xe9 4", b"3 4 5 6 7 8 9", b"\xef\xbb\xbf3", b"5 4 3"]
    program = [sys.executable, str(tmp_path / "onnx" / "translate.py")]

    def translated(content: bytes) -> tuple[int, list[str], list[str]]:
        done = subprocess.run(program, input=content, capture_output=True, check=False)
        return done.returncode, done.stdout.decode().splitlines(), done.stderr.decode().splitlines()

    code, output, errors = translated(b"".join(line + b"\n" for line in lines))
    assert code == 1
    assert [bool(line) for line in output] == [True, False, False, False, False, False, True]
    assert [error.split(": ")[1] for error in errors] == [f"line {number}" for number in range(2, 7)]
    predicted = attnlab("predict", str(checkpoint), folder=tmp_path, stdin="3 4\n5 4 3\n").stdout
    assert [output[0], output[-1]] == predicted.splitlines()
    assert translated(b"\xef\xbb\xbf3 4\r\n5 4 3") == (0, predicted.splitlines(), [])


@pytest.mark.slow
def test_int8_replaces_an_earlier_export_with_smaller_graphs(export: Export, tmp_path: Path) -> None:
    config, vocabularies = read_contents(read_checkpoint(export.checkpoint), export.checkpoint)
    graphs = Graphs(*(onnx.load(export.onnx / f"{name}.onnx") for name in Graphs._fields))
    target = tmp_path / "onnx"
    for int8 in (False, True):
        folder.write(target, graphs, config, vocabularies, int8=int8)
    assert {path.name for path in target.iterdir()} == {path.name for path in export.onnx.iterdir()}
    operators = {node.op_type for node in onnx.load(target / "step.onnx").graph.node}
    assert "MatMulInteger" in operators
    assert [path.name for path in tmp_path.iterdir()] == ["onnx"]


@pytest.mark.slow
def test_failing_write_keeps_the_earlier_export(
    export: Export, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, vocabularies = read_contents(read_checkpoint(export.checkpoint), export.checkpoint)
    target = tmp_path / "onnx"
    target.mkdir()
    (target / "export.json").write_text("{}")
    monkeypatch.setattr(folder.shutil, "copyfile", lambda *_: (_ for _ in ()).throw(OSError(28, "No space")))
    graphs = Graphs(*(onnx.load(export.onnx / f"{name}.onnx") for name in Graphs._fields))
    with pytest.raises(OSError, match="No space"):
        folder.write(target, graphs, config, vocabularies, int8=False)
    assert [path.name for path in tmp_path.rglob("*")] == ["onnx", "export.json"]


def test_folder_with_other_files_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    assert run_command(["export", "nowhere", "--onnx", str(tmp_path)]) == 1
    assert "the folder contains other files" in capsys.readouterr().err
    with pytest.raises(UserError, match="is a file"):
        folder.check(tmp_path / "thesis.txt")
    assert (tmp_path / "thesis.txt").read_text() == "mine"


def test_prepared_sources_are_refused(
    export: Export, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoint = read_checkpoint(export.checkpoint)
    preparation = {"_target_": "attnlab.data.conala.dataset.Preparation"}
    checkpoint["attnlab"]["config"]["data"]["preparation"] = preparation
    path = tmp_path / "prepared.ckpt"
    save_checkpoint(checkpoint, path)
    assert run_command(["export", str(path), "--onnx", str(tmp_path / "onnx")]) == 1
    assert "data.preparation changes a sentence before the network reads it" in capsys.readouterr().err
