"""`attnlab score`: log-probabilities of given pairs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from attnlab.runs.directory import Run
from attnlab.runs.predictions import read_predictions
from commands import attnlab


def test_scores_of_outputs_equal_those_of_the_search(trained: Run, folder: Path) -> None:
    predictions = read_predictions(trained.attention)
    lines = "".join(f"{output.source}\t{output.hypothesis}\n" for output in predictions)
    completed = attnlab("score", str(trained.directory), folder=folder, stdin=lines)
    assert completed.returncode == 0, completed.stderr
    rows = [line.split("\t") for line in completed.stdout.splitlines()]
    assert len(rows) == len(predictions)
    for (total, values), output in zip(rows, predictions, strict=True):
        numbers = [float(value) for value in values.split(" ")]
        assert len(numbers) == len(output.tokens)
        assert float(total) == pytest.approx(sum(numbers), abs=1e-3)
        assert float(total) / len(numbers) == pytest.approx(output.score, abs=1e-3)


def test_json_holds_tokens_and_bad_lines_are_reported_by_number(trained: Run, folder: Path) -> None:
    lines = "3 4\t4 3\n3 4\n3\t4\t5\n\n3 x\t4\n3\tx\n\t4\n3\t\n"
    completed = attnlab("score", str(trained.directory), "--json", folder=folder, stdin=lines)
    assert completed.returncode == 1
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

    strict = attnlab("score", str(trained.directory), "--strict", folder=folder, stdin="3 4\n3\t3\n")
    assert strict.returncode == 1
    assert strict.stdout == ""
    assert strict.stderr.startswith("attnlab: line 1 of standard input: it has 1 columns")
