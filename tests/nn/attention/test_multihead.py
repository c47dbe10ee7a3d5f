from functools import partial

import pytest
import torch
from torch import Tensor, nn

from attnlab.nn.attention import Attention, MultiHead, ScaledDot
from attnlab.types import Memory
from networks import ATTENTIONS, attend, make_attention, random_memory, randomise

B, Q, S, H, D, A, N = 2, 3, 5, 7, 11, 6, 3
WITHOUT_SCORE = {"NoAttention", "Final", "MultiHead"}


def test_scaled_dot_heads_equal_torch_multihead_attention() -> None:
    """Queries and outputs of nn.MultiheadAttention have the size of all heads together, so H = A here."""
    attention = MultiHead(query_size=A, memory_size=D, size=A, heads=N, score=ScaledDot)
    randomise(attention)
    reference = nn.MultiheadAttention(A, N, bias=False, kdim=D, vdim=D, batch_first=True)
    reference.load_state_dict(
        {
            "q_proj_weight": attention.query.weight,
            "k_proj_weight": attention.key.weight,
            "v_proj_weight": attention.value.weight,
            "out_proj.weight": torch.eye(A),
        }
    )
    query, memory = torch.randn(B, Q, A), random_memory([S, 2], D)
    expected, expected_weights = reference(query, memory.states, memory.states, key_padding_mask=~memory.mask)
    context, weights = attend(attention, query, memory)
    torch.testing.assert_close(context, attention.output(expected), rtol=0, atol=1e-5)
    torch.testing.assert_close(weights, expected_weights, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", sorted(set(ATTENTIONS) - WITHOUT_SCORE))
def test_heads_equal_the_mechanism_on_slices(name: str) -> None:
    """Each head is the mechanism on its slices of query, keys and values, also with state."""
    attention = MultiHead(query_size=H, memory_size=D, size=A, heads=N, score=partial(inner, name)).eval()
    randomise(attention)
    memory = random_memory([S, 2], D)
    keys, state = attention.project(memory), attention.begin(memory)
    alone = [head.begin(memory) for head in attention.heads]
    for _ in range(2):
        query = torch.randn(B, 1, H)
        context, weights, state = attention(query, memory, keys, state)
        parts = []
        for n, head in enumerate(attention.heads):
            rows = slice(n * A // N, (n + 1) * A // N)
            sliced_keys = Memory(memory.states @ attention.key.weight[rows].T, memory.mask)
            values = Memory(memory.states @ attention.value.weight[rows].T, memory.mask)
            sliced_query = query @ attention.query.weight[rows].T
            *part, alone[n] = head(sliced_query, values, head.project(sliced_keys), alone[n])
            parts.append(part)
        contexts, all_weights = zip(*parts, strict=True)
        expected = torch.cat(contexts, dim=-1) @ attention.output.weight.T
        torch.testing.assert_close(context, expected, rtol=0, atol=1e-5)
        torch.testing.assert_close(weights, sum(all_weights) / N, rtol=0, atol=1e-6)


def inner(name: str, *, query_size: int, memory_size: int, normaliser: object) -> Attention:
    return make_attention(name, query_size, memory_size)


def test_every_head_uses_the_normaliser() -> None:
    def all_on_the_first(scores: Tensor, mask: Tensor) -> Tensor:
        return torch.zeros_like(scores).index_fill(-1, torch.tensor(0), 1) * mask

    attention = MultiHead(
        query_size=H, memory_size=D, size=A, heads=N, score=ScaledDot, normaliser=all_on_the_first
    )
    _, weights = attend(attention, torch.randn(B, Q, H), random_memory([S, 2], D))
    assert (weights[..., 0] == 1).all()


def test_number_of_heads_must_divide_the_size() -> None:
    with pytest.raises(ValueError, match=r"attention\.heads=4 must divide attention\.size=6"):
        MultiHead(query_size=H, memory_size=D, size=A, heads=4, score=ScaledDot)
