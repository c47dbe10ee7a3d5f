"""Checks of the exercises of the lesson: a wrong implementation gets the reason.

An exercise is compared with its solution on small random inputs. If it differs, it is compared with typical
wrong implementations: the one that gives the same result is the reason.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from attnlab.errors import UsageError
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
    results: tuple[str, ...]  # name and shape of each result, for the messages
    cases: Callable[[], list[Case]]  # returns the arguments of each call
    mistakes: dict[str, Callable[..., Any]]  # typical wrong implementations, by their reason
    solution: Callable[..., Any]  # the right implementation
    learns: bool = True  # the result has gradients

    @property
    def name(self) -> str:
        """Name of the function."""
        return self.solution.__name__

    def check(self, function: Callable[..., Any]) -> None:
        """Raise `MistakeError` if a function is wrong."""
        for number in range(len(self.cases())):
            self._check_case(function, number)

    def _check_case(self, function: Callable[..., Any], number: int) -> None:
        """Compare a call with the solution. Each of the two calls gets new arguments."""
        case = self.cases()[number]
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
        expected = self.solution(*self.cases()[number])
        if _equal(result, expected):
            if self.learns and not _parts(result)[0].requires_grad:
                raise MistakeError(
                    "its values are right, but the result has no gradient, so that nothing can be learned: "
                    "use operations of torch, without item, detach, numpy or no_grad"
                )
            return
        for reason, mistake in self.mistakes.items():
            try:
                wrong = mistake(*self.cases()[number])
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


# Typical mistakes


def _without_eos(step: Any, state: Any, max_length: int) -> list[int]:
    tokens: list[int] = []
    token = SOS
    while len(tokens) < max_length:
        probabilities, state = step(token, state)
        token = int(probabilities.argmax())
        tokens.append(token)
    return tokens


def _with_eos(step: Any, state: Any, max_length: int) -> list[int]:
    tokens = solutions.greedy(step, state, max_length)
    return [*tokens, EOS] if len(tokens) < max_length else tokens


def _fixed_token(step: Any, state: Any, max_length: int) -> list[int]:
    def from_start(_: int, state: Any) -> tuple[Tensor, Any]:
        result: tuple[Tensor, Any] = step(SOS, state)
        return result

    return solutions.greedy(from_start, state, max_length)


def _fixed_state(step: Any, state: Any, max_length: int) -> list[int]:
    return solutions.greedy(lambda token, _: step(token, state), state, max_length)


def _luong_step(embedded: Tensor, state: Tensor, attend: Any, cell: Any) -> Any:
    state = cell(torch.cat([embedded, attend(state)[0]], dim=1), state)
    return (state, *attend(state))


def _swapped_step(embedded: Tensor, state: Tensor, attend: Any, cell: Any) -> Any:
    context, weights = attend(state)
    return cell(torch.cat([context, embedded], dim=1), state), context, weights


def _zero_context_step(embedded: Tensor, state: Tensor, attend: Any, cell: Any) -> Any:
    context, weights = attend(state)
    return cell(torch.cat([embedded, 0 * context], dim=1), state), context, weights


def _rescaled(weights: Tensor) -> Tensor:
    return weights / weights.sum(dim=1, keepdim=True)


def _without_sum(generated: Tensor, gate: Tensor, weights: Tensor, source: Tensor) -> Tensor:
    return gate * generated + torch.zeros_like(generated).scatter(1, source, (1 - gate) * weights)


def _by_position(generated: Tensor, gate: Tensor, weights: Tensor, source: Tensor) -> Tensor:
    positions = torch.arange(source.size(1)).expand_as(source)
    return solutions.copy_probabilities(generated, gate, weights, positions)


EXERCISES = (
    Exercise(
        chapter=1,
        results=("the state of the last real token, [B, D]",),
        cases=lambda: [(_random(3, 5, 2), torch.tensor([4, 2, 3]))],
        solution=solutions.final_state,
        mistakes={
            "it takes the last position, which can be padding: use the lengths": lambda states, lengths: (
                states[:, -1]
            ),
            "it is one position too far: the last of n tokens is at position n - 1": lambda states, lengths: (
                states[torch.arange(len(lengths)), lengths]
            ),
            "it takes the first state": lambda states, lengths: states[:, 0],
            "every sentence is cut at the length of the first one": lambda states, lengths: states[
                :, lengths[0] - 1
            ],
        },
    ),
    Exercise(
        chapter=2,
        results=("the scores, [B, S]",),
        cases=lambda: [(_random(2, 3), _random(2, 4, 3, seed=1), _random(3, seed=2))],
        solution=solutions.score,
        mistakes={
            "the scores are transposed: return [B, S], a row for each sentence": lambda query, keys, v: (
                solutions.score(query, keys, v).T
            ),
            "there is no tanh between the sum and v": lambda query, keys, v: (query[:, None] + keys) @ v,
            "the tanh is applied to the score, not to q + k_j": lambda query, keys, v: torch.tanh(
                (query[:, None] + keys) @ v
            ),
            "the entries of tanh(q + k_j) are summed without v": lambda query, keys, v: torch.tanh(
                query[:, None] + keys
            ).sum(dim=2),
            "query and key are multiplied: additive attention adds them": lambda query, keys, v: (
                torch.tanh(query[:, None] * keys) @ v
            ),
            "the query is missing from the sum": lambda query, keys, v: torch.tanh(keys) @ v,
            "the last axis is still there: multiply by v and sum over A": lambda query, keys, v: (
                torch.tanh(query[:, None] + keys) * v
            ),
        },
    ),
    Exercise(
        chapter=3,
        results=("the weights, [B, S]",),
        cases=lambda: [(_random(3, 4), MASK), (1000 * _random(3, 4), MASK)],
        solution=solutions.masked_softmax,
        mistakes={
            "the mask is not used: padding gets weight": lambda scores, mask: scores.softmax(dim=1),
            "the mask is inverted: it is True at real tokens": lambda scores, mask: solutions.masked_softmax(
                scores, ~mask
            ),
            "the softmax is over the sentences of the batch: use the last axis": lambda scores, mask: (
                scores.masked_fill(~mask, -torch.inf).softmax(dim=0)
            ),
            "the softmax is over the sentences of the batch, without the mask": lambda scores, mask: (
                scores.softmax(dim=0)
            ),
            "padding is set to 0 after the softmax, so that the weights of a sentence no longer sum to 1: "
            "mask the scores": lambda scores, mask: scores.softmax(dim=1) * mask,
            "the scores of padding are 0, and exp(0) = 1: set them to -inf": lambda scores, mask: (
                scores * mask
            ).softmax(dim=1),
            "the exponentials are not divided by their sum": lambda scores, mask: scores.exp() * mask,
            "exp overflows for large scores: subtract the largest score of each sentence, or use "
            "torch.softmax": lambda scores, mask: _rescaled(scores.exp() * mask),
        },
    ),
    Exercise(
        chapter=4,
        results=("the context, [B, D]",),
        cases=lambda: [(_random(2, 4).softmax(dim=1), _random(2, 4, 3, seed=1))],
        solution=solutions.context,
        mistakes={
            "the states are averaged without the weights": lambda weights, states: states.mean(dim=1),
            "the states are summed without the weights": lambda weights, states: states.sum(dim=1),
            "the weighted states are averaged: the weights already sum to 1": lambda weights, states: (
                weights[:, :, None] * states
            ).mean(dim=1),
            "the sum is over D: sum over the positions": lambda weights, states: (
                weights[:, :, None] * states
            ).sum(dim=2),
            "the weighted states are not summed over the positions": lambda weights, states: (
                weights[:, :, None] * states
            ),
            "it takes only the state with the largest weight": lambda weights, states: states[
                torch.arange(len(states)), weights.argmax(dim=1)
            ],
            "every sentence attends to the first sentence": lambda weights, states: weights @ states[0],
        },
    ),
    Exercise(
        chapter=5,
        results=("the new state, [B, H]", "the context, [B, D]", "the weights, [B, S]"),
        cases=_step_cases,
        solution=solutions.decoder_step,
        mistakes={
            "it attends with the new state (Luong's order): return the context and the weights of the "
            "previous state": _luong_step,
            "the cell reads [context; embedded]: it expects [embedded; context]": _swapped_step,
            "the context does not reach the cell": _zero_context_step,
            "it returns the previous state: return that of the cell": lambda embedded, state, attend, cell: (
                state,
                *attend(state),
            ),
            "the cell starts from zeros: give it the previous state": lambda embedded, state, attend, cell: (
                cell(torch.cat([embedded, attend(state)[0]], dim=1)),
                *attend(state),
            ),
        },
    ),
    Exercise(
        chapter=6,
        results=("a list of tokens",),
        cases=_greedy_cases,
        solution=solutions.greedy,
        learns=False,
        mistakes={
            "it does not stop at EOS": _without_eos,
            "the result contains EOS: leave it out": _with_eos,
            "every step reads SOS: read the token before": _fixed_token,
            "every step starts from the first state: keep the state that step returns": _fixed_state,
            "it returns one token too many: at most max_length": lambda step, state, max_length: (
                solutions.greedy(step, state, max_length + 1)
            ),
            "it returns one token too few: up to max_length": lambda step, state, max_length: (
                solutions.greedy(step, state, max_length - 1)
            ),
            "it takes the least probable token": lambda step, state, max_length: solutions.greedy(
                lambda token, state: (lambda p, s: (-p, s))(*step(token, state)), state, max_length
            ),
            "the result contains SOS: leave it out": lambda step, state, max_length: [
                SOS,
                *solutions.greedy(step, state, max_length),
            ],
        },
    ),
    Exercise(
        chapter=7,
        results=("the weights, [B, S]",),
        cases=lambda: [(SCORES, MASK)],
        solution=solutions.hard_weights,
        learns=False,
        mistakes={
            "the mask is not used: padding can have the largest score": lambda scores, mask: (
                solutions.hard_weights(scores, torch.ones_like(mask))
            ),
            "the scores of padding are 0, which can be the largest": lambda scores, mask: (
                solutions.hard_weights(scores * mask, torch.ones_like(mask))
            ),
            "it returns the positions: return 1 there and 0 elsewhere": lambda scores, mask: (
                scores.masked_fill(~mask, -torch.inf).argmax(dim=1)
            ),
            "the largest score is searched in each column: search in each row": lambda scores, mask: (
                solutions.hard_weights(scores.masked_fill(~mask, -torch.inf).T, torch.ones_like(mask).T).T
            ),
            "the weights are soft: 1 at the largest score": solutions.masked_softmax,
        },
    ),
    Exercise(
        chapter=7,
        results=("the probabilities, [B, V]",),
        cases=_copy_cases,
        solution=solutions.copy_probabilities,
        mistakes={
            "a token that occurs twice in the source gets only one of its weights: add them "
            "(scatter_add)": _without_sum,
            "the gate is swapped: g generates, 1 - g copies": lambda generated, gate, weights, source: (
                solutions.copy_probabilities(generated, 1 - gate, weights, source)
            ),
            "the gate is not used": lambda generated, gate, weights, source: generated.scatter_add(
                1, source, weights
            ),
            "the weights are added at the positions of the tokens: add them at their ids": _by_position,
            "nothing is copied": lambda generated, gate, weights, source: gate * generated,
            "the copied part is not multiplied by 1 - g": lambda generated, gate, weights, source: (
                gate * generated
            ).scatter_add(1, source, weights),
        },
    ),
)
