import pytest
from torch import nn

from attnlab.training.benchmark.flops import attention_flops, useful_flops
from networks import (
    ENERGY,
    ORDERS,
    SOURCE_WIDTH,
    STATE,
    TARGET_WIDTH,
    TARGET_WORDS,
    UNITS,
    make_network,
    random_batch,
)


def test_attention_flops_equal_its_equations() -> None:
    memory = 2 * UNITS
    additive = attention_flops(make_network(attention="Additive"))
    # U h_j · W s · vᵀ tanh(·) and α_j h_j
    assert additive == (2 * memory * ENERGY, 2 * STATE * ENERGY, 2 * ENERGY + 2 * memory)
    dot = attention_flops(make_network(attention="Dot"))
    assert dot == (0, 0, 2 * memory + 2 * memory)
    assert attention_flops(make_network(attention="NoAttention")) == (0, 0, 0)


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_network_flops_equal_the_sum_over_layers(cell: str) -> None:
    network = make_network(cell=cell, layers=2, parts=("state",))
    batch = random_batch([7, 3], [4, 11])
    gates = {"lstm": 4, "gru": 3}[cell]
    source, target, pairs = 7 + 3, 5 + 12, 7 * 5 + 3 * 12  # EOS is predicted too
    memory = 2 * UNITS
    expected = {
        "encoder": 2 * source * 2 * gates * UNITS * (SOURCE_WIDTH + UNITS),
        "keys": 2 * source * memory * ENERGY,
        "query": 2 * target * STATE * ENERGY,
        "score": 2 * pairs * ENERGY,
        "context": 2 * pairs * memory,
        "layer 1": 2 * target * gates * STATE * (TARGET_WIDTH + memory + STATE),
        "layer 2": 2 * target * gates * STATE * 2 * STATE,
        "vocabulary": 2 * target * STATE * TARGET_WORDS,
    }
    expected["bridge"] = 2 * 2 * sum(p.numel() for p in network.bridge.parameters() if p.dim() > 1)
    assert useful_flops(network, batch) == pytest.approx(sum(expected.values()))


@pytest.mark.parametrize("order", ORDERS)
def test_padding_is_not_counted(order: str) -> None:
    network = make_network(order=order)
    batch = random_batch([7, 3], [4, 11])
    alone = [random_batch([7], [4]), random_batch([3], [11])]
    assert useful_flops(network, batch) == pytest.approx(sum(useful_flops(network, one) for one in alone))


def test_tables_of_positions_are_not_multiplied() -> None:
    network = make_network()
    batch = random_batch([7, 3], [4, 11])
    before = useful_flops(network, batch)
    network.encoder.positions = nn.Embedding(50, UNITS)
    assert useful_flops(network, batch) == before
