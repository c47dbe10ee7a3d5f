"""Hand-written backward passes against numerical gradients."""

from itertools import product
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import gradcheck
from torch.func import functional_call

from attnlab.fast.attend import Energy
from attnlab.fast.layer import FusedRecurrence

H = 3
GATES = {"lstm": 4, "gru": 3}
STATES = {"lstm": 2, "gru": 1}


def draw(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


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
