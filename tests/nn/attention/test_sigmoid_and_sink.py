from functools import partial

import pytest
import torch
from torch import nn

from attnlab.nn.attention import Dot, MultiHead, ScaledDot, Sigmoid, Sink
from attnlab.nn.attention.normalisers import Entmax
from attnlab.types import Memory
from networks import attend, random_memory, randomise

B, Q, S, H = 2, 3, 5, 6


def test_sigmoid_known_values() -> None:
    """Scores ln 2 and ln 6 of two positions: σ(ln 1) = 1/2 and σ(ln 3) = 3/4; of one: σ(ln 2) = 2/3."""
    attention = Sigmoid(query_size=1, memory_size=1, score=Dot)
    states = torch.tensor([[[2.0], [6.0], [9.0]]]).log().expand(2, 3, 1)
    memory = Memory(states, torch.tensor([[True, True, False], [True, False, False]]))
    context, weights = attend(attention, torch.ones(2, 1, 1), memory)
    assert weights.flatten().tolist() == pytest.approx([1 / 2, 3 / 4, 0, 2 / 3, 0, 0])
    assert context[0, 0].tolist() == pytest.approx([(states[0, 0] / 2 + states[0, 1] * 3 / 4).item()])


def test_sink_known_values() -> None:
    """exp(s) = 2, exp(e) = 1 and 5: weights of 1/8 and 5/8."""
    attention = Sink(query_size=1, memory_size=1, score=Dot)
    nn.init.constant_(attention.sink, torch.tensor(2.0).log().item())
    memory = Memory(torch.tensor([[[1.0], [5.0], [9.0]]]).log(), torch.tensor([[True, True, False]]))
    _, weights = attend(attention, torch.ones(1, 1, 1), memory)
    assert weights[0, 0].tolist() == pytest.approx([1 / 8, 5 / 8, 0])


@torch.no_grad()
def test_sink_equals_torch_attention_with_a_zero_value() -> None:
    """`add_zero_attn` of torch is a sink with a score of 0."""
    attention = MultiHead(query_size=H, memory_size=H, size=H, heads=2, score=partial(Sink, score=ScaledDot))
    for parameter in (attention.query, attention.key, attention.value, attention.output):
        randomise(parameter)
    reference = nn.MultiheadAttention(H, 2, bias=False, add_zero_attn=True, batch_first=True)
    parts = (attention.query.weight, attention.key.weight, attention.value.weight)
    reference.load_state_dict(
        {"in_proj_weight": torch.cat(parts), "out_proj.weight": attention.output.weight}
    )
    query, memory = torch.randn(B, Q, H), random_memory([S, 2], H)
    expected, weights = reference(query, memory.states, memory.states, key_padding_mask=~memory.mask)
    for ours, theirs in zip(attend(attention, query, memory), (expected, weights[..., :-1]), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5)


def test_sink_takes_part_in_sparse_normalisers() -> None:
    attention = Sink(query_size=1, memory_size=1, score=Dot, normaliser=Entmax(2))
    memory = Memory(torch.tensor([[[-2.0], [-3.0]]]), torch.ones(1, 2, dtype=torch.bool))
    assert attend(attention, torch.ones(1, 1, 1), memory)[1].tolist() == [[[0, 0]]]
