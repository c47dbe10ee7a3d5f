"""Checks of the exercises of the lesson: a wrong implementation gets the reason.

An exercise is compared with its solution on small random inputs. If it differs, it is compared with the
typical mistakes in exercises.yaml: the one that gives the same result is the reason.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from attnlab.errors import UsageError
from attnlab.files.yaml import read_yaml
from attnlab.lesson import solutions
from attnlab.types import EOS, SOS

Case = tuple[Any, ...]
"""Arguments of an exercise."""


class MistakeError(Exception):
    """The reason why an implementation is wrong, in one sentence."""


@dataclass(frozen=True)
class Exercise:
    """A function that a student implements."""

    chapter: int  # number of the chapter
    name: str  # name of the function
    results: list[str]  # name and shape of each result, for the messages
    mistakes: dict[str, str]  # typical wrong results, as expressions of the arguments, by their reason
    learns: bool = True  # the result has gradients

    @property
    def solution(self) -> Callable[..., Any]:
        """The right implementation, of `attnlab.lesson.solutions`."""
        function: Callable[..., Any] = getattr(solutions, self.name)
        return function

    def mistaken(self, expression: str) -> Callable[..., Any]:
        """Return the wrong implementation that an expression of `mistakes` describes."""
        names = {**vars(solutions), "without_eos": without_eos}
        parameters = signature(self.solution).parameters
        return lambda *case: eval(expression, names | dict(zip(parameters, case, strict=True)))

    def check(self, function: Callable[..., Any]) -> None:
        """Raise `MistakeError` if a function is wrong."""
        for number in range(len(CASES[self.name]())):
            self._check_case(function, number)

    def _check_case(self, function: Callable[..., Any], number: int) -> None:
        """Compare a call with the solution. Each of the two calls gets new arguments."""
        case = CASES[self.name]()[number]
        before = [part.clone() if isinstance(part, Tensor) else part for part in case]
        try:
            result = function(*case)
        except MistakeError:
            raise
        except Exception as error:
            shapes = ", ".join(str([*part.shape]) for part in case if isinstance(part, Tensor))
            place = f" for arguments of shape {shapes}" if shapes else ""
            raise MistakeError(f"it raises {type(error).__name__}: {error}{place}") from error
        for old, new in zip(before, case, strict=True):
            if isinstance(old, Tensor) and not torch.equal(old, new):
                raise MistakeError("it changes one of its arguments in place: return a new tensor")
        expected = self.solution(*CASES[self.name]()[number])
        if _equal(result, expected):
            if self.learns and not _parts(result)[0].requires_grad:
                raise MistakeError(
                    "its values are right, but the result has no gradient, so that nothing can be learned: "
                    "use operations of torch, without item, detach, numpy or no_grad"
                )
            return
        for reason, expression in self.mistakes.items():
            try:
                wrong = self.mistaken(expression)(*CASES[self.name]()[number])
            except (MistakeError, RuntimeError, IndexError):
                continue
            if _equal(result, wrong) and not _equal(wrong, expected):
                raise MistakeError(reason)
        raise MistakeError(self._difference(result, expected))

    def _difference(self, result: Any, expected: Any) -> str:
        """Describe the first difference between two results."""
        results, right = _parts(result), _parts(expected)
        if len(results) != len(right):
            return f"it returns {len(results)} values instead of {len(right)}: {', '.join(self.results)}"
        for name, mine, other in zip(self.results, results, right, strict=True):
            if type(mine) is not type(other):
                return f"it returns {type(mine).__name__} instead of {name}"
            if not isinstance(mine, Tensor):
                if mine != other:
                    return f"it returns {mine} instead of {other}"
                continue
            if mine.shape != other.shape:
                return f"its result has the shape {[*mine.shape]} instead of {[*other.shape]}: {name}"
            if mine.isnan().any():
                return f"its result contains NaN: {name}. Do not divide by zero, and no exp of large numbers"
            wrong = ~torch.isclose(mine.double(), other.double(), atol=1e-5)
            if wrong.any():
                place = tuple(wrong.nonzero()[0].tolist())
                return (
                    f"its result is wrong: {name} is {mine[place].item():.4f} at {[*place]} instead of "
                    f"{other[place].item():.4f}"
                )
        return "its result is wrong"


def check(chapter: int, *functions: Callable[..., Any]) -> bool:
    """Check the functions of a chapter, print what is wrong with each, and return whether all are right.

    Args:
        chapter: number of the chapter, 1 to 7.
        *functions: the functions, in any order.

    Raises:
        UsageError: if there is no such chapter, or a function of it is missing.
    """
    given = {function.__name__: function for function in functions}
    right = True
    for exercise in exercises(chapter):
        if exercise.name not in given:
            raise UsageError(f"Chapter {chapter} needs a function {exercise.name}")
        try:
            exercise.check(given[exercise.name])
        except MistakeError as mistake:
            print(f"{exercise.name} is not right yet: {mistake}")
            right = False
        else:
            print(f"{exercise.name} is right")
    return right


def exercises(chapter: int) -> list[Exercise]:
    """Return the exercises of a chapter."""
    found = [exercise for exercise in EXERCISES if exercise.chapter == chapter]
    if not found:
        raise UsageError(f"There is no chapter {chapter}: choose 1 to {EXERCISES[-1].chapter}")
    return found


def _parts(result: Any) -> Sequence[Any]:
    return result if isinstance(result, tuple) else (result,)


def _equal(one: Any, other: Any) -> bool:
    ones, others = _parts(one), _parts(other)
    return len(ones) == len(others) and all(map(_equal_parts, ones, others))


def _equal_parts(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return one.shape == other.shape and torch.allclose(
            one.double(), other.double(), atol=1e-5, equal_nan=True
        )
    return type(one) is type(other) and bool(one == other)


def _random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).requires_grad_()


# Arguments. Sizes differ, so that swapped axes fail.

MASK = torch.tensor([[True, True, True, False], [True, True, False, False], [False, True, True, True]])
SCORES = torch.tensor([[0.5, 2.0, 1.0, 3.0], [-2.0, -1.0, 0.0, 0.5], [1.0, 0.0, 4.0, 2.0]])


def _step_cases() -> list[Case]:
    E, H, D, S = 3, 5, 4, 2
    to_context, to_weights = _random(H, D, seed=3), _random(H, S, seed=4)

    def attend(query: Tensor) -> tuple[Tensor, Tensor]:
        return query @ to_context, (query @ to_weights).softmax(dim=1)

    cell = nn.GRUCell(E + D, H)
    for seed, parameter in enumerate(cell.parameters()):
        parameter.data = _random(*parameter.shape, seed=seed).detach()
    return [(_random(2, E), _random(2, H, seed=1), attend, cell)]


def _greedy_cases() -> list[Case]:
    """Return searches whose most probable tokens are 7, 4, 7 and EOS, cut at 9, 3 and 2, and EOS alone."""
    return [
        (_counted(script, limit), 0, limit)
        for script, limit in ((SCRIPT, 9), (SCRIPT, 3), (SCRIPT, 2), (SHORT, 4))
    ]


SCRIPT = {(SOS, 0): 7, (7, 1): 4, (4, 2): 7, (7, 3): EOS, (SOS, 1): 5, (7, 0): 6, (6, 0): 6}
"""The most probable token after a token in a state, where the state counts the steps; 3 elsewhere."""

SHORT = {(SOS, 0): EOS}


def _counted(script: dict[tuple[int, int], int], limit: int) -> Callable[[int, int], tuple[Tensor, int]]:
    calls = 0

    def step(token: int, state: int) -> tuple[Tensor, int]:
        nonlocal calls
        calls += 1
        if calls > limit + 2:
            raise MistakeError(
                f"it does not stop: it calls step more than {limit + 2} times for max_length={limit}"
            )
        best = script.get((token, state), 3)
        return torch.full((9,), 0.05).index_fill(0, torch.tensor([best]), 0.6), state + 1

    return step


def _copy_cases() -> list[Case]:
    gate = torch.sigmoid(_random(2, 1, seed=2))
    source = torch.tensor([[5, 3, 5, 0], [4, 4, 1, 6]])
    return [(_random(2, 7).softmax(dim=1), gate, _random(2, 4, seed=1).softmax(dim=1), source)]


def without_eos(step: Any, state: Any, max_length: int) -> list[int]:
    """Search like `solutions.greedy`, but do not stop at EOS: a mistake that no expression describes."""
    tokens: list[int] = []
    while len(tokens) < max_length:
        probabilities, state = step(tokens[-1] if tokens else SOS, state)
        tokens.append(int(probabilities.argmax()))
    return tokens


CASES: dict[str, Callable[[], list[Case]]] = {
    "final_state": lambda: [(_random(3, 5, 2), torch.tensor([4, 2, 3]))],
    "score": lambda: [(_random(2, 3), _random(2, 4, 3, seed=1), _random(3, seed=2))],
    "masked_softmax": lambda: [(_random(3, 4), MASK), (1000 * _random(3, 4), MASK)],
    "context": lambda: [(_random(2, 4).softmax(dim=1), _random(2, 4, 3, seed=1))],
    "decoder_step": _step_cases,
    "greedy": _greedy_cases,
    "hard_weights": lambda: [(SCORES, MASK)],
    "copy_probabilities": _copy_cases,
}
"""Functions that return the arguments of each call of an exercise."""

EXERCISES = [Exercise(**fields) for fields in read_yaml(Path(__file__).with_name("exercises.yaml"))]
