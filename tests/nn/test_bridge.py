from typing import Any

import pytest
import torch

from attnlab.nn.bridge import CopyBridge, LinearBridge, ZeroBridge
from attnlab.nn.embedding import TokenEmbedding
from attnlab.nn.encoders import RecurrentEncoder
from attnlab.types import Memory
from networks import make_batch

B, S, D, L, H = 2, 3, 4, 2, 7


def make_memory(*, with_cell: bool = True) -> Memory:
    """Memory with hidden states 0, 1, 2 … and cell states 100 higher."""
    hidden = torch.arange(float(B * L * D)).view(B, L, D)
    return Memory(
        torch.randn(B, S, D), torch.ones(B, S, dtype=torch.bool), hidden, hidden + 100 if with_cell else None
    )


def make_linear(*, layers: int = L, size: int = H, **options: Any) -> LinearBridge:
    sizes = {"memory_size": D, "encoder_layers": L, "size": size, "layers": layers, "states_per_layer": 2}
    return LinearBridge(**sizes, activation="identity", **options)


@pytest.mark.parametrize("states_per_layer", [1, 2])
def test_zero_bridge_returns_zeros(states_per_layer: int) -> None:
    bridge = ZeroBridge(memory_size=D, encoder_layers=L, size=H, layers=3, states_per_layer=states_per_layer)
    state = bridge(Memory(torch.randn(B, S, D), torch.ones(B, S, dtype=torch.bool)))  # needs no final states
    assert [len(layer) for layer in state] == [states_per_layer] * 3
    assert all(part.shape == (B, 1, H) and not part.any() for layer in state for part in layer)


def test_copy_bridge_on_a_small_example() -> None:
    bridge = CopyBridge(memory_size=D, encoder_layers=L, size=D, layers=L, states_per_layer=2)
    (h_1, c_1), (h_2, c_2) = bridge(make_memory())
    assert h_1.tolist() == [[[0, 1, 2, 3]], [[8, 9, 10, 11]]]
    assert h_2.tolist() == [[[4, 5, 6, 7]], [[12, 13, 14, 15]]]
    assert torch.equal(c_1, h_1 + 100)
    assert torch.equal(c_2, h_2 + 100)


def test_copy_bridge_from_gru_to_lstm_copies_h_to_both_states() -> None:
    bridge = CopyBridge(memory_size=D, encoder_layers=L, size=D, layers=L, states_per_layer=2)
    for h, c in bridge(make_memory(with_cell=False)):
        assert torch.equal(h, c)


@pytest.mark.parametrize(("size", "layers"), [(D + 1, L), (D, L + 1)])
def test_copy_bridge_rejects_unequal_sizes(size: int, layers: int) -> None:
    with pytest.raises(ValueError, match=r"make them equal or use bridge=linear"):
        CopyBridge(memory_size=D, encoder_layers=L, size=size, layers=layers, states_per_layer=2)


@torch.no_grad()
def test_linear_bridge_on_a_small_example() -> None:
    """H = 1; h: the sum of the top layer's state, plus 1; c: twice its first number."""
    bridge = make_linear(size=1, layers=3)
    for_h, for_c = bridge.maps[0]
    for_h.weight.fill_(1.0), for_h.bias.fill_(1.0)
    for_c.weight.copy_(torch.tensor([[2.0, 0, 0, 0]])), for_c.bias.zero_()
    state = bridge(make_memory())
    assert len(state) == 3  # the same for every layer of the decoder
    for h, c in state:
        assert h.tolist() == [[[4 + 5 + 6 + 7 + 1]], [[12 + 13 + 14 + 15 + 1]]]
        assert c.tolist() == [[[2 * 104]], [[2 * 112]]]


@torch.no_grad()
def test_linear_bridge_from_each_layer_on_a_small_example() -> None:
    """Layer l of the decoder starts from layer l of the encoder, with separate maps."""
    bridge = make_linear(size=1, layers_from="each")
    assert len(bridge.maps) == L
    for layer, maps in enumerate(bridge.maps):
        for linear in maps:
            linear.weight.fill_(layer + 1.0), linear.bias.zero_()
    (h_1, _), (h_2, c_2) = bridge(make_memory())
    assert h_1.flatten().tolist() == [0 + 1 + 2 + 3, 8 + 9 + 10 + 11]
    assert h_2.flatten().tolist() == [2 * (4 + 5 + 6 + 7), 2 * (12 + 13 + 14 + 15)]
    assert c_2.flatten().tolist() == [2 * (422), 2 * (454)]


def test_linear_bridge_from_each_layer_rejects_unequal_layers() -> None:
    with pytest.raises(ValueError, match=r"encoder \(2\) as in the decoder \(3\)"):
        make_linear(layers=3, layers_from="each")


@torch.no_grad()
@pytest.mark.parametrize("layers", [1, 2])
def test_backward_half_is_the_backward_state_at_the_first_word(layers: int) -> None:
    units = 3
    encoder = RecurrentEncoder(input_size=5, cell="gru", size=units, layers=layers)
    batch = make_batch([[4, 5, 6, 7], [8, 9]], padding=2)
    embedded = TokenEmbedding(vocabulary_size=11, size=5)(batch.source)
    memory = encoder(embedded, batch.source_lengths, batch.source_mask)
    sizes = {"memory_size": encoder.memory_size, "encoder_layers": layers, "size": units}
    options = {"layers": 1, "states_per_layer": 1, "activation": "identity", "half": "backward"}
    bridge = LinearBridge(**sizes, **options)
    bridge.maps[0][0].weight.copy_(torch.eye(units)), bridge.maps[0][0].bias.zero_()
    ((h,),) = bridge(memory)
    torch.testing.assert_close(h[:, 0], memory.states[:, 0, units:])
    encoder.check_bridge(bridge)
    one_direction = RecurrentEncoder(input_size=5, cell="gru", size=units, layers=layers, bidirectional=False)
    with pytest.raises(ValueError, match=r"bridge\.half=backward needs an encoder with two directions"):
        one_direction.check_bridge(bridge)


@pytest.mark.parametrize("kind", [CopyBridge, LinearBridge])
def test_memory_without_final_states_is_rejected(kind: type[Any]) -> None:
    bridge = kind(memory_size=D, encoder_layers=1, size=D, layers=1, states_per_layer=1)
    with pytest.raises(ValueError, match="use bridge=zero"):
        bridge(Memory(torch.randn(B, S, D), torch.ones(B, S, dtype=torch.bool)))
