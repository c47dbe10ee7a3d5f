from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from attnlab.nn.cells import CELLS, CellStack
from networks import randomise

B, Q, E, U, H = 2, 3, 5, 7, 11
cells = pytest.mark.parametrize("cell", ["lstm", "gru"])
TORCH_LAYERS = {"lstm": nn.LSTM, "gru": nn.GRU}


def random_state(cell: str, *shape: int) -> tuple[torch.Tensor, ...]:
    return tuple(torch.randn(*shape) for _ in range(CELLS[cell].states))


def make(cell: Any, layers: int, late_size: int = U, dropout: float = 0.0) -> CellStack:
    stack = CellStack(cell=cell, ahead_size=E, late_size=late_size, size=H, layers=layers, dropout=dropout)
    randomise(stack)
    return stack


@cells
@torch.no_grad()
def test_advance_is_the_step_of_torch_s_own_cell(cell: str) -> None:
    ours = CELLS[cell](E, H)
    randomise(ours)
    x, state = torch.randn(B, Q, E), random_state(cell, B, Q, H)
    new = ours.advance(F.linear(x, ours.weight_ih, ours.bias_ih), state)

    flat = tuple(part.flatten(0, 1) for part in state)
    expected = ours(x.flatten(0, 1), flat if cell == "lstm" else flat[0])  # torch's forward
    expected = expected if cell == "lstm" else (expected,)
    assert len(new) == len(expected) == ours.states
    for one, two in zip(new, expected, strict=True):
        torch.testing.assert_close(one, two.view(B, Q, H), rtol=0, atol=1e-6)


@cells
@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("late_size", [0, U])
@torch.no_grad()
def test_a_stack_is_torch_s_own_layers(cell: str, layers: int, late_size: int) -> None:
    T = 4
    stack = make(cell, layers, late_size)
    assert stack.states_per_layer == CELLS[cell].states
    theirs = TORCH_LAYERS[cell](E + late_size, H, num_layers=layers, batch_first=True)
    for layer, part in enumerate(stack.cells):
        for name, parameter in part.named_parameters():
            getattr(theirs, f"{name}_l{layer}").copy_(parameter)

    x, u = torch.randn(B, T, E), torch.randn(B, T, late_size)
    state = tuple(random_state(cell, B, 1, H) for _ in range(layers))
    first = tuple(
        torch.stack([layer[part][:, 0] for layer in state]) for part in range(stack.states_per_layer)
    )
    expected, final = theirs(torch.cat([x, u], dim=-1), first if cell == "lstm" else first[0])
    final = final if cell == "lstm" else (final,)

    ahead = stack.ahead(x)
    for i in range(T):
        output, state = stack(ahead[:, i : i + 1], u[:, i : i + 1], state)
        torch.testing.assert_close(output[:, 0], expected[:, i], rtol=0, atol=1e-5)
    for layer in range(layers):
        for part in range(stack.states_per_layer):
            torch.testing.assert_close(state[layer][part][:, 0], final[part][layer], rtol=0, atol=1e-5)


@torch.no_grad()
def test_lstm_by_hand() -> None:
    """All weights and offsets 0: the gates are ½ and g is 0, so c' = c / 2 and h' = tanh(c / 2) / 2."""
    cell = CELLS["lstm"](1, 1)
    for parameter in cell.parameters():
        parameter.zero_()
    hidden, memory = cell.advance(torch.zeros(1, 1, 4), (torch.ones(1, 1, 1), torch.full((1, 1, 1), 2.0)))
    assert memory.item() == 1
    assert hidden.item() == pytest.approx(0.5 * 0.76159416)  # tanh(1)


@torch.no_grad()
def test_gru_by_hand() -> None:
    """All weights and offsets 0: z = ½ and n = 0, so h' = h / 2."""
    cell = CELLS["gru"](1, 1)
    for parameter in cell.parameters():
        parameter.zero_()
    (hidden,) = cell.advance(torch.zeros(1, 1, 3), (torch.full((1, 1, 1), 3.0),))
    assert hidden.item() == 1.5


@cells
@torch.no_grad()
def test_dropout_goes_between_layers_and_only_in_training(cell: str) -> None:
    stack = make(cell, layers=2, dropout=0.5)
    ahead, u = stack.ahead(torch.randn(B, Q, E)), torch.randn(B, Q, U)
    state = tuple(random_state(cell, B, Q, H) for _ in range(2))
    (one, states_one), (two, states_two) = stack(ahead, u, state), stack(ahead, u, state)
    assert not torch.equal(one, two)
    assert torch.equal(states_one[0][0], states_two[0][0])  # the first layer's own state is not touched
    stack.eval()
    assert torch.equal(stack(ahead, u, state)[0], stack(ahead, u, state)[0])
