"""`attnlab export`: the files, translate.py and the page, compared with `attnlab predict`."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import onnx
import pytest

from attnlab.cli.main import run as run_command
from attnlab.deploy.export import folder
from attnlab.deploy.export.graphs import Graphs
from attnlab.errors import UserError
from attnlab.training.checkpoints import read_checkpoint, read_contents, save_checkpoint
from browser import Page, browser
from commands import attnlab
from exports import WORDS, sentences, write_checkpoint

TEXTS = sentences(50, unknown=True)
TRANSLATE = """function translate(sentence) {
    const source = read(sentence), steps = [...decode(source)];
    return {
        text: textOf(steps, source.copied),
        tokens: steps.map(({ label }) => label),
        weights: steps.map(({ weights }) => [...weights]),
    };
}"""
"""Returns the output of the page's functions for a sentence, without drawing."""


class Export(NamedTuple):
    """A checkpoint, its exports, and its predictions for `TEXTS`."""

    checkpoint: Path
    onnx: Path
    page: Path
    predicted: list[str]


@pytest.fixture(scope="module")
def export(tmp_path_factory: pytest.TempPathFactory) -> Export:
    path = tmp_path_factory.mktemp("export")
    checkpoint = write_checkpoint(
        path, "attention=coverage_tu", "decoder=luong", "encoder.layers=2", "readout=pointer_generator"
    )
    exported = attnlab("export", str(checkpoint), "--onnx", "onnx", "--page", "page.html", folder=path)
    assert [line.split()[0] for line in exported.stdout.splitlines()] == ["page.html", "onnx"]
    predicted = attnlab("predict", str(checkpoint), folder=path, stdin="".join(f"{t}\n" for t in TEXTS))
    lines = predicted.stdout.splitlines()
    assert len(set(lines)) > 25, "the outputs must differ, or the comparison shows nothing"
    return Export(checkpoint, path / "onnx", path / "page.html", lines)


@pytest.fixture(scope="module")
def tab(export: Export, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with browser(tmp_path_factory.mktemp("browser")) as opened:
        opened.open(export.page)
        yield opened


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
def test_exports_of_a_large_vocabulary_equal_predict(tmp_path: Path) -> None:
    words = [f"w{number}" for number in range(130_000)]
    texts = [" ".join(words[first : first + 100]) for first in range(0, len(words), 100)]
    checkpoint = write_checkpoint(tmp_path, texts=texts)
    attnlab("export", str(checkpoint), "--onnx", "onnx", "--page", "page.html", folder=tmp_path)
    lines = ["w129999 w7 w65536", "w1"]
    text = "".join(f"{line}\n" for line in lines)
    predicted = attnlab("predict", str(checkpoint), folder=tmp_path, stdin=text).stdout
    assert len(set(predicted.split())) > 3
    program = [sys.executable, "translate.py"]
    done = subprocess.run(
        program, cwd=tmp_path / "onnx", input=text, capture_output=True, text=True, check=True
    )
    assert done.stdout == predicted
    with browser(tmp_path / "browser") as tab:
        tab.open(tmp_path / "page.html")
        outputs = tab.run(f"{TRANSLATE} {json.dumps(lines)}.map(text => translate(text).text)")
    assert outputs == predicted.splitlines()


@pytest.mark.slow
def test_translate_script_reports_bad_lines_by_number(tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir()
    closed = ["data=synthetic", "data.train_size=9"]
    encoder = ["encoder=convolutional", "encoder.positions=learned", "encoder.max_positions=6"]
    checkpoint = write_checkpoint(tmp_path / "closed", *closed, *encoder)
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
    assert translated(b"\xef\xbb\xbf3 4\r\n5 4 3") == (0, [output[0], output[-1]], [])


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
    checkpoint["attnlab"]["config"]["data"]["preparation"] = {
        "_target_": "attnlab.data.conala.dataset.Preparation"
    }
    path = tmp_path / "prepared.ckpt"
    save_checkpoint(checkpoint, path)
    assert run_command(["export", str(path), "--page", str(tmp_path / "a.html")]) == 1
    assert "data.preparation changes a sentence before the network reads it" in capsys.readouterr().err


@pytest.mark.slow
def test_page_equals_predict(export: Export, tab: Page) -> None:
    assert tab.run(f"{TRANSLATE} {json.dumps(TEXTS)}.map(text => translate(text).text)") == export.predicted
    assert tab.errors() == []
    assert tab.requests() == [export.page.as_uri()]


@pytest.mark.slow
def test_page_draws_attention_while_it_decodes(export: Export, tab: Page) -> None:
    outputs = dict(zip(TEXTS, export.predicted, strict=True))
    text = next(text for text, output in outputs.items() if len(output.split()) > 3)
    tab.run(f"$('sentence').value = {json.dumps(text)}; $('speed').value = '0'; $('sentence').focus()")
    tab.press("Enter")
    tab.run("""new Promise(done => {
        const wait = () => (state.finished && !state.playing ? done() : setTimeout(wait));
        wait();
    })""")
    result = tab.run(f"{TRANSLATE} translate({json.dumps(text)})")
    assert tab.each("#output .token", "e.textContent") == result["tokens"]
    assert tab.each("#source .token", "e.firstChild.textContent") == text.split()
    assert tab.each(".map .rows span", "e.textContent") == result["tokens"]
    lit, places = "Number(e.style.getPropertyValue('--w'))", (".map .columns span", "#source .token")
    for row in range(2):
        tab.point_at(".map .rows span", row)
        for tokens in places:
            assert tab.each(tokens, lit) == pytest.approx(result["weights"][row], abs=6e-4)
        tab.run("document.getAnimations().forEach(transition => transition.finish())")
        colours = [tab.each(tokens, "getComputedStyle(e).backgroundColor") for tokens in places]
        assert colours[0] == colours[1]
    assert tab.run("$('status').textContent") == f"Output: {result['text']}"
    tab.run("document.querySelector('#output .now').focus()")
    tab.press("Home")
    assert tab.run("[document.activeElement.textContent, $('position').textContent]") == [
        result["tokens"][0],
        f"1 of {len(result['tokens'])}",
    ]
    assert tab.run("window.harmed") is None
    assert tab.errors() == []


@pytest.mark.slow
def test_page_names_its_controls(tab: Page) -> None:
    name = "e.ariaLabel || e.textContent || e.labels?.length || e.getAttribute('aria-labelledby')"
    assert all(tab.each("button, select, textarea, input, [role=region], section", f"Boolean({name})"))


@pytest.mark.slow
def test_page_marks_unknown_words_and_rejects_empty_input(tab: Page) -> None:
    tab.run("start('horse zebra')")
    assert tab.each("#source .unknown", "e.firstChild.textContent") == ["zebra"]
    tab.run("start('   ')")
    assert "none of these tokens" in tab.run("$('message').textContent")
    assert set(WORDS) - {"<unk>"} <= set(tab.run("sourceTokenizer.pieces"))
