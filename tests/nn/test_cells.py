from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from attnlab.fast import accelerate
from attnlab.nn.cells import Cells, CellStack, unroll_padded
from networks import randomise

B, Q, E, U, H = 2, 3, 5, 7, 11
cells = pytest.mark.parametrize("cell", ["lstm", "gru"])
TORCH_LAYERS = {"lstm": nn.LSTM, "gru": nn.GRU}
STATES = {"lstm": 2, "gru": 1}


def random_state(cell: str, *shape: int) -> tuple[torch.Tensor, ...]:
    return tuple(torch.randn(*shape) for _ in range(STATES[cell]))


def one_cell(cell: Any, width: int = E, size: int = H, **settings: Any) -> Cells:
    ours = Cells(cell=cell, widths=[width], size=size, **settings)
    randomise(ours)
    return ours


def make(cell: Any, layers: int, feed_size: int = U, dropout: float = 0.0) -> CellStack:
    stack = CellStack(cell=cell, input_size=E, feed_size=feed_size, size=H, layers=layers, dropout=dropout)
    randomise(stack)
    return stack


@cells
@pytest.mark.parametrize(("fused", "gradients"), [(False, True), (True, True), (True, False)])
def test_step_equals_torch_cell(
    cell: str, fused: bool, gradients: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("attnlab.fast.linear.MIN_ROWS", 1)
    ours = one_cell(cell)
    theirs: Any = ours[0]
    x, state = torch.randn(B, Q, E), random_state(cell, B, Q, H)
    before = [part.clone() for part in state]
    if fused:
        accelerate(ours)
    with torch.set_grad_enabled(gradients):
        new = ours.recurrence(0).step(F.linear(x, theirs.weight_ih, theirs.bias_ih), state)
    for one, two in zip(state, before, strict=True):
        assert torch.equal(one, two)

    flat = tuple(part.flatten(0, 1) for part in state)
    expected = theirs(x.flatten(0, 1), flat if cell == "lstm" else flat[0])  # torch's forward
    expected = expected if cell == "lstm" else (expected,)
    assert len(new) == len(expected) == ours.states_per_layer
    for one, two in zip(new, expected, strict=True):
        torch.testing.assert_close(one, two.view(B, Q, H), rtol=0, atol=1e-6)


@cells
@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("feed_size", [0, U])
@torch.no_grad()
def test_stack_equals_torch_layers(cell: str, layers: int, feed_size: int) -> None:
    T = 4
    stack = make(cell, layers, feed_size)
    assert stack.cells.states_per_layer == STATES[cell]
    theirs = TORCH_LAYERS[cell](E + feed_size, H, num_layers=layers, batch_first=True)
    for layer, part in enumerate(stack.cells):
        for name, parameter in part.named_parameters():
            getattr(theirs, f"{name}_l{layer}").copy_(parameter)

    x, u = torch.randn(B, T, E), torch.randn(B, T, feed_size)
    state = tuple(random_state(cell, B, 1, H) for _ in range(layers))
    first = tuple(
        torch.stack([layer[part][:, 0] for layer in state]) for part in range(stack.cells.states_per_layer)
    )
    expected, final = theirs(torch.cat([x, u], dim=-1), first if cell == "lstm" else first[0])
    final = final if cell == "lstm" else (final,)

    gates = stack.project_input(x)
    for i in range(T):
        output, state = stack.step(gates[:, i : i + 1], u[:, i : i + 1], state)
        torch.testing.assert_close(output[:, 0], expected[:, i], rtol=0, atol=1e-5)
    for layer in range(layers):
        for part in range(stack.cells.states_per_layer):
            torch.testing.assert_close(state[layer][part][:, 0], final[part][layer], rtol=0, atol=1e-5)


@cells
@torch.no_grad()
def test_dropout_is_between_layers_and_only_in_training(cell: str) -> None:
    stack = make(cell, layers=2, dropout=0.5)
    gates, u = stack.project_input(torch.randn(B, Q, E)), torch.randn(B, Q, U)
    state = tuple(random_state(cell, B, Q, H) for _ in range(2))
    (one, states_one), (two, states_two) = stack.step(gates, u, state), stack.step(gates, u, state)
    assert not torch.equal(one, two)
    assert torch.equal(states_one[0][0], states_two[0][0])  # the first layer's own state is not touched
    stack.eval()
    assert torch.equal(stack.step(gates, u, state)[0], stack.step(gates, u, state)[0])


@torch.no_grad()
def test_layer_norm_on_a_small_example() -> None:
    """U and all biases 0, gains 1: the gates are LN(W x + b), and LN(c') in tanh."""
    cell = one_cell("lstm", 1, 2, layer_norm=True)
    for name, parameter in cell.named_parameters():
        parameter.fill_(float(name.endswith(("input.weight", "state.weight", "cell.weight"))))
    gates = torch.tensor([2.0, -2, 2, -2, 2, -2, 2, -2])  # of mean 0 and spread 2: LN halves them
    start = (torch.zeros(2), torch.zeros(2))
    hidden, memory = cell.recurrence(0).step(gates, start)
    high, low = 0.7310586 * 0.7615942, -0.2689414 * 0.7615942  # σ(±1) tanh(±1)
    torch.testing.assert_close(memory, torch.tensor([high, low]), rtol=0, atol=1e-4)
    torch.testing.assert_close(hidden, memory, rtol=0, atol=1e-4)  # LN of two numbers: ±1


@cells
@torch.no_grad()
def test_recurrent_dropout_zeroes_the_same_units_at_every_step(cell: str) -> None:
    """For one sentence this equals torch's network without those columns of U."""
    T = 5
    ours = one_cell(cell, recurrent_dropout=0.5)
    x, state = torch.randn(1, T, E), random_state(cell, 1, 1, H)
    (mask,) = drawn = ours.draw_dropout((state,))
    assert set(mask.unique().tolist()) == {0.0, 2.0}
    assert mask.shape == (1, 1, H)

    theirs = TORCH_LAYERS[cell](E, H, batch_first=True)
    for name, parameter in ours[0].named_parameters():
        getattr(theirs, f"{name}_l0").copy_(parameter * mask[0] if name == "weight_hh" else parameter)
    if cell == "gru":  # whose state is carried on whole
        expected = reference_gru(theirs, x, state[0][:, 0])
    else:
        expected, _ = theirs(x, tuple(part.transpose(0, 1) for part in state))
    gates = F.linear(x, ours[0].weight_ih, ours[0].bias_ih)
    outputs, last = unroll_padded(ours.recurrence(0, drawn), gates, state)
    torch.testing.assert_close(outputs, expected, rtol=0, atol=1e-6)
    torch.testing.assert_close(last[0], outputs[:, -1:], rtol=0, atol=0)
    ours.eval()
    assert ours.draw_dropout((state,)) == ()
    assert one_cell(cell).draw_dropout((state,)) == ()  # none by default


def reference_gru(network: Any, x: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
    outputs = []
    for token in x.unbind(1):
        of_input = F.linear(token, network.weight_ih_l0, network.bias_ih_l0).chunk(3, dim=-1)
        of_state = F.linear(hidden, network.weight_hh_l0, network.bias_hh_l0).chunk(3, dim=-1)
        r, z = (torch.sigmoid(one + two) for one, two in zip(of_input[:2], of_state[:2], strict=True))
        hidden = (1 - z) * torch.tanh(of_input[2] + r * of_state[2]) + z * hidden
        outputs.append(hidden)
    return torch.stack(outputs, dim=1)
