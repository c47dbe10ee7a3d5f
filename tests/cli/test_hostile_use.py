"""Wrong arguments, files and inputs: the exit code, one line of explanation, and no file changed or left.

Each row is (arguments, standard input, exit code, pattern of the message). In the arguments, RUN is a trained
run and FILES the folder of `files`, of damaged and foreign files.
"""

import json
import re
import shlex
import shutil
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from attnlab.files.run_directory import Run
from run_files import write_run

LONG = 300 * "x"
Row = tuple[str, bytes, int, str]

USAGE: list[Row] = [
    *(
        (command, b"", 2, "Unknown command .*: choose from bench")
        for command in ("dance", "''", "-x", "../predict")
    ),
    *(
        (command, b"", 2, "arguments are required")
        for command in ("predict", "report", "evaluate --split val")
    ),
    *(
        (f"{command} --beem 2", b"", 2, "unrecognized arguments: --beem")
        for command in ("predict RUN", "bench")
    ),
    *(
        (f"predict RUN --beam {value}", b"", 2, "--beam: .* is not a whole number ≥ 1")
        for value in ("0", "1.5", "''", "³")
    ),
    *((f"predict RUN {option}", b"", 2, "expected one argument") for option in ("--beam", "--attention")),
    ("predict RUN --nbest 0", b"", 2, "--nbest: '0' is not a whole number ≥ 1"),
    ("predict RUN --nbest 3", b"", 2, "--nbest 3 needs a larger beam: add --beam 3"),
    ("predict RUN --max-length 0", b"", 2, "--max-length: '0' is not a whole number ≥ 1"),
    (f"predict RUN --max-length {10**20}", b"", 2, f"--max-length: '{10**20}' exceeds 2147483647"),
    ("predict RUN search.max_length=1000000000000", b"3\n", 1, "not enough memory: .*allocate"),
    ("predict RUN --strict=yes", b"", 2, "ignored explicit argument 'yes'"),
    ("predict RUN --bea 2", b"", 2, "unrecognized arguments: --bea"),
    ("predict RUN encoder.size=5", b"", 2, "predict changes only search.*, reranking and grammar"),
    ("predict RUN search.top_k=3", b"", 2, "set search.temperature=1"),
    ("predict RUN search.beam_size=0", b"", 2, "search.beam_size=0: must be"),
    ("predict search.beam_size=5", b"", 2, "No RUN to translate with"),
    ("predict RUN --prefix", b"3 4\n", 1, "line 1 of standard input: --prefix needs two columns"),
    *(
        (
            f"predict RUN --attention {name}",
            b"",
            2,
            "the name must end in .png, .svg, .pdf, .jsonl, .html, or be -",
        )
        for name in ("map.eps", "''", ".png", "map.html.gz")
    ),
    *(
        (f"predict RUN --attention {path}", b"3\n", 1, f"{reason}")
        for path, reason in (
            ("FILES/folder.html", "FILES/folder.html is not a file"),
            ("FILES/text.txt/map.html", "cannot be written: Not a directory"),
            (f"{LONG}.html", "cannot be written: File name too long"),
            (f"{LONG[:245]}.jsonl", "cannot be written: File name too long"),
            ("/proc/none/map.html", "/proc/none/map.html cannot be written"),
        )
    ),
    ("evaluate search.beam_size=2", b"", 2, "No RUN to evaluate"),
    ("evaluate '~search.beam_size=3'", b"", 2, "No RUN to evaluate"),
    ("evaluate '~search.beam_size'", b"", 1, "~search.beam_size does not exist"),
    ("evaluate RUN --split train", b"", 2, "--split: invalid choice: 'train'"),
    ("evaluate RUN --split", b"", 2, "expected one argument"),
    *(
        (f"evaluate RUN {override}", b"", 2, reason)
        for override, reason in (
            ("search.beam_sise=2", "Unknown setting 'search.beam_sise' .* Did you mean 'search.beam_size'"),
            ("nonsense=2", "Unknown setting 'nonsense'"),
            ("decoder.layers=3", "decoder.layers cannot change after training"),
            ("batching.source_eos=true", "cannot change after training"),
            ("normaliser.temperature=0.1", "normaliser.temperature cannot change after training"),
            ("data.test_lengths=13,24", r"give one value, as data.test_lengths=VALUE; a list is \[A,B\]"),
            ("search.length_penalty=x", r"search.length_penalty=x: must be a number in \[0, 10\]"),
            ("trainer.precision=17", "trainer.precision=17: must be auto, 32-true"),
            ("data=pairs", "data is a group; give its single settings"),
            ("search.beam_size=1,2", "give one value"),
            ("'search.beam_size=['", "attnlab: "),
            ("+search.beam_size=2", "give one value|Unknown setting"),
            ("reranking=pyton", "Unknown reranking 'pyton'.* Did you mean 'python'"),
            ("attention_override=unifrom", "attention_override=unifrom: must be uniform, shuffled"),
            ("trainer.accelerator=tpux", "trainer.accelerator=tpux"),
        )
    ),
    ("evaluate RUN 'data.test_lengths=[5,2]'", b"", 2, "data.test_lengths"),
    ("evaluate RUN RUN attention_override=uniform", b"", 2, "needs a single network: give one run"),
    ("report RUN -o page.pdf", b"", 2, "-o page.pdf: the name must end in .html"),
    ("report RUN -o ''", b"", 2, "-o .*: the name must end in .html"),
    ("report RUN -o", b"", 2, "expected one argument"),
    ("report RUN --metric", b"", 2, "expected at least one argument"),
    ("report RUN --metric test/blue", b"", 2, "No finished run has the metric 'test/blue': choose from"),
    ("export RUN", b"", 2, "the following arguments are required: --onnx"),
    ("export nowhere --onnx a", b"", 1, "nowhere does not exist"),
    ("export RUN --onnx FILES", b"", 1, "--onnx FILES: the folder contains other files"),
    ("completion x", b"", 2, "unrecognized arguments: x"),
    ("completion --line", b"", 2, "expected one argument"),
    *(
        (f"serve RUN {option}", b"", 2, reason)
        for option, reason in (
            ("--host ''", "--host: it is empty: give an address"),
            ("--port 65536", "'65536' is not a whole number from 0 to 65535"),
            ("--port 80.5", "'80.5' is not a whole number from 0 to 65535"),
            ("--connections 0", "--connections: '0' is not a whole number ≥ 1"),
            (f"--connections {2**31}", "--connections: '2147483648' exceeds 2147483647"),
        )
    ),
    ("serve", b"", 2, "arguments are required: RUN"),
    ("serve nowhere --port 0", b"", 1, "nowhere does not exist"),
    ("serve nowhere --host no.such.host.invalid", b"", 1, "Cannot listen on no.such.host.invalid port 8000"),
    ("bench loose", b"", 2, "loose: not a setting; write KEY=VALUE"),
    ("bench +foo=1", b"", 2, "no part of attnlab has a setting 'foo'"),
    ("report RUN --reference nobody", b"", 2, "'nobody' has no finished run. Choose the reference from"),
    *(
        (f"report RUN -o {path}", b"", 1, reason)
        for path, reason in (
            ("FILES/folder.html", "FILES/folder.html is not a file"),
            ("FILES/text.txt/page.html", "cannot be written: Not a directory"),
            (f"{LONG}.html", "cannot be written: File name too long"),
            ("FILES/taken.html", "FILES/taken_files/results.csv cannot be written: Not a directory"),
            ("/proc/none/page.html", "cannot be written"),
        )
    ),
    *(
        (f"bench --{option} {value}", b"", 2, f"--{option}: .* is not a whole number ≥ 1")
        for option, value in (
            *(("rounds", value) for value in ("0", "''")),
            ("batches", "1.0"),
        )
    ),
    ("bench --against fast", b"", 2, "fast: not a setting; write KEY=VALUE"),
    ("bench --lengths 3", b"", 2, "unrecognized arguments: --lengths"),
    *(
        (f"bench --json {path}", b"", 1, reason)
        for path, reason in (
            ("FILES", "FILES is not a file"),
            ("FILES/text.txt/x.json", "cannot be written: Not a directory"),
            ("/dev/full", "/dev/full is not a file"),
            (LONG, "cannot be written: File name too long"),
        )
    ),
    *(
        (f"bench {override}", b"", 2, reason)
        for override, reason in (
            ("encoder.sise=3", "Did you mean 'encoder.size'"),
            ("attention=additve", "Unknown attention 'additve'. Did you mean 'additive'"),
            ("seed=[", "attnlab: "),
            ("trainer.accelerator=tpux", "trainer.accelerator=tpux"),
        )
    ),
    ("bench attention._target_=nowhere.Dot", b"", 1, "nowhere.Dot cannot be imported"),
]

PLACES = [
    ("nowhere", "nowhere does not exist: give a run directory or a checkpoint file"),
    ("''", "is not a run directory"),
    (".", "is not a run directory: it contains no config.yaml"),
    ("FILES/untrained", "contains no checkpoint: train the run first"),
    ("/dev/null", "/dev/null does not exist|/dev/null is not"),
    ("FILES/link", "does not exist"),
    (f"{LONG}", "File name too long"),
    ("FILES/text.txt/x", "does not exist"),
    ("'~nobody/run'", "does not exist"),
    ("FILES/text.txt", "cannot be read: it is truncated, damaged or not a checkpoint"),
    ("FILES/empty.ckpt", "cannot be read: it is truncated, damaged or not a checkpoint"),
    ("FILES/cut.ckpt", "cannot be read: it is truncated, damaged or not a checkpoint"),
    ("FILES/archive.ckpt", "cannot be read"),
    ("FILES/list.ckpt", "is not a checkpoint: it contains a list"),
    ("FILES/lightning.ckpt", "was not written by attnlab"),
    ("FILES/no-config.ckpt", "does not fit this version|was not written"),
    ("FILES/no-vocabularies.ckpt", "does not fit this version"),
    ("FILES/broken-vocabulary.ckpt", "does not fit this version"),
    ("FILES/no-weights.ckpt", "does not fit this version"),
    ("FILES/renamed-weights.ckpt", "does not fit this version"),
    ("FILES/other-shapes.ckpt", "does not fit this version"),
    ("FILES/text-config.ckpt", "does not fit this version"),
    ("FILES/interpolation.ckpt", "contains the interpolation"),
    ("FILES/foreign-class.ckpt", "names the class cosine.Cosine.*: add --trust cosine"),
    ("FILES/foreign-class.ckpt --trust cosine", "cannot be imported: .*Start the command in"),
    ("FILES/foreign-class.ckpt --trust cosine.Cosine", "cannot be imported: .*Start the command in"),
    ("FILES/moved --trust cosine", "Start the command in the folder"),
]
PATHS: list[Row] = [
    *((f"predict {path}", b"3\n", 1, reason) for path, reason in PLACES),
    *((f"evaluate {path}", b"", 1, reason) for path, reason in PLACES[::3]),  # reads them as predict does
]

REPORTS: list[Row] = [
    ("report nowhere", b"", 1, "nowhere does not exist"),
    ("report .", b"", 1, "contains no run directory"),
    ("report ''", b"", 1, "contains no run directory"),
    ("report FILES/text.txt", b"", 1, "contains no run directory"),
    ("report FILES/failed", b"", 1, r"No run is finished \(1 failed\)"),
    ("report FILES/untrained", b"", 1, "No run is finished"),
    ("report FILES/broken", b"", 1, r"No run is finished \(4 broken\)"),
    (f"report {LONG}", b"", 1, "File name too long"),
]

INPUTS: list[Row] = [
    (f"predict RUN {option}", text, 1, f"line {number} of standard input: {reason}")
    for option in ("--strict", "--attention -")
    for text, number, reason in (
        (b"\n", 1, "it is empty"),
        (b"3 4\n \t\n", 2, "it is empty"),
        (b"3 4\r\n\r\n", 2, "it is empty"),
        (b"3 99", 1, "token '99' is not in the vocabulary"),
        (b"3 4\n3\t4\tx\n", 2, "token 'x' is not in the vocabulary"),
        (b"3 4\n3 \xff 4\n", 2, r"byte 3 \(0xff\) is not valid UTF-8"),
        ("3 4".encode("utf-16"), 1, r"byte 1 \(0xff\) is not valid UTF-8"),
        (b"\xef\xbb\xbf\n", 1, "it is empty"),
        (b"3 4\n\xef\xbb\xbf3\n", 2, "token .* is not in the vocabulary"),
        (b"3 \x004\n", 1, "token .* is not in the vocabulary"),
        (b"3 \x1b[31m\n", 1, "token .* is not in the vocabulary"),
        (b"3 " + 100_000 * b"x", 1, "token 'x+…"),
    )
]

ROWS = [*USAGE, *PATHS, *REPORTS, *INPUTS]


@pytest.fixture(scope="module")
def files(trained: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Damaged and foreign files."""
    folder = tmp_path_factory.mktemp("files")
    (folder / "text.txt").write_text("3 4\n")
    (folder / "taken_files").write_text("")
    (folder / "folder.html").mkdir()
    (folder / "empty.ckpt").touch()
    (folder / "link").symlink_to(folder / "none")
    write_run(folder, "additive", status=None, name="untrained")
    write_run(folder, "additive", status="failed", name="failed")
    for seed, text in enumerate(("[]", "{", '{"status": "finished"}', '{"status": "odd"}')):
        write_run(folder, "additive", seed, name="broken").result.write_text(text)
    for run in (folder / "untrained").iterdir():
        run.rename(folder / "run")
        (folder / "untrained").rmdir()
        (folder / "run").rename(folder / "untrained")

    whole = trained.best.read_bytes()
    (folder / "cut.ckpt").write_bytes(whole[: len(whole) // 2])
    shutil.make_archive(str(folder / "archive"), "zip", folder, "text.txt")
    (folder / "archive.zip").rename(folder / "archive.ckpt")
    torch.save([1, 2], folder / "list.ckpt")
    torch.save({"state_dict": {}}, folder / "lightning.ckpt")
    for name, change in CHANGES.items():
        checkpoint = torch.load(trained.best, weights_only=True)
        change(checkpoint)
        torch.save(checkpoint, folder / f"{name}.ckpt")
    moved = Run(folder / "moved")
    moved.checkpoints.mkdir(parents=True)
    moved.config.write_text(trained.config.read_text())
    moved.result.write_text(json.dumps({"status": "finished", "metrics": {"a": 1}, "folder": "/old"}))
    shutil.copy(folder / "foreign-class.ckpt", moved.best)
    return folder


def rename_weights(checkpoint: dict[str, Any]) -> None:
    weights = checkpoint["state_dict"]
    checkpoint["state_dict"] = {name.replace("decoder", "decodr"): value for name, value in weights.items()}


def reshape_weights(checkpoint: dict[str, Any]) -> None:
    weights = checkpoint["state_dict"]
    checkpoint["state_dict"] = {name: value[..., :1].clone() for name, value in weights.items()}


CHANGES: dict[str, Callable[[dict[str, Any]], object]] = {
    "no-config": lambda checkpoint: checkpoint["attnlab"].pop("config"),
    "no-vocabularies": lambda checkpoint: checkpoint["attnlab"].update(vocabularies=[]),
    "broken-vocabulary": lambda checkpoint: checkpoint["attnlab"].update(vocabularies=["{", "{"]),
    "no-weights": lambda checkpoint: checkpoint.pop("state_dict"),
    "renamed-weights": rename_weights,
    "other-shapes": reshape_weights,
    "text-config": lambda checkpoint: checkpoint["attnlab"].update(config="encoder: lstm"),
    "interpolation": lambda checkpoint: checkpoint["attnlab"]["config"].update(variant="${oc.env:HOME}"),
    "foreign-class": lambda checkpoint: checkpoint["attnlab"]["config"]["attention"].update(
        _target_="cosine.Cosine"
    ),
}


def state(*folders: Path) -> dict[str, tuple[int, int]]:
    """Return the size and the time of every file."""
    paths = [path for folder in folders for path in folder.rglob("*")]
    return {str(path): (path.lstat().st_size, path.lstat().st_mtime_ns) for path in paths}


@pytest.mark.slow
@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0].replace(LONG, 'LONG')} < {row[1][:20]!r}")
def test_refused_in_one_line(
    row: Row,
    trained: Run,
    files: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    run_on: Callable[..., tuple[int, list[str], str]],
) -> None:
    arguments, stdin, code, pattern = row
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    before = state(tmp_path, files, trained.directory)
    words = [
        word.replace("RUN", str(trained.directory)).replace("FILES", str(files))
        for word in shlex.split(arguments)
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        ended_with, _, errors = run_on(stdin, *words)
    assert ended_with == code
    (line,) = errors.splitlines()
    assert line.startswith("attnlab: ")
    assert re.search(pattern.replace("FILES", str(files)), line)
    assert "unexpected error" not in line
    assert len(line) < 1000
    assert not {character for character in line if ord(character) < 32}
    assert state(tmp_path, files, trained.directory) == before
