import math

import pytest
import torch

from attnlab.errors import UserError
from attnlab.metrics.registry import CLASSIFICATION
from attnlab.metrics.tokens import IGNORED, TokenMetrics, build_class_metrics


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


def test_classes_of_torchmetrics_ignore_padding() -> None:
    metrics = build_class_metrics([f"{CLASSIFICATION}MulticlassAccuracy"], classes=3)
    metrics.update(torch.eye(3)[[0, 1, 1, 2, 0]], torch.tensor([0, 0, 1, IGNORED, 1]))
    # Half of the labels 0 and half of the labels 1 are predicted; class 2 is predicted for padding only
    assert metrics.compute() == {f"{CLASSIFICATION}MulticlassAccuracy": pytest.approx(0.5)}


@pytest.mark.parametrize("name", ["Nothing", "BinaryAccuracy", "MulticlassROC", "MulticlassConfusionMatrix"])
def test_class_of_torchmetrics_that_is_no_score_of_several_classes_is_refused(name: str) -> None:
    with pytest.raises(UserError, match=f"{name} is not a metric of logits of several classes"):
        build_class_metrics([CLASSIFICATION + name], classes=3)
