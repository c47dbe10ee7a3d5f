"""Metrics of the token distribution."""

import math

import pytest
import torch

from attnlab.metrics.tokens import TokenMetrics


def test_token_metrics_match_a_manual_calculation() -> None:
    metrics = TokenMetrics()
    # Odds of 1 : 3 for label 0, then of 1 : 1
    metrics.update(torch.tensor([[0.0, math.log(3)]]), torch.tensor([0]))
    metrics.update(torch.tensor([[0.0, 0.0]]), torch.tensor([0]))
    values = metrics.compute()
    assert values["loss"].item() == pytest.approx((math.log(4) + math.log(2)) / 2)
    assert values["perplexity"].item() == pytest.approx(math.sqrt(8))
    assert values["token_accuracy"].item() == 0.5


def test_token_metrics_weight_tokens_equally_not_batches() -> None:
    torch.manual_seed(0)
    logits, labels = torch.randn(13, 7), torch.randint(7, (13,))
    whole, parts = TokenMetrics(), TokenMetrics()
    whole.update(logits, labels)
    for part in (slice(0, 2), slice(2, 2), slice(2, 13)):
        parts.update(logits[part], labels[part])
    assert parts.compute() == {name: pytest.approx(value) for name, value in whole.compute().items()}


def test_token_metrics_upcast_half_precision() -> None:
    metrics = TokenMetrics()
    metrics.update(torch.zeros(1, 1000, dtype=torch.bfloat16), torch.tensor([3]))
    assert metrics.compute()["loss"].item() == pytest.approx(math.log(1000), rel=1e-6)


def test_token_metrics_are_nan_before_the_first_token() -> None:
    assert all(value.isnan() for value in TokenMetrics().compute().values())
