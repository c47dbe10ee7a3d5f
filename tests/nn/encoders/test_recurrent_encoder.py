from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from attnlab.nn.encoders import RecurrentEncoder
from networks import encode, randomise

E, UNITS, WIDEST = 3, 5, 7
kinds = pytest.mark.parametrize(
    ("cell", "layers", "bidirectional"),
    [(cell, layers, both) for cell in ("lstm", "gru") for layers in (1, 2) for both in (False, True)],
)


def make(cell: Any, layers: int, bidirectional: bool) -> RecurrentEncoder:
    encoder = RecurrentEncoder(
        input_size=E, cell=cell, size=UNITS, layers=layers, bidirectional=bidirectional
    )
    randomise(encoder)
    return encoder


@kinds
@given(lengths=st.lists(st.integers(1, WIDEST), min_size=1, max_size=4), extra=st.integers(0, 3))
@settings(max_examples=20)
@torch.no_grad()
def test_padding_and_other_sentences_change_nothing(
    cell: str, layers: int, bidirectional: bool, lengths: list[int], extra: int
) -> None:
    encoder = make(cell, layers, bidirectional)
    embedded = torch.randn(len(lengths), max(lengths) + extra, E)  # arbitrary values at padding
    together = encode(encoder, embedded, lengths)
    assert together.hidden is not None
    for row, length in enumerate(lengths):
        states, final = encoder.network(embedded[row : row + 1, :length])  # without padding or packing
        torch.testing.assert_close(together.states[row, :length], states[0], rtol=0, atol=1e-6)
        assert not together.states[row, length:].any()
        hidden = (final if cell == "gru" else final[0])[:, 0]  # [L * directions, units]
        torch.testing.assert_close(together.hidden[row], hidden.reshape(layers, -1), rtol=0, atol=1e-6)
        if cell == "lstm":
            torch.testing.assert_close(
                together.cell[row], final[1][:, 0].reshape(layers, -1), rtol=0, atol=1e-6
            )


def test_dropout_does_nothing_with_one_layer() -> None:
    encoder = RecurrentEncoder(input_size=E, size=UNITS, layers=1, dropout=0.5)  # torch would warn
    embedded = torch.randn(2, 4, E)
    assert torch.equal(encode(encoder, embedded, [4, 3]).states, encode(encoder, embedded, [4, 3]).states)


@pytest.mark.parametrize("cell", ["lstm", "gru"])
@torch.no_grad()
def test_layer_norm_changes_the_states(cell: Any) -> None:
    make = partial(RecurrentEncoder, input_size=E, cell=cell, size=UNITS, layers=2)
    normalised, plain = make(layer_norm=True), make()
    randomise(normalised)
    plain.network.load_state_dict(normalised.network.state_dict())
    embedded = torch.randn(4, 5, E)
    one, two = (encode(encoder, embedded, [2, 4, 1, 3]).states for encoder in (normalised, plain))
    assert not torch.allclose(one, two, atol=1e-2)


def test_recurrent_dropout_only_in_training() -> None:
    encoder = RecurrentEncoder(input_size=E, size=UNITS, recurrent_dropout=0.5)
    embedded = torch.randn(2, 4, E)

    def states() -> torch.Tensor:
        return encode(encoder, embedded, [4, 3]).states

    one, two = states(), states()
    assert torch.equal(one[:, 0, :UNITS], two[:, 0, :UNITS])  # before the first token there is no state
    assert not torch.equal(one[:, 1, :UNITS], two[:, 1, :UNITS])
    encoder.eval()
    assert torch.equal(states(), states())


@kinds
@pytest.mark.parametrize("lengths", [[4, 4], [4, 3]])
def test_bf16_on_any_cpu(cell: str, layers: int, bidirectional: bool, lengths: list[int]) -> None:
    encoder = make(cell, layers, bidirectional)
    embedded = torch.randn(2, 4, E)
    expected = encode(encoder, embedded, lengths)
    with torch.autocast("cpu", torch.bfloat16):
        memory = encode(encoder, embedded, lengths)
    torch.testing.assert_close(memory.states.float(), expected.states, rtol=0, atol=0.05)
    torch.testing.assert_close(memory.hidden.float(), expected.hidden, rtol=0, atol=0.05)


class SameDevice(TorchDispatchMode):
    """Refuses an index on another device than the tensor, as a GPU does."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.overloadpacket in (torch.ops.aten.index_select, torch.ops.aten.index_copy):
            assert len({part.device for part in args if isinstance(part, torch.Tensor)}) == 1
        return func(*args, **(kwargs or {}))


def test_layer_norm_with_lengths_on_the_cpu_and_states_on_another_device() -> None:
    encoder = RecurrentEncoder(input_size=E, size=UNITS, layer_norm=True).to("meta")
    mask = torch.ones(2, 4, dtype=torch.bool, device="meta")
    with SameDevice():
        memory = encoder(torch.zeros(2, 4, E, device="meta"), torch.tensor([4, 2]), mask)
    assert memory.states.shape == (2, 4, 2 * UNITS)
