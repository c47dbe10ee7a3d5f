"""The lesson on attention: checks of the exercises, and a small network that trains with their functions.

    python lesson.py check CHAPTER [FILE]
    python lesson.py train CHAPTER [FILE]

FILE holds the functions of a student (default: mine.py). The file needs PyTorch and nothing else. Its parts:
the solutions (do not read them before you have tried), the exercises with their typical mistakes, the check,
the training.

B sentences, S source tokens, T output tokens, V vocabulary; E, A, D and H are the widths of embeddings,
attention, memory and decoder. A mask [B, S] is True at real tokens.
"""

import argparse
import importlib.util
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

PAD, SOS, EOS = 0, 1, 2
SYMBOL = 3
"""Id of the first ordinary token."""

# Solutions


def final_state(states, lengths):
    """Chapter 1: return the state of the last real token, [B, D], of states [B, S, D] and lengths [B]."""
    return states[torch.arange(len(lengths)), lengths - 1]


def score(query, keys, v):
    """Chapter 2: return vᵀ tanh(q + k_j), [B, S], of queries [B, A], keys [B, S, A] and v [A]."""
    return torch.tanh(query[:, None] + keys) @ v


def masked_softmax(scores, mask):
    """Chapter 3: return the softmax of scores [B, S] over the tokens where the mask [B, S] is True."""
    return scores.masked_fill(~mask, -torch.inf).softmax(dim=1)


def context(weights, states):
    """Chapter 4: return Σ_j α_j h_j, [B, D], of weights [B, S] and states [B, S, D]."""
    return (weights[:, :, None] * states).sum(dim=1)


def decoder_step(embedded, state, attend, cell):
    """Chapter 5: return the new state [B, H], the context [B, D] and the weights [B, S] of one step."""
    context, weights = attend(state)
    return cell(torch.cat([embedded, context], dim=1), state), context, weights


def greedy(step, state, max_length):
    """Chapter 6: return the most probable tokens, without EOS, at most `max_length`.

    `step(token, state)` returns the probabilities [V] of the next token, and the next state.
    """
    tokens, token = [], SOS
    while len(tokens) < max_length:
        probabilities, state = step(token, state)  # [V]
        token = int(probabilities.argmax())
        if token == EOS:
            break
        tokens.append(token)
    return tokens


def hard_weights(scores, mask):
    """Chapter 7: return 1 at the largest score [B, S] of a real token and 0 elsewhere, [B, S]."""
    best = scores.masked_fill(~mask, -torch.inf).argmax(dim=1)  # [B]
    return F.one_hot(best, scores.size(1)).to(scores.dtype)


def copy_probabilities(generated, gate, weights, source):
    """Chapter 7: return g p(v) + (1 - g) Σ_{j: x_j = v} α_j, [B, V].

    The arguments are p [B, V], g [B, 1], α [B, S] and the ids x of the source tokens, [B, S].
    """
    return (gate * generated).scatter_add(1, source, (1 - gate) * weights)


# Exercises

Function = Callable[..., Any]
Case = tuple[Any, ...]
"""Arguments of an exercise."""


class MistakeError(Exception):
    """The reason why an implementation is wrong, in one sentence."""


class UsageError(Exception):
    """A wrong chapter, or a file that cannot be used."""


@dataclass(frozen=True)
class Exercise:
    """A function that a student implements."""

    chapter: int  # number of the chapter
    solution: Function  # the right implementation
    cases: Callable[[], list[Case]]  # the arguments of each call, new ones at each call
    results: list[str]  # name and shape of each result, for the messages
    mistakes: dict[str, Function]  # typical wrong implementations, by their reason
    learns: bool = True  # the result has gradients

    @property
    def name(self) -> str:
        """The name of the function."""
        return str(self.solution.__name__)


def _random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).requires_grad_()


# Sizes differ, so that swapped axes fail
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


SCRIPT = {(SOS, 0): 7, (7, 1): 4, (4, 2): 7, (7, 3): EOS, (SOS, 1): 5, (7, 0): 6, (6, 0): 6}
"""The most probable token after a token in a state, where the state counts the steps; 3 elsewhere."""


def _greedy_cases() -> list[Case]:
    """Return searches whose most probable tokens are 7, 4, 7 and EOS, cut at 9, 3 and 2, and EOS alone."""
    short = {(SOS, 0): EOS}
    return [
        (_scripted(s, limit), 0, limit) for s, limit in ((SCRIPT, 9), (SCRIPT, 3), (SCRIPT, 2), (short, 4))
    ]


def _scripted(script: dict[tuple[int, int], int], limit: int) -> Callable[[int, int], tuple[Tensor, int]]:
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


def _without_eos(step: Any, state: Any, max_length: int) -> list[int]:
    tokens: list[int] = []
    while len(tokens) < max_length:
        probabilities, state = step(tokens[-1] if tokens else SOS, state)
        tokens.append(int(probabilities.argmax()))
    return tokens


def _luong_step(y, s, attend, cell):
    new = cell(torch.cat([y, attend(s)[0]], dim=1), s)
    return new, *attend(new)


EXERCISES = [
    Exercise(
        1,
        final_state,
        lambda: [(_random(3, 5, 2), torch.tensor([4, 2, 3]))],
        ["the state of the last real token, [B, D]"],
        {
            "it takes the last position, which can be padding: use the lengths": lambda h, n: h[:, -1],
            "it is one position too far: the last of n tokens is at position n - 1": (
                lambda h, n: h[torch.arange(len(n)), n]
            ),
            "it takes the first state": lambda h, n: h[:, 0],
            "every sentence is cut at the length of the first one": lambda h, n: h[:, n[0] - 1],
        },
    ),
    Exercise(
        2,
        score,
        lambda: [(_random(2, 3), _random(2, 4, 3, seed=1), _random(3, seed=2))],
        ["the scores, [B, S]"],
        {
            "the scores are transposed: return [B, S], a row for each sentence": (
                lambda q, k, v: score(q, k, v).T
            ),
            "there is no tanh between the sum and v": lambda q, k, v: (q[:, None] + k) @ v,
            "the tanh is applied to the score, not to q + k_j": (
                lambda q, k, v: torch.tanh((q[:, None] + k) @ v)
            ),
            "the entries of tanh(q + k_j) are summed without v": (
                lambda q, k, v: torch.tanh(q[:, None] + k).sum(dim=2)
            ),
            "query and key are multiplied: additive attention adds them": (
                lambda q, k, v: torch.tanh(q[:, None] * k) @ v
            ),
            "the query is missing from the sum": lambda q, k, v: torch.tanh(k) @ v,
            "the last axis is still there: multiply by v and sum over A": (
                lambda q, k, v: torch.tanh(q[:, None] + k) * v
            ),
        },
    ),
    Exercise(
        3,
        masked_softmax,
        lambda: [(_random(3, 4), MASK), (1000 * _random(3, 4), MASK)],
        ["the weights, [B, S]"],
        {
            "the mask is not used: padding gets weight": lambda e, mask: e.softmax(dim=1),
            "the mask is inverted: it is True at real tokens": lambda e, mask: masked_softmax(e, ~mask),
            "the softmax is over the sentences of the batch: use the last axis": (
                lambda e, mask: e.masked_fill(~mask, -torch.inf).softmax(dim=0)
            ),
            "the softmax is over the sentences of the batch, without the mask": (
                lambda e, mask: e.softmax(dim=0)
            ),
            "padding is set to 0 after the softmax, so that the weights of a sentence no longer sum to 1: "
            "mask the scores": lambda e, mask: e.softmax(dim=1) * mask,
            "the scores of padding are 0, and exp(0) = 1: set them to -inf": (
                lambda e, mask: (e * mask).softmax(dim=1)
            ),
            "the exponentials are not divided by their sum": lambda e, mask: e.exp() * mask,
            "exp overflows for large scores: subtract the largest score of each sentence, or use "
            "torch.softmax": lambda e, mask: e.exp() * mask / (e.exp() * mask).sum(dim=1, keepdim=True),
        },
    ),
    Exercise(
        4,
        context,
        lambda: [(_random(2, 4).softmax(dim=1), _random(2, 4, 3, seed=1))],
        ["the context, [B, D]"],
        {
            "the states are averaged without the weights": lambda w, h: h.mean(dim=1),
            "the states are summed without the weights": lambda w, h: h.sum(dim=1),
            "the weighted states are averaged: the weights already sum to 1": (
                lambda w, h: (w[:, :, None] * h).mean(dim=1)
            ),
            "the sum is over D: sum over the positions": lambda w, h: (w[:, :, None] * h).sum(dim=2),
            "the weighted states are not summed over the positions": lambda w, h: w[:, :, None] * h,
            "it takes only the state with the largest weight": (
                lambda w, h: h[torch.arange(len(h)), w.argmax(dim=1)]
            ),
            "every sentence attends to the first sentence": lambda w, h: w @ h[0],
        },
    ),
    Exercise(
        5,
        decoder_step,
        _step_cases,
        ["the new state, [B, H]", "the context, [B, D]", "the weights, [B, S]"],
        {
            "it attends with the new state (Luong's order): return the context and the weights of the "
            "previous state": _luong_step,
            "the cell reads [context; embedded]: it expects [embedded; context]": (
                lambda y, s, attend, cell: (cell(torch.cat([attend(s)[0], y], dim=1), s), *attend(s))
            ),
            "the context does not reach the cell": (
                lambda y, s, attend, cell: (cell(torch.cat([y, 0 * attend(s)[0]], dim=1), s), *attend(s))
            ),
            "it returns the previous state: return that of the cell": (
                lambda y, s, attend, cell: (s, *attend(s))
            ),
            "the cell starts from zeros: give it the previous state": (
                lambda y, s, attend, cell: (cell(torch.cat([y, attend(s)[0]], dim=1)), *attend(s))
            ),
        },
    ),
    Exercise(
        6,
        greedy,
        _greedy_cases,
        ["a list of tokens"],
        {
            "it does not stop at EOS": _without_eos,
            "the result contains EOS: leave it out": lambda step, s, n: [*greedy(step, s, n), EOS][:n],
            "every step reads SOS: read the token before": (
                lambda step, s, n: greedy(lambda _, state: step(SOS, state), s, n)
            ),
            "every step starts from the first state: keep the state that step returns": (
                lambda step, s, n: greedy(lambda token, _: step(token, s), s, n)
            ),
            "it returns one token too many: at most max_length": lambda step, s, n: greedy(step, s, n + 1),
            "it returns one token too few: up to max_length": lambda step, s, n: greedy(step, s, n - 1),
            "it takes the least probable token": (
                lambda step, s, n: greedy(lambda y, z: (lambda p, new: (-p, new))(*step(y, z)), s, n)
            ),
            "the result contains SOS: leave it out": lambda step, s, n: [SOS, *greedy(step, s, n)],
        },
        learns=False,
    ),
    Exercise(
        7,
        hard_weights,
        lambda: [(SCORES, MASK)],
        ["the weights, [B, S]"],
        {
            "the mask is not used: padding can have the largest score": (
                lambda e, mask: hard_weights(e, torch.ones_like(mask))
            ),
            "the scores of padding are 0, which can be the largest": (
                lambda e, mask: hard_weights(e * mask, torch.ones_like(mask))
            ),
            "it returns the positions: return 1 there and 0 elsewhere": (
                lambda e, mask: e.masked_fill(~mask, -torch.inf).argmax(dim=1)
            ),
            "the largest score is searched in each column: search in each row": (
                lambda e, mask: hard_weights(e.masked_fill(~mask, -torch.inf).T, torch.ones_like(mask).T).T
            ),
            "the weights are soft: 1 at the largest score": masked_softmax,
        },
        learns=False,
    ),
    Exercise(
        7,
        copy_probabilities,
        _copy_cases,
        ["the probabilities, [B, V]"],
        {
            "a token that occurs twice in the source gets only one of its weights: add them (scatter_add)": (
                lambda p, g, w, x: g * p + torch.zeros_like(p).scatter(1, x, (1 - g) * w)
            ),
            "the gate is swapped: g generates, 1 - g copies": (
                lambda p, g, w, x: copy_probabilities(p, 1 - g, w, x)
            ),
            "the gate is not used": lambda p, g, w, x: p.scatter_add(1, x, w),
            "the weights are added at the positions of the tokens: add them at their ids": (
                lambda p, g, w, x: copy_probabilities(p, g, w, torch.arange(x.size(1)).expand_as(x))
            ),
            "nothing is copied": lambda p, g, w, x: g * p,
            "the copied part is not multiplied by 1 - g": lambda p, g, w, x: (g * p).scatter_add(1, x, w),
        },
    ),
]

# The check


def check(chapter: int, *functions: Function) -> bool:
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
            check_exercise(exercise, given[exercise.name])
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


def check_exercise(exercise: Exercise, function: Function) -> None:
    """Raise `MistakeError` if a function is wrong.

    It is compared with the solution on small random inputs. If it differs, it is compared with the typical
    mistakes: the one that gives the same result is the reason.
    """
    for number in range(len(exercise.cases())):
        _check_case(exercise, function, number)


def _check_case(exercise: Exercise, function: Function, number: int) -> None:
    case = exercise.cases()[number]
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
    expected = exercise.solution(*exercise.cases()[number])
    if _equal(result, expected):
        if exercise.learns and not _parts(result)[0].requires_grad:
            raise MistakeError(
                "its values are right, but the result has no gradient, so that nothing can be learned: use "
                "operations of torch, without item, detach, numpy or no_grad"
            )
        return
    for reason, mistaken in exercise.mistakes.items():
        try:
            wrong = mistaken(*exercise.cases()[number])
        except (MistakeError, RuntimeError, IndexError):
            continue
        if _equal(result, wrong) and not _equal(wrong, expected):
            raise MistakeError(reason)
    raise MistakeError(_difference(exercise, result, expected))


def _difference(exercise: Exercise, result: Any, expected: Any) -> str:
    """Describe the first difference between two results."""
    results, right = _parts(result), _parts(expected)
    if len(results) != len(right):
        return f"it returns {len(results)} values instead of {len(right)}: {', '.join(exercise.results)}"
    for name, mine, other in zip(exercise.results, results, right, strict=True):
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
            values = f"{mine[place].item():.4f} at {[*place]} instead of {other[place].item():.4f}"
            return f"its result is wrong: {name} is {values}"
    return "its result is wrong"


def _parts(result: Any) -> tuple[Any, ...]:
    return result if isinstance(result, tuple) else (result,)


def _equal(one: Any, other: Any) -> bool:
    ones, others = _parts(one), _parts(other)
    return len(ones) == len(others) and all(map(_equal_parts, ones, others))


def _equal_parts(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        same = one.shape == other.shape
        return same and torch.allclose(one.double(), other.double(), atol=1e-5, equal_nan=True)
    return type(one) is type(other) and bool(one == other)


# The training


class Output(NamedTuple):
    """A decoded test sequence."""

    source: list[int]  # S symbols
    target: list[int]  # the right output
    tokens: list[int]  # the output of the network
    weights: Tensor  # attention weights [T, S], a row per token and one for the end


class Trained(NamedTuple):
    """A trained network on the test sequences."""

    exact_match: float  # share of the outputs that are exactly right
    outputs: list[Output]


class Network(nn.Module):
    """A GRU encoder-decoder with additive attention, whose parts are the functions of the exercises.

    Args:
        vocabulary_size: V, the number of tokens, PAD, SOS and EOS included.
        functions: the eight functions by name.
        chapter: in chapter 1 the decoder reads only the final state; in chapter 7 it also copies.
    """

    def __init__(self, vocabulary_size: int, functions: dict[str, Function], chapter: int) -> None:
        super().__init__()
        V, E, U, H, A = vocabulary_size, 16, 16, 32, 32
        D = 2 * U
        self.functions = functions
        self.chapter = chapter
        self.source_embedding = nn.Embedding(V, E, padding_idx=PAD)
        self.target_embedding = nn.Embedding(V, E, padding_idx=PAD)
        self.encoder = nn.GRU(E, U, batch_first=True, bidirectional=True)
        self.bridge = nn.Linear(D, H)
        self.query, self.key = nn.Linear(H, A, bias=False), nn.Linear(D, A, bias=False)
        self.v = nn.Parameter(torch.empty(A).uniform_(-(A**-0.5), A**-0.5))
        self.cell = nn.GRUCell(E + D, H)
        self.output = nn.Linear(H + D, V)
        self.gate = nn.Linear(H + D, 1)

    def encode(self, source: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        """Encode sources [B, S]; return the memory, and the first state of the decoder, [B, H]."""
        mask = source != PAD  # [B, S]
        lengths = mask.sum(dim=1)  # [B]
        embedded = self.source_embedding(source)  # [B, S, E]
        packed = nn.utils.rnn.pack_padded_sequence(embedded, lengths, batch_first=True, enforce_sorted=False)
        states, final = self.encoder(packed)
        states, _ = nn.utils.rnn.pad_packed_sequence(states, batch_first=True)  # [B, S, D]
        memory = {"source": source, "mask": mask, "states": states}
        if self.chapter == 1:
            memory["final"] = self.functions["final_state"](states, lengths)  # [B, D]
            return memory, states.new_zeros(len(source), self.cell.hidden_size)
        memory["keys"] = self.key(states)  # [B, S, A]
        return memory, torch.tanh(self.bridge(torch.cat([*final], dim=1)))

    def attend(self, state: Tensor, memory: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Return the context [B, D] and the weights [B, S] for the state [B, H] of the decoder."""
        if self.chapter == 1:
            return memory["final"], torch.zeros(memory["source"].shape)
        normalise = "masked_softmax" if self.training or self.chapter < 7 else "hard_weights"
        scores = self.functions["score"](self.query(state), memory["keys"], self.v)  # [B, S]
        weights = self.functions[normalise](scores, memory["mask"])  # [B, S]
        return self.functions["context"](weights, memory["states"]), weights

    def step(self, token: Tensor, state: Tensor, memory: dict[str, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """Return log-probabilities [B, V], the new state [B, H] and weights [B, S] after tokens [B]."""
        embedded = self.target_embedding(token)  # [B, E]
        state, context, weights = self.functions["decoder_step"](
            embedded, state, lambda query: self.attend(query, memory), self.cell
        )
        features = torch.cat([state, context], dim=1)  # [B, H + D]
        p = self.output(features).softmax(dim=1)  # [B, V]
        if self.chapter == 7:
            gate = torch.sigmoid(self.gate(features))  # [B, 1]
            p = self.functions["copy_probabilities"](p, gate, weights, memory["source"])
        return (p + 1e-9).log(), state, weights

    def loss(self, source: Tensor, target: Tensor) -> Tensor:
        """Return the mean cross-entropy per token, with teacher forcing, of targets [B, T]."""
        memory, state = self.encode(source)
        token, losses = torch.full((len(source),), SOS), []
        for right in target.T:  # [B]
            log_p, state, _ = self.step(token, state, memory)
            losses.append(F.nll_loss(log_p, right, ignore_index=PAD, reduction="sum"))
            token = right
        return torch.stack(losses).sum() / (target != PAD).sum()

    @torch.no_grad()
    def decode(self, source: list[int], max_length: int) -> tuple[list[int], Tensor]:
        """Decode one source with the student's search; return the tokens and the weights [T, S]."""
        memory, state = self.encode(torch.tensor([source]))
        rows: list[Tensor] = []

        def step(token: int, state: Tensor) -> tuple[Tensor, Tensor]:
            log_p, state, weights = self.step(torch.tensor([token]), state, memory)
            rows.append(weights)
            return log_p[0].exp(), state

        tokens = self.functions["greedy"](step, state, max_length)
        return tokens, torch.cat(rows)


def train(chapter: int, *functions: Function, epochs: int = 12) -> Trained:
    """Train a network with the functions of a student, and decode new sequences.

    It learns to reverse; in chapter 7, to copy. Functions of later chapters are ignored, and the solution
    takes the place of a missing function.

    Args:
        chapter: number of the chapter, 1 to 7.
        *functions: functions of the exercises, in any order.
        epochs: number of passes over the 800 training sequences.
    """
    exercises(chapter)
    parts = {exercise.name: exercise.solution for exercise in EXERCISES}
    allowed = {exercise.name for exercise in EXERCISES if exercise.chapter <= chapter}
    parts |= {each.__name__: each for each in functions if each.__name__ in allowed}
    torch.set_num_threads(1)  # a second one gains nothing here, and loses much where students share the cores
    torch.manual_seed(0)
    symbols = 30 if chapter == 7 else 8
    pairs = sequences(900, symbols, reverse=chapter < 7)
    training, test = pairs[100:], pairs[:100]
    network = Network(SYMBOL + symbols, parts, chapter)
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
    for _ in range(epochs):
        for source, target in batches(training):
            optimizer.zero_grad()
            network.loss(source, target).backward()
            nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimizer.step()
    network.eval()
    outputs = [Output(*pair, *network.decode(pair[0], max_length=8)) for pair in test]
    return Trained(sum(each.tokens == each.target for each in outputs) / len(outputs), outputs)


def sequences(count: int, symbols: int, *, reverse: bool) -> list[tuple[list[int], list[int]]]:
    """Return different sequences of 3 to 6 symbols, each length equally often, with their outputs."""
    drawn: dict[tuple[int, ...], None] = {}
    while len(drawn) < count:
        length = 3 + len(drawn) % 4
        drawn[tuple(torch.randint(SYMBOL, SYMBOL + symbols, (length,)).tolist())] = None
    return [([*source], [*(reversed(source) if reverse else source)]) for source in drawn]


def batches(pairs: list[tuple[list[int], list[int]]], size: int = 16) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield padded batches of sources [B, S] and targets [B, T], which end in EOS, in random order."""
    order = torch.randperm(len(pairs)).tolist()
    for first in range(0, len(pairs), size):
        rows = [pairs[place] for place in order[first : first + size]]
        padded = [
            nn.utils.rnn.pad_sequence([torch.tensor(tokens) for tokens in side], batch_first=True)
            for side in ([x for x, _ in rows], [[*y, EOS] for _, y in rows])
        ]
        yield padded[0], padded[1]


# The command line


def heat_map(output: Output) -> str:
    """Return the weights of an output as text: a row per output token, a column per source token."""
    names = [*map(str, output.tokens), "end"]
    head = "     " + "".join(f"{token:>4}" for token in output.source)
    shades = [["   " + " ░▒▓█"[round(4 * weight)] for weight in row] for row in output.weights.tolist()]
    rows = [f"{name:>5}{''.join(row)}" for name, row in zip(names, shades, strict=False)]
    return "\n".join([head, *rows])


def functions_of(path: Path) -> list[Function]:
    """Return the functions of a Python file."""
    if not path.is_file():
        raise UsageError(f"{path} does not exist")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path}: the name must end in .py")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise UsageError(f"{path} cannot be executed: {type(error).__name__}: {error}") from error
    return [value for name, value in vars(module).items() if callable(value) and not name.startswith("_")]


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns 0 if all functions are right, 1 if one is wrong, 2 for a usage error."""
    parser = argparse.ArgumentParser(
        prog="lesson.py", description="Check and train the functions of a chapter."
    )
    parser.add_argument("action", choices=("check", "train"))
    parser.add_argument("chapter", type=int, help="1 to 7")
    parser.add_argument("file", type=Path, nargs="?", default=Path("mine.py"), help="default: mine.py")
    options = parser.parse_args(arguments)
    try:
        functions = functions_of(options.file)
        if not check(options.chapter, *functions):
            return 1
    except UsageError as error:
        print(f"lesson.py: {error}", file=sys.stderr)
        return 2
    if options.action == "train":
        trained = train(options.chapter, *functions)
        print(f"exact match {100 * trained.exact_match:.0f} %")
        if options.chapter > 1:  # the network of chapter 1 has no attention
            print(heat_map(max(trained.outputs, key=lambda output: len(output.source))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
