"""Token-level metrics under teacher forcing, accumulated over batches and processes.

N: real target tokens of a batch, padding excluded · V: vocabulary
"""

import warnings
from collections.abc import Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torchmetrics import Metric, MetricCollection, classification

from attnlab.errors import UserError
from attnlab.metrics.registry import CLASSIFICATION

IGNORED = -100  # Label of tokens that do not count


class SumMetric(Metric):
    """Base of metrics that are defined, as NaN or as an empty result, before the first update."""

    full_state_update = False

    @property
    def update_called(self) -> bool:
        """Always True, so that torchmetrics does not warn about `compute` before `update`."""
        return True

    def add_sum(self, name: str, *size: int, dtype: torch.dtype) -> None:
        """Add a state of zeros [*size] that is summed over processes."""
        self.add_state(name, torch.zeros(size, dtype=dtype), dist_reduce_fx="sum")


class TokenMetrics(SumMetric):
    """Loss, perplexity and token accuracy given the reference prefix.

    Args:
        shards: number of partial sums. A shard is summed by one process, so that the order of a sum, and
            with it its rounding, does not depend on the number of processes.
    """

    loss: Tensor  # [shards] float64: summed negative log-likelihood in nats
    correct: Tensor  # [] int64
    count: Tensor  # [] int64

    def __init__(self, shards: int = 1) -> None:
        super().__init__()
        # float64: a float32 sum over millions of tokens loses the digits in which two models differ
        self.add_sum("loss", shards, dtype=torch.float64)
        self.add_sum("correct", dtype=torch.int64)
        self.add_sum("count", dtype=torch.int64)

    def update(self, logits: Tensor, labels: Tensor, shard: int = 0) -> None:
        """Add N tokens: `logits` [N, V] of any float dtype, `labels` [N] int64, or `IGNORED`."""
        losses = F.cross_entropy(logits.float(), labels, ignore_index=IGNORED, reduction="none")  # [N]
        self.loss[shard] += losses.double().sum()
        self.correct += (logits.argmax(dim=-1) == labels).sum()
        self.count += (labels != IGNORED).sum()

    def compute(self) -> dict[str, Tensor]:
        """Return `loss` (nats per token, no label smoothing), `perplexity` and `token_accuracy` (0 to 1).

        All are scalars, and NaN before the first token.
        """
        loss = self.loss.sum() / self.count
        return {"loss": loss, "perplexity": loss.exp(), "token_accuracy": self.correct / self.count}


def build_class_metrics(metrics: Iterable[str], classes: int) -> MetricCollection:
    """Build metrics of the next token that are classes of torchmetrics, and try each of them on one token.

    Args:
        metrics: names such as "torchmetrics.classification.MulticlassF1Score".
        classes: V.
    """
    collection = MetricCollection([], prefix=CLASSIFICATION)
    for name in metrics:
        kind: Any = getattr(classification, name.removeprefix(CLASSIFICATION), None)
        try:
            metric = kind(num_classes=classes, ignore_index=IGNORED)
            with warnings.catch_warnings(action="ignore"):  # curves of one token
                metric(torch.zeros(1, classes), torch.tensor([0])).item()
        except (AttributeError, RuntimeError, TypeError, ValueError) as error:
            raise UserError(
                f"{name} is not a metric of logits of several classes that returns one number, such as "
                f"{CLASSIFICATION}MulticlassF1Score"
            ) from error
        metric.reset()
        collection.add_metrics(metric)
    return collection
