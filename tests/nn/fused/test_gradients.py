"""Hand-written backward passes against numerical gradients."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck

from attnlab.nn.fused import Kernels, additive_scores, unroll_layer
from attnlab.nn.fused.attend import Scores
from attnlab.nn.fused.loop import DecoderLoop, Weights
from attnlab.nn.fused.rows import Rows

B, T, S, D, A, H = 2, 3, 5, 7, 2, 3
GATES = {"lstm": 4, "gru": 3}
STATES = {"lstm": 2, "gru": 1}


def draw(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


@pytest.mark.parametrize(
    ("kind", "additive", "luong", "layers", "stepped", "counts"),
    list(product(["lstm", "gru"], [True, False], [False, True], [1, 2], [0, 2], [[B] * T, [2, 1, 1]])),
)
def test_gradients_of_the_decoder_loop(
    kind: str, additive: bool, luong: bool, layers: int, stepped: int, counts: list[int]
) -> None:
    torch.manual_seed(0)
    gates = GATES[kind] * H
    query_width = A if additive else H
    mask = torch.arange(S) < torch.tensor([S, 2])[:, None]
    scores = [draw(A), draw(A, H), draw(A)] if additive else []
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
        stack = [Weights(first[0], None, *first[1:])]
        stack += [Weights(*take(4))] if layers == 2 else []
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
    counts = [3, 3, 2, 1]
    gates = GATES[kind] * H
    tensors = [draw(sum(counts), gates), draw(gates, H), draw(gates)]
    tensors += [draw(3, H) for _ in range(STATES[kind])]

    def layer(gates: Tensor, weight: Tensor, bias: Tensor, *state: Tensor) -> tuple[Tensor, ...]:
        return unroll_layer(kind, gates, weight, bias, state, counts, reverse=reverse)

    assert gradcheck(layer, tensors)


def test_gradients_of_additive_scores_of_many_queries() -> None:
    torch.manual_seed(0)

    def fused_additive_scores(*tensors: Tensor) -> Tensor:
        with Kernels(fused=True).active():
            return additive_scores(*tensors)

    assert gradcheck(fused_additive_scores, [draw(2, 11, 3), draw(2, 5, 3), draw(3)])
