import math

import pytest
import torch

from attnlab.nn.positions import ALiBi, Rotary, Sinusoidal, make_positions
from attnlab.nn.transformer import SelfAttention


def test_sinusoidal_known_values() -> None:
    """Width 3: sin i, cos i, sin(i / 10000^{2/3})."""
    encoded = Sinusoidal().add(torch.zeros(2, 3), first=4)
    expected = [[math.sin(i), math.cos(i), math.sin(i / 10000 ** (2 / 3))] for i in (4, 5)]
    torch.testing.assert_close(encoded, torch.tensor(expected))


def test_alibi_known_values() -> None:
    """Eight heads: slopes 1/2, 1/4, … 1/256, as in section 3 of the paper."""
    bias = ALiBi(heads=8).bias(2, 3, torch.zeros(1))  # the last 2 of 3 positions
    assert bias[0].tolist() == [[-0.5, 0, -0.5], [-1, -0.5, 0]]
    assert bias[7].tolist() == [[-1 / 256, 0, -1 / 256], [-2 / 256, -1 / 256, 0]]


def test_rotary_rotates_pairs_and_keeps_relative_positions() -> None:
    rotary = Rotary(width=4)
    x = torch.randn(3, 4)
    angles = torch.tensor([[i, i / 100] for i in (5.0, 6.0, 7.0)])
    expected = torch.view_as_real(
        torch.view_as_complex(x.view(3, 2, 2)) * torch.polar(torch.ones(3, 2), angles)
    )
    torch.testing.assert_close(rotary.rotate(x, first=5), expected.flatten(1))
    query, key = torch.randn(1, 4), torch.randn(1, 4)
    products = [(rotary.rotate(query, i) * rotary.rotate(key, i - 3)).sum() for i in (3, 50)]
    torch.testing.assert_close(products[0], products[1])


def test_rotary_equals_x_transformers() -> None:
    package = pytest.importorskip("x_transformers.x_transformers")
    frequencies, _ = package.RotaryEmbedding(6).forward_from_seq_len(5)
    x = torch.randn(2, 3, 5, 6)
    expected = package.apply_rotary_pos_emb(x, frequencies)
    torch.testing.assert_close(Rotary(width=6).rotate(x), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("kind", ["learned", "sinusoidal", "rotary", "alibi"])
@torch.no_grad()
def test_positions_with_a_cache_equal_those_of_all_tokens_at_once(kind: str) -> None:
    positions = make_positions(kind, size=8, heads=2, max_positions=9)
    attention = SelfAttention(size=8, heads=2)
    x = torch.randn(3, 5, 8)
    causal = torch.ones(5, 5, dtype=torch.bool).tril()
    together, _ = attention(positions.add(x), positions, causal)
    cache = None
    for i, token in enumerate(x.split(1, dim=1)):
        output, cache = attention(positions.add(token, i), positions, None, cache)
        torch.testing.assert_close(output[:, 0], together[:, i], rtol=0, atol=1e-6)
