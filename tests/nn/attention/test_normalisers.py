from collections.abc import Callable

import entmax
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from attnlab.nn.attention.normalisers import Entmax, Normaliser

ALPHAS = {"softmax": 1, "sparsemax": 2, "entmax15": 1.5}
PACKAGE: dict[str, Callable[..., Tensor]] = {"sparsemax": entmax.sparsemax, "entmax15": entmax.entmax15}
HALVES = [torch.bfloat16, torch.float16]

every = pytest.mark.parametrize("name", ALPHAS)
sparse = pytest.mark.parametrize("name", PACKAGE)


def make(name: str, **settings: float) -> Normaliser:
    return Entmax(ALPHAS[name], **settings)


def all_real(scores: Tensor) -> Tensor:
    return torch.ones_like(scores, dtype=torch.bool)


def some_real(*shape: int) -> Tensor:
    """Return a random mask with at least one real position per row."""
    mask = torch.rand(shape) < 0.6
    mask[..., 0] = True
    return mask


@every
def test_temperature_divides_the_scores(name: str) -> None:
    scores, mask = torch.randn(5, 7), some_real(5, 7)
    torch.testing.assert_close(make(name, temperature=0.5)(scores, mask), make(name)(2 * scores, mask))


@sparse
@given(
    spread=st.sampled_from([0.0, 0.1, 1.0, 30.0]),
    width=st.integers(1, 40),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)
def test_weights_equal_the_entmax_package(name: str, spread: float, width: int, dtype: torch.dtype) -> None:
    scores, mask = spread * torch.randn(3, 4, width, dtype=dtype), some_real(3, 4, width)
    expected = PACKAGE[name](scores.masked_fill(~mask, -1e9), dim=-1)
    tolerance = 1e-5 if dtype == torch.float32 else 1e-9
    torch.testing.assert_close(make(name)(scores, mask), expected, rtol=0, atol=tolerance)


@every
def test_gradients_pass_gradcheck(name: str) -> None:
    mask = some_real(2, 1, 5)
    mask[1] = False  # a fully masked row
    scores = torch.randn(2, 3, 5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda e: make(name)(e, mask), scores)


@every
@given(
    lengths=st.lists(st.integers(0, 6), min_size=1, max_size=4),
    spread=st.sampled_from([0.0, 1.0, 1e4]),
    dtype=st.sampled_from([torch.float64, torch.float32, *HALVES]),
)
def test_weights_are_a_distribution_over_real_positions(
    name: str, lengths: list[int], spread: float, dtype: torch.dtype
) -> None:
    mask = torch.arange(6) < torch.tensor(lengths)[:, None]
    weights = make(name)((spread * torch.randn(len(lengths), 6)).to(dtype), mask)
    assert weights.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert (weights >= 0).all()
    assert not weights[~mask].any()  # exactly 0
    totals = torch.tensor([float(length > 0) for length in lengths], dtype=weights.dtype)
    torch.testing.assert_close(weights.sum(dim=-1), totals, rtol=0, atol=1e-6)


@every
@pytest.mark.parametrize("padding_score", [0.0, 1e4, torch.inf, -torch.inf, torch.nan])
def test_scores_at_padding_have_no_influence(name: str, padding_score: float) -> None:
    scores, mask = torch.randn(3, 5), some_real(3, 5)
    padded = torch.cat([scores, torch.full((3, 4), padding_score)], dim=1)
    padded_mask = torch.cat([mask, torch.zeros(3, 4, dtype=torch.bool)], dim=1)
    torch.testing.assert_close(
        make(name)(padded, padded_mask)[:, :5], make(name)(scores, mask), rtol=0, atol=1e-7
    )


@every
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, *HALVES], ids=str)
def test_huge_scores_stay_finite(name: str, dtype: torch.dtype) -> None:
    rows = [[1e4, -1e4, 1e4, 0.0], [-1e4, -1e4, 1e4, 1e4], [1e4] * 4]
    scores = torch.tensor(rows, dtype=dtype, requires_grad=True)
    mask = torch.tensor([[True, True, True, False], [True, True, False, False], [False] * 4])
    weights = make(name)(scores, mask)
    assert weights.tolist() == [[0.5, 0, 0.5, 0], [0.5, 0.5, 0, 0], [0] * 4]
    weights.square().sum().backward()
    assert scores.grad.isfinite().all()


@every
def test_weights_of_many_positions_sum_to_one(name: str) -> None:
    scores = 1e-3 * torch.randn(4, 5000)
    weights = make(name)(scores, all_real(scores))
    torch.testing.assert_close(weights.sum(dim=-1), torch.ones(4), rtol=0, atol=1e-5)
    exact = make(name)(scores.double(), all_real(scores))
    torch.testing.assert_close(weights.double(), exact, rtol=0, atol=1e-6)


@every
def test_nan_scores_give_nan_weights(name: str) -> None:
    scores = torch.tensor([[1.0, torch.nan], [1.0, 1.0]])
    weights = make(name)(scores, all_real(scores))
    assert weights[0].isnan().any()
    assert weights[1].tolist() == [0.5, 0.5]
