"""The lesson: its checks, its training and its command line."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from shutil import copyfile
from typing import Any

import pytest
import torch

import lesson
from lesson import EOS, EXERCISES, SOS, MistakeError, UsageError, check, check_exercise, main, train

BY_NAME = {exercise.name: exercise for exercise in EXERCISES}


def greedy_with_for(step, state, max_length):
    tokens = [SOS]
    for _ in range(max_length):
        p, state = step(tokens[-1], state)
        tokens.append(p.argmax().item())
        if tokens[-1] == EOS:
            return tokens[1:-1]
    return tokens[1:]


def decoder_step(embedded, state, attend, cell):
    c, w = attend(state)
    return cell(torch.hstack([embedded, c]), state), c, w


RIGHT = {
    "final_state": lambda states, lengths: torch.stack(
        [states[b, n - 1] for b, n in enumerate(lengths.tolist())]
    ),
    "context": lambda weights, states: torch.einsum("bs,bsd->bd", weights, states),
    "decoder_step": decoder_step,
    "greedy": greedy_with_for,
    "hard_weights": lambda scores, mask: torch.eye(scores.size(1))[
        torch.where(mask, scores, scores.min() - 1).argmax(dim=1)
    ],
}
"""Implementations that differ from the solutions."""


@pytest.mark.parametrize("name", BY_NAME)
def test_right_implementations_pass(name: str) -> None:
    check_exercise(BY_NAME[name], BY_NAME[name].solution)
    check_exercise(BY_NAME[name], RIGHT.get(name, BY_NAME[name].solution))


@pytest.mark.parametrize("name", BY_NAME)
def test_each_typical_mistake_has_its_own_reason(name: str) -> None:
    exercise = BY_NAME[name]
    assert len(exercise.mistakes) >= 4
    for expected, mistaken in exercise.mistakes.items():
        with pytest.raises(MistakeError) as raised:
            check_exercise(exercise, mistaken)
        assert str(raised.value) == expected


def endless(step, state, max_length):
    tokens, token = [], SOS
    while True:
        p, state = step(token, state)
        token = int(p.argmax())
        if token == EOS:
            return tokens
        tokens.append(token)


def masks_in_place(scores, mask):
    scores.data[~mask] = -1e9
    return scores.softmax(dim=1)


WRONG: list[tuple[str, Callable[..., Any], str]] = [
    ("final_state", lambda states, lengths: states[:, -1, :], "padding"),
    (
        "final_state",
        lambda states, lengths: states.gather(1, lengths[:, None, None].expand(-1, 1, 2))[:, 0],
        "n - 1",
    ),
    ("score", lambda q, k, v: torch.einsum("a,bsa->sb", v, (q.unsqueeze(1) + k).tanh()), "transposed"),
    ("score", lambda q, k, v: (q.unsqueeze(1) + k).tanh().sum(-1), "without v"),
    ("score", lambda q, k, v: torch.bmm(k, q[:, :, None])[:, :, 0], r"the scores, \[B, S\] is"),
    ("score", lambda q, k, v: torch.tanh(q + k) @ v, "raises RuntimeError"),
    ("score", lambda q, k, v: None, "returns NoneType instead of the scores"),
    ("score", lambda q, k, v: ((q[:, None] + k).tanh() @ v).detach(), "no gradient"),
    ("score", lambda q, k, v: (q[:, None] + k).tanh().mean(1), r"shape \[2, 3\] instead of \[2, 4\]"),
    ("masked_softmax", lambda e, mask: torch.softmax(e, -1), "not used"),
    ("masked_softmax", lambda e, mask: e.masked_fill(~mask, -1e9).softmax(0), "sentences of the batch"),
    ("masked_softmax", lambda e, mask: e.masked_fill(mask, -1e9).softmax(1), "inverted"),
    ("masked_softmax", lambda e, mask: torch.where(mask, e.softmax(1), 0.0), "no longer sum to 1"),
    ("masked_softmax", lambda e, mask: torch.where(mask, e, 0.0).softmax(1), r"exp\(0\) = 1"),
    ("masked_softmax", lambda e, mask: (e.exp() * mask) / (e.exp() * mask).sum(1, keepdim=True), "overflows"),
    ("masked_softmax", masks_in_place, "in place"),
    ("context", lambda w, h: torch.einsum("bs,bsd->bs", w, h), "sum is over D"),
    ("context", lambda w, h: torch.einsum("bs,bsd->bd", w, h) / w.size(1), "already sum to 1"),
    ("context", lambda w, h: h.sum(1), "without the weights"),
    (
        "decoder_step",
        lambda y, s, attend, cell: cell(torch.cat([y, attend(s)[0]], 1), s),
        "1 values instead of 3",
    ),
    ("decoder_step", lambda y, s, attend, cell: (s, *attend(s)), "that of the cell"),
    ("greedy", endless, "it returns one token too many|does not stop|instead of"),
    ("greedy", lambda step, state, n: [int(step(SOS, state)[0].argmax()) for _ in range(n)], "instead of"),
    ("hard_weights", lambda e, mask: (e == e.amax(1, keepdim=True)).float(), "mask is not used"),
    ("copy_probabilities", lambda p, g, w, x: torch.scatter(p * g, 1, x, (1 - g) * w), r"\[B, V\] is"),
    (
        "copy_probabilities",
        lambda p, g, w, x: (1 - g) * p + torch.zeros_like(p).scatter_add(1, x, g * w),
        "swapped",
    ),
]


@pytest.mark.parametrize(
    ("name", "function", "expected"), WRONG, ids=[f"{each[0]}-{each[2]}" for each in WRONG]
)
def test_other_wrong_implementations_get_a_reason(
    name: str, function: Callable[..., Any], expected: str
) -> None:
    with pytest.raises(MistakeError, match=expected):
        check_exercise(BY_NAME[name], function)


def test_check_prints_a_line_for_each_function(capsys: pytest.CaptureFixture[str]) -> None:
    def hard_weights(scores, mask):
        return scores.softmax(dim=1)

    copy = BY_NAME["copy_probabilities"].solution
    assert not check(7, copy, hard_weights)
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("hard_weights is not right yet: its result is wrong")
    assert second == "copy_probabilities is right"
    with pytest.raises(UsageError, match="Chapter 7 needs a function hard_weights"):
        check(7, copy)
    with pytest.raises(UsageError, match="choose 1 to 7"):
        check(8)


SOLUTIONS = [exercise.solution for exercise in EXERCISES]


def test_fixed_vector_does_not_reverse() -> None:
    """With attention and as many epochs, 60 % are right: `test_a_copied_folder_needs_torch_only`."""
    assert train(1, *SOLUTIONS).exact_match < 0.6


def test_training_and_search_call_the_functions_of_a_student(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = set()

    def counted(function):
        def call(*arguments):
            calls.add((chapter, function.__name__))
            return function(*arguments)

        call.__name__ = function.__name__
        return call

    sequences = lesson.sequences
    monkeypatch.setattr(lesson, "sequences", lambda _, *rest, **options: sequences(132, *rest, **options))
    for chapter in (1, 5, 7, 6):
        trained = train(chapter, *map(counted, SOLUTIONS), epochs=1)
    five = {"score", "masked_softmax", "context", "decoder_step"}
    six = {*five, "greedy"}
    seven = {*six, "hard_weights", "copy_probabilities"}
    one = {"final_state"}
    assert calls == {(n, name) for n, names in ((1, one), (5, five), (6, six), (7, seven)) for name in names}
    assert trained.outputs  # of chapter 6
    for output in trained.outputs:
        assert len(output.weights) in (len(output.tokens), len(output.tokens) + 1)
        assert output.weights.sum(dim=1) == pytest.approx(1, abs=1e-5)


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
    assert main(["check", "2", str(mine)]) == 0
    assert main(["check", "3", str(mine)]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "score is right",
        "masked_softmax is not right yet: the mask is not used: padding gets weight",
    ]
    assert main(["check", "4", str(mine)]) == 2
    assert "Chapter 4 needs a function context" in capsys.readouterr().err


def test_a_copied_folder_needs_torch_only(tmp_path: Path) -> None:
    copyfile(str(lesson.__file__), tmp_path / "lesson.py")
    (tmp_path / "mine.py").write_text(MINE)
    program = (
        "import runpy, sys; sys.modules['attnlab'] = None; sys.argv = ['lesson.py', 'train', '2'];"
        "runpy.run_path('lesson.py', run_name='__main__')"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    right, score, *rows = done.stdout.splitlines()
    assert right == "score is right"
    assert 60 < float(score.removeprefix("exact match ").removesuffix(" %")) <= 100
    assert len(rows[0].split()) == 6
    assert rows[-1].startswith("  end")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["check", "3", "none.py"], "none.py does not exist"),
        (["check", "3", "none.txt"], "none.txt does not exist"),
        (["check", "8", "MINE"], "There is no chapter 8: choose 1 to 7"),
        (["check", "2", "BROKEN"], "SyntaxError: expected ':'"),
    ],
)
def test_usage_errors_are_one_line(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {"MINE": MINE, "BROKEN": "def score(query, keys, v)\n    return 1\n"}
    *rest, name = arguments
    if name in files:
        (tmp_path / f"{name}.py").write_text(files[name])
        name = str(tmp_path / f"{name}.py")
    assert main([*rest, name]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line
