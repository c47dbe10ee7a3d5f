"""Virtual shards: the same bits on any number of processes.

A global batch is cut into K shards. Each shard is a computation of its own: it is padded to its own longest
sentences, its random numbers depend on (seed, batch, shard), and its gradient is computed separately. The
gradients are added in the order of a fixed binary tree::

    K = 4:   (g_0 + g_1) + (g_2 + g_3)

Floating-point sums depend on the order of their terms. Here it is always the same, whichever process holds
which shards: one process computes them in turn, which needs the memory of one shard at a time; W processes
compute K / W each.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from lightning import Trainer
from lightning.pytorch.strategies import DDPStrategy, SingleDeviceStrategy
from torch import Tensor, distributed

from attnlab.data.batch_sampler import shards_of
from attnlab.errors import UserError
from attnlab.training.callbacks.reproducibility import seed_generators
from attnlab.training.losses.base import Losses
from attnlab.types import PAD, Batch


class Group(NamedTuple):
    """The processes that share the shards; each holds consecutive ones, at least one."""

    shards: int  # number of shards
    rank: int  # number of this process
    world: int  # number of processes

    def holder(self, shard: int) -> int:
        """Return the rank of the process that holds a shard: the inverse of `shards_of`."""
        return shard * self.world // self.shards


class Shards:
    """The K virtual shards of every batch.

    Args:
        count: K
    """

    def __init__(self, count: int, seed: int) -> None:
        self.count = count
        self.seed = seed
        self.group = Group(count, rank=0, world=1)
        self.gradients: list[Tensor] = []  # of the last batch, one per trained parameter

    def setup(self, trainer: Trainer) -> None:
        """Find out which shards this process holds, and let it compute with one thread on a CPU.

        A sum that several threads share depends on their number.
        """
        self.group = Group(self.count, trainer.global_rank, trainer.world_size)
        if self.group.world > self.count:
            raise UserError(
                f"batching.shards={self.count} is too few for {self.group.world} processes: increase it, or "
                "lower trainer.devices"
            )
        if not isinstance(trainer.strategy, DDPStrategy | SingleDeviceStrategy):
            raise UserError("batching.shards works with trainer.strategy=auto and ddp only")
        if trainer.precision == "16-mixed":
            raise UserError(
                "batching.shards does not scale gradients of 16-bit floats: set trainer.precision=bf16-mixed "
                "or 32-true"
            )
        limits = (trainer.limit_val_batches, trainer.limit_test_batches)
        if self.group.world > 1 and limits != (1.0, 1.0):
            raise UserError(
                "batching.shards: trainer.limit_val_batches and limit_test_batches apply to each process, so "
                "that the metrics depend on the number of processes. Remove them, or set trainer.devices=1"
            )
        if trainer.strategy.root_device.type == "cpu":
            torch.set_num_threads(1)

    def start_evaluation_batch(self, number: int) -> int:
        """Seed for the n-th evaluation batch of this process; returns the shard to which it belongs."""
        local = shards_of(self.group.rank, self.group.world, self.count)
        rounds, place = divmod(number, len(local))
        seed_generators(self.seed, 0, rounds * self.count + local[place])
        return local[place]

    def differentiate(
        self,
        losses: Callable[[Batch], Losses],
        batch: Batch,
        parameters: Sequence[Tensor],
        buffers: Sequence[Tensor] = (),
        *,
        number: int,
    ) -> Losses:
        """Compute the losses of a batch, and keep the gradients of its summed loss, on every process.

        Args:
            batch: the whole batch, the same on every process.
            parameters: parameters of the model, [...] each.
            buffers: buffers of the model, such as a counter of batches, [...] each. Every shard starts from
                their values before the batch.
            number: number of the batch, counted from the start of training.

        Returns:
            The losses of the whole batch. The gradients are those of the total loss times the number of
            tokens; a parameter that the loss does not depend on has a gradient of zeros.
        """
        names: list[str] = []
        values_before = [buffer.clone() for buffer in buffers]

        def sums(shard: int) -> Tensor:
            """Return the gradient and the summed losses of a shard as one vector."""
            part, is_empty = cut(batch, shard, self.count)
            seed_generators(self.seed, number, shard)
            for buffer, value in zip(buffers, values_before, strict=True):
                buffer.copy_(value)
            result = losses(part)
            names[:] = result.logged
            tokens = 0 if is_empty else result.tokens
            with torch.autocast(part.target.device.type, enabled=False):
                gradients = torch.autograd.grad(result.total * tokens, parameters, materialize_grads=True)
            values = torch.stack([result.total, *result.logged.values()]).detach() * tokens
            return torch.cat([*(gradient.flatten() for gradient in gradients), values])

        vector = tree_sum(sums, range(self.count), self.group)
        if self.group.world > 1:  # every process holds a shard, so that `vector` has the right size
            distributed.broadcast(vector, src=0)
        sizes = [*(parameter.numel() for parameter in parameters), 1 + len(names)]
        *parts, values = torch.split(vector, sizes)
        tokens = int((batch.labels != PAD).sum())
        total, *logged = (values / tokens).unbind()
        self.gradients = [
            part.view_as(parameter).to(parameter.dtype)
            for part, parameter in zip(parts, parameters, strict=True)
        ]
        return Losses(total, dict(zip(names, logged, strict=True)), tokens)

    def add_gradients(self, parameters: Sequence[Tensor]) -> None:
        """Add the gradients of the last batch to those of parameters of any shape, like a backward pass."""
        for parameter, gradient in zip(parameters, self.gradients, strict=True):
            parameter.grad = gradient if parameter.grad is None else parameter.grad.add_(gradient)
        self.gradients = []


def tree_sum(value: Callable[[int], Tensor], shards: range, group: Group) -> Tensor:
    """Add the vectors of shards in the order of a binary tree that depends on nothing but their number.

    Args:
        value: computes the vector of a shard, [n].
        shards: consecutive shards.

    Returns:
        The sum [n], on the process that holds the first of these shards. On others that hold one, any vector
        [n]; on the rest, an empty one.
    """
    receiver = group.holder(shards[0])
    if len(shards) == 1:
        return value(shards[0]) if group.rank == receiver else torch.empty(0)
    middle = len(shards) // 2
    left = tree_sum(value, shards[:middle], group)
    right = tree_sum(value, shards[middle:], group)
    sender = group.holder(shards[middle])
    if group.rank == receiver:
        if sender != receiver:
            right = torch.empty_like(left)
            distributed.recv(right, sender)
        return left.add_(right)
    if group.rank == sender:
        distributed.send(right, receiver)
    return right if len(right) > 0 else left


def cut(batch: Batch, shard: int, count: int) -> tuple[Batch, bool]:
    """Cut a shard out of a batch: the pairs `shard`, `shard` + `count`, ….

    Every `count`-th pair of a batch that is sorted by length: the shards are about equally long.

    Returns:
        The pairs, padded to the longest of them, and whether there are none. Instead of none the first pair
        of the batch is returned.
    """
    is_empty = shard >= len(batch.target)
    size, device = len(batch.target), batch.target.device
    part = batch.select(torch.arange(0 if is_empty else shard, 1 if is_empty else size, count, device=device))
    sources = int(part.source_lengths.max())
    targets = int((part.target != PAD).any(dim=0).sum())
    part = part._replace(
        source=part.source[:, :sources].contiguous(),
        target=part.target[:, :targets].contiguous(),
        copy_ids=None if part.copy_ids is None else part.copy_ids[:, :sources].contiguous(),
    )
    return part, is_empty
