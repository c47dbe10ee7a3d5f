"""Hand-written backward passes against numerical gradients."""

from itertools import product
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import gradcheck
from torch.func import functional_call

from attnlab.fast.attend import Energy, Scores
from attnlab.fast.layer import FusedRecurrence, StateParameters
from attnlab.fast.loop import DecoderLoop
from attnlab.fast.rows import Rows
from attnlab.fast.stack import Weights

B, T, S, D, A, H = 2, 3, 5, 7, 2, 3
GATES = {"lstm": 4, "gru": 3}
STATES = {"lstm": 2, "gru": 1}


def draw(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "score", "luong", "layers", "stepped", "counts"),
    list(
        product(
            ["lstm", "gru"],
            ["additive", "location", "dot"],
            [False, True],
            [1, 2],
            [0, 2],
            [[B] * T, [2, 1, 1]],
        )
    ),
)
def test_gradients_of_the_decoder_loop(
    kind: str, score: str, luong: bool, layers: int, stepped: int, counts: list[int]
) -> None:
    torch.manual_seed(0)
    gates = GATES[kind] * H
    query_width = H if score == "dot" else A
    mask = torch.arange(S) < torch.tensor([S, 2])[:, None]
    scores = [] if score == "dot" else [draw(A), draw(A, H), draw(A)]
    scores += [draw(A, 3)] if score == "location" else []
    weights = [draw(gates, H if luong else D), draw(gates, H), draw(gates)]
    if layers == 2:
        weights += [draw(gates, H), draw(gates), draw(gates, H), draw(gates)]
    state = [draw(B, H) for _ in range(layers * STATES[kind])]
    combine = [draw(H, D + H)] if luong else []
    rows = Rows(counts, B)
    dropout = [torch.randn(rows.total, H, dtype=torch.float64)] if layers == 2 else []

    def loop(*tensors: Tensor) -> tuple[Tensor, ...]:
        rest = list(tensors)

        def take(count: int) -> list[Tensor]:
            taken, rest[:] = rest[:count], rest[count:]
            return taken

        ahead, memory, keys = take(3)
        first = take(3)
        stack = [Weights(first[0], None, None, None, StateParameters(*first[1:]))]
        if layers == 2:
            stack.append(Weights(*take(2), None, None, StateParameters(*take(2))))
        states = [take(STATES[kind]) for _ in range(layers)]
        mix = take(len(combine))
        loop = DecoderLoop(
            kind,
            stack,
            states,
            Scores(0.7, *take(len(scores))),
            memory,
            keys,
            mask,
            rows,
            combine=mix[0] if mix else None,
            dropout=dropout,
        )
        for step in rows.slices[:stepped]:
            loop.step(ahead[step])
        return loop.finish(ahead)

    tensors = [
        draw(rows.total, gates),
        draw(B, S, D),
        draw(B, S, query_width),
        *weights,
        *state,
        *combine,
        *scores,
    ]
    assert gradcheck(loop, tensors, fast_mode=True)


@pytest.mark.parametrize(("kind", "reverse"), list(product(["lstm", "gru"], [False, True])))
def test_gradients_of_a_layer_with_sentences_of_different_lengths(kind: str, reverse: bool) -> None:
    torch.manual_seed(0)
    counts = (3, 3, 2, 1)
    gates = GATES[kind] * H
    tensors = [draw(sum(counts), gates), draw(gates, H), draw(gates)]
    tensors += [draw(3, H) for _ in range(STATES[kind])]

    def layer(gates: Tensor, weight: Tensor, bias: Tensor, *state: Tensor) -> tuple[Tensor, ...]:
        return FusedRecurrence(kind, weight, bias, weight, bias).unroll(gates, state, counts, reverse=reverse)

    assert gradcheck(layer, tensors)


def draw_norms(kind: str) -> list[Tensor]:
    """Draw gain and bias of the normalised state, and of the cell in an LSTM."""
    gates = GATES[kind] * H
    return [draw(gates), draw(gates), *([draw(H), draw(H)] if kind == "lstm" else [])]


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_gradients_of_a_layer_with_normalisation_and_dropout(kind: str) -> None:
    torch.manual_seed(0)
    counts = (3, 3, 2, 1)
    gates, norms = GATES[kind] * H, draw_norms(kind)
    factors = torch.randn(3, H, dtype=torch.float64)
    tensors = [draw(sum(counts), gates), draw(gates, H), draw(gates), *norms]
    tensors += [draw(3, H) for _ in range(STATES[kind])]

    def layer(gates: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
        weight, bias, *rest = tensors
        drawn, state = rest[: len(norms)], tuple(rest[len(norms) :])
        given = SimpleNamespace(
            input=lambda gates: gates,
            state=SimpleNamespace(parameters=lambda: drawn[:2]),
            cell=SimpleNamespace(parameters=lambda: drawn[2:]),
        )
        recurrence = FusedRecurrence(kind, weight, bias, weight, bias, given, factors)
        return recurrence.unroll(gates, state, counts, reverse=True)

    assert gradcheck(layer, tensors)


@pytest.mark.parametrize(("kind", "luong"), list(product(["lstm", "gru"], [False, True])))
def test_gradients_of_the_decoder_loop_with_normalisation_and_dropout(kind: str, luong: bool) -> None:
    torch.manual_seed(0)
    gates, rows = GATES[kind] * H, Rows([2, 1, 1], B)
    mask = torch.arange(S) < torch.tensor([S, 2])[:, None]
    widths = [H if luong else D, H]
    weights = [draw(gates, widths[0]), draw(gates, widths[1]), draw(gates)]
    norms = [draw(gates), draw(gates)], [draw(gates), draw(gates)]
    states = [[draw(gates, H), draw(gates), *draw_norms(kind)] for _ in widths]
    start = [draw(B, H) for _ in range(2 * STATES[kind])]
    combine = draw(H, D + H) if luong else None
    scores = Scores(0.7, draw(A), draw(A, H), draw(A))
    ahead, memory, keys = draw(rows.total, gates), draw(B, S, D), draw(B, S, A)
    factors = [torch.randn(B, H, dtype=torch.float64) for _ in widths]
    dropout = [torch.randn(rows.total, H, dtype=torch.float64)]
    inputs = [ahead, memory, keys, *weights, *norms[0], *norms[1], *states[0], *states[1], *start]
    inputs += [part for part in (*scores[1:], combine) if part is not None]

    def loop(*_: Tensor) -> tuple[Tensor, ...]:
        read = [
            StateParameters(*state)._replace(dropout=part)
            for state, part in zip(states, factors, strict=True)
        ]
        layers = [
            Weights(weights[0], None, *norms[0], read[0]),
            Weights(weights[1], weights[2], *norms[1], read[1]),
        ]
        state = [start[: STATES[kind]], start[STATES[kind] :]]
        loop = DecoderLoop(
            kind, layers, state, scores, memory, keys, mask, rows, combine=combine, dropout=dropout
        )
        loop.step(ahead[rows.slices[0]])
        return loop.finish(ahead)

    assert gradcheck(loop, inputs, fast_mode=True)


class ScoreModule(nn.Module):
    def __init__(self, energy: Energy) -> None:
        super().__init__()
        self.energy = energy

    def forward(self, queries: Tensor, keys: Tensor) -> Tensor:
        return self.energy.score(queries, keys)


def test_gradients_of_additive_scores_of_many_queries() -> None:
    torch.manual_seed(0)

    energy = Energy(3).double()

    def scores(queries: Tensor, keys: Tensor, v: Tensor) -> Tensor:
        return functional_call(ScoreModule(energy), {"energy.weight": v}, (queries, keys))

    assert gradcheck(scores, [draw(2, 11, 3), draw(2, 5, 3), draw(1, 3)])
