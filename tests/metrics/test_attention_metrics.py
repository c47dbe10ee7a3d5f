import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from attnlab.metrics.attention import NAMES, AttentionMetrics, measure


def everywhere(*shape: int) -> Tensor:
    return torch.ones(shape, dtype=torch.bool)


def compute(weights: Tensor, gold: Tensor | None = None) -> dict[str, float]:
    """Return the metrics of weights [T, S] of one sentence without padding."""
    metrics, (T, S) = AttentionMetrics(), weights.shape
    links = None if gold is None else gold.bool()[None]
    metrics.update(weights[None], everywhere(1, T), everywhere(1, S), links)
    return {name: value.item() for name, value in metrics.compute().items()}


def test_all_metrics_match_a_manual_calculation() -> None:
    weights = torch.tensor([[1, 0], [0.5, 0.5], [1, 0]])
    gold = torch.tensor([[0, 1], [0, 0], [1, 0]])  # wrong, unknown, correct
    assert compute(weights, gold) == {
        "entropy": pytest.approx(math.log(2) / 3),
        "effective_positions": pytest.approx((1 + 2 + 1) / 3),
        "sharpness": pytest.approx(2.5 / 3),
        "monotonicity": 1 / 2,  # 0 → 0.5 → 0
        "coverage": (1 + 0.5) / 2,  # 2.5 counts as 1
        "alignment_accuracy": 1 / 2,
        "alignment_error": 1 / 2,
    }
    single = torch.ones(1, 1, 1), everywhere(1, 1), everywhere(1, 1), everywhere(1, 1, 1)
    assert tuple(compute(weights, gold)) == tuple(measure(*single)) == NAMES


@pytest.mark.parametrize(
    ("weights", "monotonicity"), [(torch.eye(5), 1), (torch.eye(5).flip(0), 0), (torch.full((5, 5), 0.2), 1)]
)
def test_metrics_of_copying_reversing_and_uniform_attention(weights: Tensor, monotonicity: float) -> None:
    values = compute(weights, weights > 0.5)
    assert values["monotonicity"] == monotonicity
    assert values["coverage"] == pytest.approx(1)
    flat = weights[0, 0] == 0.2
    assert values["effective_positions"] == pytest.approx(5 if flat else 1)
    assert values["entropy"] == pytest.approx(math.log(5) if flat else 0)
    if not flat:
        assert (values["alignment_accuracy"], values["alignment_error"]) == (1, 0)


def test_any_of_several_linked_positions_is_correct() -> None:
    weights = torch.tensor([[0.375, 0.125, 0.5], [0.375, 0.125, 0.5]])
    gold = torch.tensor([[1, 0, 1], [1, 1, 0]])
    values = compute(weights, gold)
    assert values["alignment_accuracy"] == 1 / 2
    assert values["alignment_error"] == pytest.approx((0.125 + 0.5) / 2)


def test_weights_need_not_sum_to_one() -> None:
    torch.manual_seed(0)
    weights, gold = torch.rand(4, 5).softmax(dim=-1), torch.eye(4, 5)
    scaled = weights * torch.tensor([[0.1], [1], [3], [0.5]])
    assert compute(scaled, gold) == pytest.approx(compute(weights, gold))


def test_zero_weights_count_as_not_aligned_and_are_otherwise_left_out() -> None:
    values = compute(torch.tensor([[0, 1.0, 0], [0, 0, 0], [1, 0, 0]]), torch.eye(3).flip(0).flip(1))
    assert values == {
        "entropy": 0,
        "effective_positions": 1,
        "sharpness": 1,
        "coverage": 2 / 3,
        "alignment_accuracy": 0,
        "alignment_error": 1,
    }  # no monotonicity: no two consecutive positions have weights
    values = compute(torch.tensor([[0.0, 0], [1, 0]]), torch.tensor([[1, 0], [0, 0]]))
    assert values["alignment_accuracy"] == 0


def test_sentence_without_targets_is_left_out_of_the_coverage() -> None:
    metrics = AttentionMetrics()
    target_mask = torch.tensor([[True], [False]])
    metrics.update(torch.full((2, 1, 2), 0.5), target_mask, everywhere(2, 2))
    assert metrics.compute()["coverage"] == 0.5


def test_mechanism_without_weights_has_no_metrics() -> None:
    assert compute(torch.zeros(3, 4), torch.eye(3, 4)) == {}
    assert AttentionMetrics().compute() == {}


def test_alignment_metrics_need_a_gold_alignment() -> None:
    weights = torch.rand(3, 4).softmax(dim=-1)
    assert tuple(compute(weights)) == tuple(compute(weights, torch.zeros(3, 4))) == NAMES[:5]


def test_nan_weights_give_nan_metrics() -> None:
    assert math.isnan(compute(torch.tensor([[math.nan, 0.5], [0.5, 0.5]]))["entropy"])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_weights_are_summed_in_float64(dtype: torch.dtype) -> None:
    weights = torch.full((3000, 4), 0.25, dtype=dtype)
    assert compute(weights)["entropy"] == pytest.approx(math.log(4), rel=1e-12)


BATCHES = st.integers(0, 2**31).map(torch.Generator().manual_seed)


def draw(generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return weights, masks and links of 3 sentences of different lengths, the second without a target."""
    lengths, source_lengths = torch.tensor([5, 0, 3]), torch.tensor([2, 7, 4])
    target_mask = torch.arange(5) < lengths[:, None]  # [3, 5]
    source_mask = torch.arange(7) < source_lengths[:, None]  # [3, 7]
    weights = torch.randn(3, 5, 7, generator=generator).masked_fill(~source_mask[:, None], -math.inf)
    gold = torch.rand(3, 5, 7, generator=generator) < 0.3
    gold &= target_mask[..., None] & source_mask[:, None]
    return weights.softmax(dim=-1), target_mask, source_mask, gold


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(BATCHES)
def test_batch_equals_its_sentences_one_by_one(generator: torch.Generator) -> None:
    together, one_by_one = AttentionMetrics(), AttentionMetrics()
    weights, target_mask, source_mask, gold = batch = draw(generator)
    together.update(*batch)
    for row in range(3):
        T, S = int(target_mask[row].sum()), int(source_mask[row].sum())
        one_by_one.update(
            weights[row : row + 1, :T, :S], everywhere(1, T), everywhere(1, S), gold[row : row + 1, :T, :S]
        )
    expected = {name: pytest.approx(value) for name, value in one_by_one.compute().items()}
    assert together.compute() == expected
    together.reset()
    assert together.compute() == {}
