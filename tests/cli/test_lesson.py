"""`attnlab lesson`."""

from pathlib import Path

import pytest

from attnlab.cli.main import run
from attnlab.lesson import solutions

MINE = """
import torch

def score(query, keys, v):
    return torch.tanh(query[:, None] + keys) @ v

def masked_softmax(scores, mask):
    return scores.softmax(dim=1)
"""


def test_check_prints_the_reason_and_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text(MINE)
    assert run(["lesson", "check", "2", str(mine)]) == 0
    assert run(["lesson", "check", "3", str(mine)]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "score is right",
        "masked_softmax is not right yet: the mask is not used: padding gets weight",
    ]
    assert run(["lesson", "check", "4", str(mine)]) == 2
    assert "Chapter 4 needs a function context" in capsys.readouterr().err


@pytest.mark.slow
def test_train_prints_the_score_and_a_heat_map(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["lesson", "train", "4", solutions.__file__]) == 0
    out = capsys.readouterr().out
    assert "context is right\nexact match 9" in out
    assert "rows: output tokens" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["check", "3"], "wrong arguments"),
        (["check", "nine", "mine.py"], "wrong arguments"),
        (["page", "page.txt"], "wrong arguments"),
        (["check", "3", "none.py"], "none.py does not exist"),
    ],
)
def test_wrong_arguments_are_one_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["lesson", *arguments]) != 0
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line


def test_a_file_with_an_error_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text("def score(query, keys, v)\n    return 1\n")
    assert run(["lesson", "check", "2", str(mine)]) == 1
    assert "SyntaxError: expected ':'" in capsys.readouterr().err
