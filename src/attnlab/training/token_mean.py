"""Means over target tokens that do not depend on how the tokens are divided into batches and processes.

A mean over batches of means over tokens would weight the tokens of short batches more. Both the gradient of
an optimizer step and the logged loss of an epoch are sums over tokens, divided once::

    ∇L = Σ_b n_b ∇L_b / Σ_b n_b        n_b: target tokens of batch b, L_b: its mean loss
"""

from collections.abc import Iterable

import torch
from lightning import Trainer
from torch import Tensor
from torchmetrics import Metric


class GradientMean:
    """Mean gradient of an optimizer step, over the target tokens of all its batches on all processes.

    Attributes:
        tokens: target tokens of this process since the last step; 0 if a step has one batch, which needs no
            sums.
    """

    def __init__(self) -> None:
        self.tokens = 0

    def weight(self, loss: Tensor, tokens: int, trainer: Trainer, *, summed: bool) -> Tensor:
        """Return the loss [] to differentiate: the mean over this many tokens, or their sum.

        `summed`: the gradients are sums in any case, because they are those of shards.
        """
        accumulated = trainer.accumulate_grad_batches
        if not summed and trainer.world_size * accumulated == 1:
            return loss
        self.tokens += tokens
        return loss * tokens * accumulated  # Lightning divides by `accumulated`

    def divide(self, parameters: Iterable[Tensor], trainer: Trainer) -> None:
        """Divide summed gradients, of parameters of any shape, by the number of tokens."""
        if self.tokens == 0:
            return
        tokens = torch.tensor(float(self.tokens), device=trainer.strategy.root_device)  # []
        # The mean over processes: DDP has divided the sum of the gradients by their number, too. With shards,
        # every process has the gradients and the tokens of the whole batch.
        tokens = trainer.strategy.reduce(tokens, reduce_op="mean")
        for parameter in parameters:
            if parameter.grad is not None:
                parameter.grad.div_(tokens)
        self.tokens = 0


class EpochLoss(Metric):
    """Mean training loss of an epoch, over the target tokens of all processes.

    torchmetrics' `MeanMetric` checks for NaN, which synchronises the GPU.
    """

    full_state_update = False
    total: Tensor  # [] float64
    tokens: Tensor  # [] float64

    def __init__(self) -> None:
        super().__init__()
        self.add_state("total", torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("tokens", torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")

    def update(self, loss: Tensor, tokens: int) -> None:
        """Add the mean loss [] of this many tokens."""
        self.total += tokens * loss
        self.tokens += tokens

    def compute(self) -> Tensor:
        """Return the mean loss per token, []."""
        return self.total / self.tokens

    def sums(self) -> Tensor:
        """Return the sums of this process, [2]. Lightning saves no metrics of an unfinished epoch."""
        return torch.stack([self.total, self.tokens])

    def restore(self, sums: Tensor, rank: int, world: int) -> None:
        """Restore the sums of all processes, [P, 2], of which there may have been another number."""
        self.total, self.tokens = sums[rank::world].sum(0).to(self.device).unbind()
