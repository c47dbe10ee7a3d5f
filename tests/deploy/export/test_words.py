"""Exports of networks that read features: `translate.py`, compared with `attnlab predict`."""

import subprocess
import sys
from pathlib import Path

import pytest

from commands import attnlab
from exports import write_checkpoint

FEATURES = ("N;ACC", "N;ABL(PL;PSS(2,PL))", "V;PST", "V")
WORDS = ("deve x", "deve y", "at x", "at y", "ev x", "ev y")
LINES = [f"{words}\t{features}" for words in WORDS for features in FEATURES]


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        ("readout=pointer_generator", "attention=hard"),
        (
            *("features=linear", "attention=location", "normaliser.alpha=1.5"),
            *("decoder=luong", "decoder.cell=gru"),
        ),
    ],
    ids=lambda options: options[0],
)
def test_exports_read_features_like_predict(options: tuple[str, ...], tmp_path: Path) -> None:
    columns = ("data.features_column=1", "data.target_column=2")  # the targets are the texts
    checkpoint = write_checkpoint(tmp_path, *options, *columns, texts=LINES * 5)
    attnlab("export", str(checkpoint), "--onnx", "onnx", folder=tmp_path)
    lines = [*LINES, "new at\tN;NEW", "ev x\t"]
    text = "".join(f"{line}\n" for line in lines)
    predicted = attnlab("predict", str(checkpoint), folder=tmp_path, stdin=text).stdout.splitlines()
    assert len(set(predicted)) > 2
    program = [sys.executable, str(tmp_path / "onnx" / "translate.py")]
    bad = "at\nat\tN;ACC(\nat\tV)\n\tV\n"
    done = subprocess.run(program, input=bad + text, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == ["", "", "", "", *predicted]
    assert [line.split(": ")[1] for line in done.stderr.splitlines()] == [f"line {n}" for n in (1, 2, 3, 4)]


@pytest.mark.slow
def test_exports_read_rows_of_tables_like_predict(tmp_path: Path) -> None:
    columns = ("data.source_column=2", "data.target_column=1")
    texts = [
        f"{number}\t{word}\t{word} {features}"
        for number, (word, _, features) in enumerate(line.partition("\t") for line in LINES * 5)
    ]
    checkpoint = write_checkpoint(tmp_path, *columns, texts=texts)
    attnlab("export", str(checkpoint), "--onnx", "onnx", folder=tmp_path)
    rows = ["5\tat x\tat x N;ACC", "5\tat y N;ACC", "deve x V", "", "8\tdeve y\tev y V;PST\tmore"]
    text = "".join(f"{row}\n" for row in rows)
    predicted = attnlab("predict", str(checkpoint), folder=tmp_path, stdin=text).stdout
    assert len({*predicted.splitlines()}) > 3
    program = [sys.executable, str(tmp_path / "onnx" / "translate.py")]
    done = subprocess.run(program, input=text, capture_output=True, text=True, check=True)
    assert done.stdout == predicted
