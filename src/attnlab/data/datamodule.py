"""A corpus and its vocabularies as Lightning's loaders."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
from lightning.pytorch import LightningDataModule, Trainer
from torch.utils.data import DataLoader, Sampler

from attnlab.data.batching import BatchOrder, EvaluationOrder, Examples, encode
from attnlab.data.cache import encode_once
from attnlab.data.corpus import Corpus, Pair
from attnlab.data.tokenization.vocabularies import Vocabularies
from attnlab.errors import UserError
from attnlab.types import Batch

Split = Literal["train", "val", "test"]

SPLITS: dict[str, tuple[Split, ...]] = {
    "fit": ("train", "val"),
    "validate": ("val",),
    "test": ("test",),
    "predict": ("test",),
}
"""The splits that each of Lightning's stages reads."""


class Seq2SeqData(LightningDataModule):
    """Batches of a corpus, in an order that is the same whenever it is asked for.

    The orders know about processes, so the Trainer needs `use_distributed_sampler=False`. Batching is by
    `batch_type`, `bucket_by_length` and `pool` as in `BatchOrder`, and encoding as by `encode`. Validation
    and test take `evaluation_batch_size` pairs at a time, by default `batch_size`, or 64 if that counts
    tokens. Prediction reads the test split. `cache` is the folder that keeps what was encoded; without one
    nothing is kept.

    Training resumes in the middle of an epoch: with the batch that follows those begun when the checkpoint
    was saved.
    """

    def __init__(
        self,
        corpus: Corpus,
        vocabularies: Vocabularies,
        *,
        batch_size: int,
        batch_type: Literal["sentences", "tokens"] = "sentences",
        bucket_by_length: bool = True,
        pool: int = 50,
        evaluation_batch_size: int | None = None,
        source_eos: bool = False,
        max_source_length: int | None = None,
        max_target_length: int | None = None,
        copying: bool = False,
        workers: int = 0,
        seed: int = 0,
        cache: Path | None = None,
    ) -> None:
        super().__init__()
        self.corpus = corpus
        self.vocabularies = vocabularies
        self.batch_size = batch_size
        self.batch_type = batch_type
        self.bucket_by_length = bucket_by_length
        self.pool = pool
        self.evaluation_batch_size = evaluation_batch_size or (
            batch_size if batch_type == "sentences" else 64
        )
        self.source_eos = source_eos
        self.max_source_length = max_source_length
        self.max_target_length = max_target_length
        self.copying = copying
        self.workers = workers
        self.seed = seed
        self.encode = encode if cache is None else partial(encode_once, cache)
        self._examples: dict[Split, Examples] = {}
        self._begun = 0  # batches, over all epochs, when the checkpoint that training goes on from was saved

    def pairs(self, split: Split) -> list[Pair]:
        """The raw text of a split; `Batch.indices` count its places."""
        return {"train": self.corpus.train, "val": self.corpus.val, "test": self.corpus.test}[split]

    def examples(self, split: Split) -> Examples:
        """A split as the network reads it, once a stage that reads it was set up."""
        return self._examples[split]

    def state_dict(self) -> dict[str, Any]:
        """The count of all batches ever begun, from which the place in the order follows."""
        assert self.trainer is not None
        return {"begun": self.trainer.fit_loop.epoch_loop.batch_progress.total.ready}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on after them. A scheduler may ask for the loader before the trainer knows where it stands."""
        self._begun = state_dict["begun"]

    def setup(self, stage: str) -> None:
        """Encode the splits that this stage reads."""
        if getattr(self.trainer, "overfit_batches", 0):  # an attribute that Lightning does not declare
            raise UserError("trainer.overfit_batches undoes the batching: use trainer.limit_train_batches")
        for split in SPLITS[stage]:
            if split not in self._examples:
                self._examples[split] = self.encode(
                    self.pairs(split),
                    self.vocabularies,
                    source_eos=self.source_eos,
                    max_source_length=self.max_source_length,
                    max_target_length=self.max_target_length,
                    copying=self.copying,
                )

    def train_dataloader(self) -> DataLoader[Batch]:
        """The training split, from where training stands."""
        examples = self._examples["train"]
        rank, world = self._place()
        order = BatchOrder(
            examples.source_lengths,
            examples.target_lengths,
            size=self.batch_size,
            batch_type=self.batch_type,
            bucket_by_length=self.bucket_by_length,
            pool=self.pool,
            seed=self.seed,
            rank=rank,
            world=world,
        )
        if self.trainer is not None:
            order.resume(*divmod(self._begun, _batches_per_epoch(self.trainer, len(order))))
        return self._loader(examples, order)

    def val_dataloader(self) -> DataLoader[Batch]:
        """The rank's share of the validation split."""
        return self._evaluation_loader("val")

    def test_dataloader(self) -> DataLoader[Batch]:
        """The rank's share of the test split."""
        return self._evaluation_loader("test")

    def predict_dataloader(self) -> DataLoader[Batch]:
        """The same as for testing."""
        return self._evaluation_loader("test")

    def _evaluation_loader(self, split: Split) -> DataLoader[Batch]:
        examples = self._examples[split]
        rank, world = self._place()
        order = EvaluationOrder(
            examples.source_lengths, size=self.evaluation_batch_size, rank=rank, world=world
        )
        return self._loader(examples, order)

    def _loader(self, examples: Examples, order: Sampler[list[int]]) -> DataLoader[Batch]:
        return DataLoader(
            examples,
            sampler=order,
            batch_size=None,  # the order gives whole batches
            num_workers=self.workers,
            persistent_workers=self.workers > 0,
            pin_memory=torch.cuda.is_available(),
        )

    def _place(self) -> tuple[int, int]:
        """The rank of this process, and the number of processes."""
        return (self.trainer.global_rank, self.trainer.world_size) if self.trainer else (0, 1)


def _batches_per_epoch(trainer: Trainer, length: int) -> int:
    """The batches that training takes of a loader of `length` batches."""
    limit = trainer.limit_train_batches
    return max(1, min(length, limit) if isinstance(limit, int) else int(length * limit))
