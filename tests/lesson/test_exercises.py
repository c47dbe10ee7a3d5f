"""The checks of the exercises: right implementations pass, and wrong ones get their own reason."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from attnlab.errors import UsageError
from attnlab.lesson.exercises import EXERCISES, MistakeError, check
from attnlab.types import EOS, SOS

BY_NAME = {exercise.name: exercise for exercise in EXERCISES}


def reason(name: str, function: Callable[..., Any]) -> str:
    with pytest.raises(MistakeError) as raised:
        BY_NAME[name].check(function)
    return str(raised.value)


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
    BY_NAME[name].check(BY_NAME[name].solution)
    BY_NAME[name].check(RIGHT.get(name, BY_NAME[name].solution))


@pytest.mark.parametrize("name", BY_NAME)
def test_each_typical_mistake_has_its_own_reason(name: str) -> None:
    exercise = BY_NAME[name]
    assert len(exercise.mistakes) >= 4
    for expected, expression in exercise.mistakes.items():
        assert reason(name, exercise.mistaken(expression)) == expected


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
        BY_NAME[name].check(function)


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
