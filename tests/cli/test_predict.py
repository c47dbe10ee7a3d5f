"""The command `attnlab predict`."""

import csv
import io
import json
import math
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from attnlab.cli.input_lines import read_lines
from attnlab.files.run_directory import Run
from commands import ATTNLAB, attnlab, clean_environment
from exports import write_checkpoint
from forked import ForkedProcess

RunOn = Callable[..., tuple[int, list[str], str]]


def test_predict_translates_line_by_line(trained: Run, folder: Path) -> None:
    samples = [json.loads(line) for line in (trained.predictions / "test.jsonl").read_text().splitlines()]
    sources = "".join(f"{sample['source']}\n" for sample in samples)
    completed = attnlab("predict", str(trained.directory), folder=folder, stdin=sources)
    assert completed.stdout.splitlines() == [sample["hypothesis"] for sample in samples]
    assert completed.stderr == ""


def test_predict_needs_only_the_checkpoint_file(trained: Run, tmp_path: Path) -> None:
    lone = tmp_path / "model.ckpt"
    lone.write_bytes(trained.best.read_bytes())
    assert attnlab("predict", str(lone), folder=tmp_path, stdin="3 4\n").stdout == "4 3\n"


def test_predict_n_best_and_attention(trained: Run, tmp_path: Path) -> None:
    arguments = ["--beam", "3", "--nbest", "2", "--attention", "weights.jsonl"]
    completed = attnlab("predict", str(trained.directory), *arguments, folder=tmp_path, stdin="3 4 5\n4 7\n")
    rows = [*csv.DictReader(completed.stdout.splitlines(), delimiter="\t")]
    assert [(row["line"], row["rank"]) for row in rows] == [("1", "1"), ("1", "2"), ("2", "1"), ("2", "2")]
    assert [rows[0]["input"], rows[0]["output"], rows[3]["input"]] == ["3 4 5", "5 4 3", "4 7"]
    for row in rows:
        length = len(row["output"].split()) + 1
        assert float(row["score"]) == pytest.approx(float(row["log_p"]) / length, abs=1e-3)
        assert float(row["p"]) == pytest.approx(math.exp(float(row["log_p"])), abs=1e-3)
        assert float(row["p"]) <= float(row["p_beam"]) <= 1
    records = [json.loads(line) for line in (tmp_path / "weights.jsonl").read_text().splitlines()]
    assert records[0]["source_tokens"] == ["3", "4", "5"]
    assert records[0]["tokens"] == ["5", "4", "3", "<eos>"]
    assert [sum(row) for row in records[0]["weights"]] == pytest.approx([1.0] * 4, abs=1e-3)

    completed = attnlab(
        "predict", str(trained.directory), "--attention", "map.png", folder=tmp_path, stdin="3 4\n7 7\n"
    )
    assert sorted(path.name for path in tmp_path.glob("*.png")) == ["map-1.png", "map-2.png"]


@pytest.mark.slow
def test_predict_imports_no_packages_of_training(trained: Run) -> None:
    """The run was logged with Weights & Biases, whose logger its configuration names."""
    code = "import sys, attnlab.cli.main as m; m.run(['predict', sys.argv[1]]); print(*sys.modules)"
    command = [sys.executable, "-c", code, str(trained.directory)]
    completed = subprocess.run(command, input="3 4\n", capture_output=True, text=True, check=True)
    output, modules = completed.stdout.splitlines()
    assert output == "4 3"
    heavy = {
        "lightning",
        "torchmetrics",
        "wandb",
        "sacrebleu",
        "scipy",
        "matplotlib",
        "pandas",
        "torch._dynamo",
    }
    assert not heavy & {*modules.split()}


@pytest.mark.slow
def test_predict_writes_attention_to_terminal_and_page(trained: Run, tmp_path: Path) -> None:
    arguments = ["predict", str(trained.directory), "--attention"]
    completed = attnlab(*arguments, "-", folder=tmp_path, stdin="3 4 5\n")
    output, _, head, *rows = completed.stdout.splitlines()
    assert output == "5 4 3"
    assert head.split() == ["3", "4", "5", "p"]
    assert [row[:5].strip() for row in rows[:4]] == ["5", "4", "3", "<eos>"]
    assert [row[7:16].index(max(row[7:16], key=" ░▒▓█".index)) // 3 for row in rows[:3]] == [2, 1, 0]
    assert "\x1b" not in completed.stdout  # no colours outside a terminal

    options = ["--beam", "2", "--nbest", "2"]
    completed = attnlab(*arguments, "explorer.html", *options, folder=tmp_path, stdin="3 4 5\n4 7\n")
    match = re.search(
        r'<script type="application/json" id="data">(.*?)</script>', (tmp_path / "explorer.html").read_text()
    )
    data = json.loads(match[1])
    assert [variant["name"] for variant in data["variants"]] == ["additive · 1", "additive · 2"]
    assert [sentence["source"] for sentence in data["sentences"]] == ["3 4 5", "4 7"]
    assert data["sentences"][0]["outputs"][0]["tokens"] == ["5", "4", "3", "<eos>"]


LINES = b"\xef\xbb\xbf3 4\n\n3 99\n5 \xff 3\n4 3\n"
PROBLEMS = [
    "attnlab: line 2 of standard input: it is empty; every line must contain a sentence",
    "attnlab: line 3 of standard input: token '99' is not in the vocabulary 3 … 7. Use only these symbols, "
    "separated by spaces",
    "attnlab: line 4 of standard input: byte 3 (0xff) is not valid UTF-8: convert the input, for example "
    "with iconv -f latin1 -t utf-8",
]


def predict(run: Run, *options: str, folder: Path, stdin: bytes) -> tuple[int, list[str], list[str]]:
    """Return the exit code and the lines of standard output and standard error."""
    with ForkedProcess(
        [ATTNLAB, "predict", str(run.directory), *options],
        cwd=folder,
        env=clean_environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        output, errors = process.communicate(stdin, timeout=60)
    return process.returncode, output.decode().splitlines(), errors.decode().splitlines()


def test_bad_lines_are_reported_with_their_numbers(trained: Run, tmp_path: Path) -> None:
    code, output, errors = predict(trained, "--attention", "new/weights.jsonl", folder=tmp_path, stdin=LINES)
    assert (code, output, errors) == (1, ["4 3", "", "", "", "3 4"], PROBLEMS)
    records = (tmp_path / "new" / "weights.jsonl").read_text().splitlines()
    assert [json.loads(record)["index"] for record in records] == [0, 4]
    options = ["--nbest", "2", "--beam", "2", "--attention", "page.html"]
    code, output, errors = predict(trained, *options, folder=tmp_path, stdin=LINES)
    lines = [line.split("\t") for line in output]
    assert (code, [line[0] for line in lines], errors) == (1, ["line", *"1123455"], PROBLEMS)
    assert lines[3] == ["2", *[""] * (len(lines[0]) - 1)]
    assert "4 3" in (tmp_path / "page.html").read_text()


def test_strict_stops_at_the_first_bad_line_and_keeps_the_earlier_file(trained: Run, tmp_path: Path) -> None:
    kept = tmp_path / "keep.jsonl"
    kept.write_text("earlier\n")
    options = ["--strict", "--attention", "keep.jsonl"]
    assert predict(trained, *options, folder=tmp_path, stdin=LINES) == (1, ["4 3"], PROBLEMS[:1])
    for lines in (b"", b"99\n"):
        predict(trained, "--attention", "keep.jsonl", folder=tmp_path, stdin=lines)
    assert kept.read_text() == "earlier\n"
    assert [*tmp_path.iterdir()] == [kept]


def test_outputs_at_the_length_limit_are_counted(trained: Run, tmp_path: Path) -> None:
    lines = b"3 4 5\n5 4 3 4\n5 6 7\n"
    code, output, errors = predict(trained, "--max-length", "2", folder=tmp_path, stdin=lines)
    assert code == 0
    assert [len(line.split()) for line in output] == [2, 2, 2]
    warning = "the output reached 2 tokens and may be incomplete; --max-length sets the limit"
    assert errors == [f"attnlab: 3 lines (1, 2, 3) of standard input: {warning}"]


def test_line_longer_than_the_learned_positions_fails_alone(tmp_path: Path, run_on: RunOn) -> None:
    encoder = ["encoder=transformer", "encoder.positions=learned", "encoder.max_positions=5"]
    checkpoint = str(write_checkpoint(tmp_path, *encoder))
    problem = (
        "attnlab: line 2 of standard input: source: 6 tokens, but positions=learned of the encoder has 5"
    )
    for command, lines in (
        ("predict", ("horse", "horse " * 6, "horse horse")),
        ("score", ("horse\thorse", "horse " * 6 + "\thorse", "horse\t")),
    ):
        code, output, errors = run_on("\n".join(lines), command, checkpoint)
        assert (code, [bool(line) for line in output]) == (1, [True, False, True])
        problems = [error for error in errors.splitlines() if "may be incomplete" not in error]
        assert [error.startswith(problem) for error in problems] == [True]


def test_unknown_tokens_and_columns_are_counted(tmp_path: Path, run_on: RunOn) -> None:
    lines = "horse zebra\nyak horse zebra\nhorse\thorse\n"
    code, _, errors = run_on(lines, "predict", str(write_checkpoint(tmp_path)))
    assert code == 0
    assert [error for error in errors.splitlines() if "may be incomplete" not in error] == [
        "attnlab: 1 line (3) of standard input: another number of columns than line 1, which has 1",
        "attnlab: 1 line (3) of standard input: more columns: only the source is read",
        "attnlab: outside the vocabulary, read as <unk>: 3 of 6 source tokens of standard input, such as "
        "'zebra', 'yak'; in 2 lines (1, 2)",
    ]


def test_empty_lines_between_the_rows_of_tables_give_empty_outputs(tmp_path: Path, run_on: RunOn) -> None:
    code, output, _ = run_on("horse\n\n \nhorse\n", "predict", str(write_checkpoint(tmp_path)))
    assert (code, [bool(line) for line in output]) == (0, [True, False, False, True])


@pytest.fixture
def session(trained: Run, tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """`attnlab predict` in a pseudo-terminal, and the end of it that types."""
    user, device = pty.openpty()
    pipe = subprocess.PIPE
    command = [ATTNLAB, "predict", str(trained.directory)]
    options = {"cwd": tmp_path, "env": clean_environment(), "text": True}
    with ForkedProcess(command, stdin=device, stdout=pipe, stderr=pipe, **options) as process:
        yield process, user
    for end in (user, device):
        os.close(end)


def test_interactive_session_survives_a_typo(session: tuple[subprocess.Popen[str], int]) -> None:
    process, user = session
    os.write(user, b"3 x\n\n3 4\n\x04")
    output, errors = process.communicate(timeout=60)
    assert (process.returncode, output) == (1, "\n4 3\n")
    assert re.fullmatch(r"> attnlab: line 1 of .*'x' is not in .*\n> > > \n", errors)


def test_ctrl_c_at_the_prompt_is_one_line(session: tuple[subprocess.Popen[str], int]) -> None:
    process, _ = session
    assert process.stderr.read(2) == "> "
    os.kill(process.pid, signal.SIGINT)
    output, errors = process.communicate(timeout=60)
    assert (process.returncode, output, errors) == (75, "", "\nattnlab: interrupted\n")


def test_ctrl_c_directly_after_the_prompt_ends_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupted(io.StringIO):
        def flush(self) -> None:
            raise KeyboardInterrupt

    monkeypatch.setattr(sys, "stderr", errors := Interrupted())
    with pytest.raises(KeyboardInterrupt):
        next(read_lines(io.BytesIO(b"3\n"), interactive=True))
    assert errors.getvalue() == "> \n"


@pytest.mark.slow
def test_predict_needs_no_home(trained: Run, tmp_path: Path) -> None:
    names = ("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "MPLCONFIGDIR")
    done = subprocess.run(
        [ATTNLAB, "predict", str(trained.directory), "--attention", "map.png"],
        cwd=tmp_path,
        env={name: value for name, value in clean_environment().items() if name not in names},
        input="3 4\n",
        capture_output=True,
        text=True,
        check=True,
    )
    assert (done.stdout, done.stderr) == ("4 3\n", "")
    assert [path.name for path in tmp_path.iterdir()] == ["map-1.png"]


def test_predict_samples_with_settings_of_the_search(trained: Run, folder: Path) -> None:
    settings = ("search.temperature=3", "search.top_k=6")

    def sampled(seed: int) -> str:
        options = (str(trained.directory), *settings, f"search.seed={seed}")
        return attnlab("predict", *options, folder=folder, stdin="3 4 5\n4 7\n3 6 7\n").stdout

    first = sampled(1)
    assert first == sampled(1)
    assert first != sampled(2)


def test_predict_continues_prefixes(trained: Run, folder: Path) -> None:
    columns = ("3 4", "3 4 5", "3,5", "3\\t5", '{"source": "3"}', "3\t4\t5", "3\t\t5", "3\t4\t", "\t\t5")
    tokens = ("x", "5 x", "x 5", "<unk>", "<eos>", "<pad>", "5x", "³", "🙂", "5\x00", "\x1b[2J", "y" * 9000)
    bad = [*columns, *(f"3\t{prefix}" for prefix in tokens), "\t5", "x\t5", "", "  "]
    lines = "3 4 5\t5\n3 4 5\t4 4\n3 4\t\n" + "".join(f"{line}\n" for line in bad)
    completed = attnlab("predict", str(trained.directory), "--prefix", folder=folder, stdin=lines, code=1)
    one, two, three, *empty = completed.stdout.splitlines()
    assert (one, two[:3], three, empty) == ("5 4 3", "4 4", "4 3", [""] * len(bad))
    errors = completed.stderr.splitlines()
    for number, (line, error) in enumerate(zip(bad, errors, strict=True), start=4):
        assert error.startswith(f"attnlab: line {number} of standard input: ")
        assert ("--prefix needs two columns" in error) == (line in columns), error
        assert error.isprintable()
        assert len(error) < 400
