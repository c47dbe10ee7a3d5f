"""`attnlab score`: log-probabilities of given pairs."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from attnlab.files.predictions import read_predictions
from attnlab.files.run_directory import Run
from commands import attnlab
from exports import write_checkpoint


def test_scores_of_outputs_equal_those_of_the_search(trained: Run, folder: Path) -> None:
    predictions = read_predictions(trained.attention)
    lines = "".join(f"{output.source}\t{output.hypothesis}\n" for output in predictions)
    completed = attnlab("score", str(trained.directory), folder=folder, stdin=lines)
    rows = [line.split("\t") for line in completed.stdout.splitlines()]
    assert len(rows) == len(predictions)
    for (total, values), output in zip(rows, predictions, strict=True):
        numbers = [float(value) for value in values.split(" ")]
        assert len(numbers) == len(output.tokens)
        assert float(total) == pytest.approx(sum(numbers), abs=1e-3)
        assert float(total) / len(numbers) == pytest.approx(output.score, abs=1e-3)


def test_json_holds_tokens_and_bad_lines_are_reported_by_number(trained: Run, folder: Path) -> None:
    lines = "3 4\t4 3\n3 4\n3\t4\t5\n\n3 x\t4\n3\tx\n\t4\n3\t\n"
    completed = attnlab("score", str(trained.directory), "--json", folder=folder, stdin=lines, code=1)
    outputs = completed.stdout.splitlines()
    assert [bool(line) for line in outputs] == [True, *[False] * 6, True]
    first, last = json.loads(outputs[0]), json.loads(outputs[-1])
    assert (first["source"], first["target"], first["tokens"]) == ("3 4", "4 3", ["4", "3", "<eos>"])
    assert first["log_probability"] == pytest.approx(sum(first["token_log_probabilities"]))
    assert first["log_probability"] > -1
    assert last["tokens"] == ["<eos>"]
    errors = completed.stderr.splitlines()
    assert [error.split(": ")[1] for error in errors] == [
        f"line {number} of standard input" for number in (2, 3, 4, 5, 6, 7)
    ]
    assert "it has 1 columns instead of 2" in errors[0]
    assert "it has 3 columns instead of 2" in errors[1]
    assert "'x' is not in the vocabulary" in errors[4]

    strict = attnlab("score", str(trained.directory), "--strict", folder=folder, stdin="3 4\n3\t3\n", code=1)
    assert strict.stdout == ""
    assert strict.stderr.startswith("attnlab: line 1 of standard input: it has 1 columns")


GOOD = b"3 4\t4 3\n"
BAD_LINES = [
    (b"", "it is empty; every line must contain a sentence"),
    (b" \t ", "it is empty"),
    (b"\t\t\t", "it is empty"),
    (b"3 4", "it has 1 columns instead of 2: give a source and a target, separated by a tab"),
    (b"3 4 4 3", "it has 1 columns"),
    (b"3 4,4 3", "it has 1 columns"),
    (b"3 4\\t4 3", "it has 1 columns"),
    (b'{"source": "3 4", "target": "4 3"}', "it has 1 columns"),
    (b"3\t4\t5", "it has 3 columns"),
    (b"3 4\t4 3\t", "it has 3 columns"),
    (b"\t4 3", "source is '': give a string with at least one token"),
    (b"  \t4 3", "source is '  ': give a string with at least one token"),
    (b"3 x\t4 3", "'x' is not in the vocabulary"),
    (b"3 4\t4 x", "'x' is not in the vocabulary"),
    (b"3 \xff\t4 3", "byte 3 (0xff) is not valid UTF-8: convert the input"),
    ("3 ß\t4 3".encode("latin-1"), "byte 3 (0xdf) is not valid UTF-8"),
    ("3\t🙂".encode()[:-1], "is not valid UTF-8"),
    (b"3\t\xed\xa0\x80", "is not valid UTF-8"),
    (b"3 \0\t4 3", "is not in the vocabulary"),
    (b"3 \x1b[2J\t4 3", "is not in the vocabulary"),
    (b"\xef\xbb\xbf3 4\t4 3", "is not in the vocabulary"),
    (b"3 4\t" + 200_000 * b"y", "token 'yyyy"),
    (gzip.compress(GOOD, mtime=0).replace(b"\n", b""), "is not valid UTF-8"),
]


def test_bad_lines_have_one_message_each_and_an_empty_output(
    trained: Run, run_on: Callable[..., tuple[int, list[str], str]]
) -> None:
    run = str(trained.directory)
    content = GOOD + b"".join(line + b"\n" for line, _ in BAD_LINES) + b"3 4\t4 3\r\n" + GOOD.rstrip()
    code, output, errors = run_on(content, "score", run)
    assert (code, [bool(line) for line in output]) == (1, [True, *[False] * len(BAD_LINES), True, True])
    for number, (error, (_, message)) in enumerate(zip(errors.splitlines(), BAD_LINES, strict=True), start=2):
        assert error.startswith(f"attnlab: line {number} of standard input: ")
        assert message in error
        assert error.isprintable()
        assert len(error) < 400

    assert run_on(b"\xef\xbb\xbf" + GOOD, "score", run)[:2] == (0, output[:1])
    for whole in (GOOD.decode().encode("utf-16"), gzip.compress(GOOD), bytes(range(256))):
        code, output, errors = run_on(whole, "score", run, "--json")
        assert (code, any(output)) == (1, False)
        assert len(output) == len(errors.splitlines()) >= 1
    assert run_on(b"", "score", run) == (0, [], "")


def test_tokens_outside_the_vocabulary_are_counted(
    tmp_path: Path, run_on: Callable[..., tuple[int, list[str], str]]
) -> None:
    checkpoint = write_checkpoint(tmp_path, texts=["a b", "b c a", "c"])
    code, output, errors = run_on(b"a q\tq q b\nb\tc\n", "score", str(checkpoint))
    assert (code, len(output)) == (0, 2)
    assert errors.splitlines() == [
        "attnlab: 1 tokens of the sources were scored as <unk>",
        "attnlab: 2 tokens of the targets were scored as <unk>",
    ]
