"""LightningDataModule of a corpus and its vocabularies, and its stand-in for other loaders."""

from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

import numpy as np
import torch
from lightning.pytorch import LightningDataModule, Trainer
from torch.utils.data import DataLoader, Sampler

from attnlab.data.batch_sampler import (
    BatchType,
    EvaluationBatchSampler,
    FixedBatches,
    TrainingBatchSampler,
    shards_of,
)
from attnlab.data.corpus import Corpus, Pair
from attnlab.data.digests import SPLIT_NAMES
from attnlab.data.examples import Examples, encode
from attnlab.data.mapped import Store, computed
from attnlab.data.tokenization.tokenizer import parallel_tokenizers
from attnlab.data.tokenization.vocabularies import Vocabularies
from attnlab.errors import UserError
from attnlab.settings import Count, Size
from attnlab.types import EOS, Batch


class Seq2SeqData(LightningDataModule):
    """Batches of a corpus in a reproducible order.

    The batch samplers divide the data among processes themselves, so that the Trainer's own distributed
    sampler is switched off. Training can be resumed within an epoch: it continues with the batch after the
    last one that was started when the checkpoint was saved. The test stage uses `test_split`.

    Args:
        batch_size: largest batch size, in the unit of `batch_type`.
        batch_type: "sentences", or "tokens": padded source and target tokens.
        bucket_by_length: sort by length within shuffled pools, which saves padding; in random order, small
            data is learned in fewer steps. Batches of tokens are always sorted.
        pool: batches per pool.
        evaluation_batch_size: inputs per batch in validation and test; None for `batch_size`, or 64 if that
            counts tokens.
        source_eos: append EOS to sources.
        max_source_length: longer sources are truncated, in tokens with EOS; None for no limit.
        max_target_length: longer targets are truncated, in tokens with EOS; None for no limit.
        workers: number of processes that load data; 0 for the main process.
        shards: number of virtual shards. Every process then loads the whole training batch, and its shards
            of the evaluation batches: see `attnlab.training.shards`. None for batches of its own.
        seed: seed of the training order.

    Attributes:
        batch_size: as the argument; Lightning's Tuner sets it.
        test_split: split of the test stage, one of `Corpus.test_splits`; the first one unless it is set.
    """

    def __init__(
        self,
        corpus: Corpus,
        vocabularies: Vocabularies,
        *,
        batch_size: Size,
        batch_type: BatchType = "sentences",
        bucket_by_length: bool = False,
        pool: Size = 50,
        evaluation_batch_size: Size | None = None,
        source_eos: bool = False,
        max_source_length: Size | None = None,
        max_target_length: Size | None = None,
        with_copy_ids: bool = False,
        workers: Count = 0,
        shards: Size | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.corpus = corpus
        self.vocabularies = vocabularies
        self.test_split = next(iter(corpus.test_splits), "test")
        self.batch_size = batch_size
        self.evaluation_batch_size = evaluation_batch_size or (
            batch_size if batch_type == "sentences" else 64
        )
        self.source_eos = source_eos
        self._limits: dict[str, Any] = {
            "source_eos": source_eos,
            "max_source_length": max_source_length,
            "max_target_length": max_target_length,
        }
        self._with_copy_ids = with_copy_ids
        self._training_sampler = partial(
            TrainingBatchSampler,
            batch_type=batch_type,
            bucket_by_length=bucket_by_length,
            pool=pool,
            seed=seed,
            draws=corpus.draws,
        )
        self._workers = workers
        self._shards = shards
        self._examples: dict[str, Examples] = {}
        self._started_batches = 0  # over all epochs, when the resumed checkpoint was saved

    @property
    def predict_split(self) -> str:
        """Split of the predict stage: `test_split`, or the validation split if there is no test data."""
        return self.test_split if self.corpus.test_splits else "val"

    def pairs(self, split: str) -> Sequence[Pair]:
        """Return the text pairs of a split (`Corpus.splits`), which `Batch.indices` refer to."""
        return self.corpus.splits.get(split, [])

    def examples(self, split: str) -> Examples:
        """Return the encoded pairs of a split."""
        if split in self._examples:
            return self._examples[split]
        pairs, name = self.pairs(split), SPLIT_NAMES.get(split, split)
        options = {"with_copy_ids": self._with_copy_ids, **self._limits}

        def compute(store: Store) -> None:
            with parallel_tokenizers() if store.folder else nullcontext():
                encode(pairs, self.vocabularies, name=name, store=store, **options)

        key = {"split": split, **options, "vocabularies": [side.digest for side in self.vocabularies]}
        store = computed(pairs, key, compute, noun=f"the token ids of the {name} data")
        self._examples[split] = examples = Examples.of(store, with_copy_ids=self._with_copy_ids)
        examples.pairs, examples.name = pairs, name
        return examples

    def state_dict(self) -> dict[str, Any]:
        """Return the number of batches started so far over all epochs."""
        assert self.trainer is not None
        return {"started_batches": self.trainer.fit_loop.epoch_loop.batch_progress.total.started}  # type: ignore[attr-defined]

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the position, since a scheduler may request the loader before the trainer's is restored."""
        self._started_batches = state_dict["started_batches"]

    def setup(self, stage: str) -> None:
        # Lightning would divide the share of each process among all processes a second time
        connector = getattr(self.trainer, "_accelerator_connector", None)
        if connector is not None:
            self._distributed_sampler = connector.use_distributed_sampler
            connector.use_distributed_sampler = False
        splits = {"fit": ("train", "val"), "validate": ("val",), "predict": (self.predict_split,)}
        for split in splits.get(stage, (self.test_split,)):
            self.examples(split)

    def teardown(self, stage: str) -> None:
        """Restore the setting that `setup` changed; a later training starts at its first batch."""
        self._started_batches = 0
        connector = getattr(self.trainer, "_accelerator_connector", None)
        if connector is not None:
            connector.use_distributed_sampler = self._distributed_sampler

    def train_dataloader(self) -> DataLoader[Batch]:
        """Return the loader of the training split, starting at the current position of training."""
        examples = self.examples("train")
        rank, world = self._rank_and_world() if self._shards is None else (0, 1)
        sampler = self._training_sampler(
            examples.source_lengths, examples.target_lengths, size=self.batch_size, rank=rank, world=world
        )
        if getattr(self.trainer, "overfit_batches", 0):  # set by Lightning, but not declared
            return self._loader(examples, FixedBatches([*sampler]))
        if self.trainer is not None:
            sampler.resume(*divmod(self._started_batches, _batches_per_epoch(self.trainer, len(sampler))))
        return self._loader(examples, sampler)

    def val_dataloader(self) -> DataLoader[Batch]:
        """Return the loader of this rank's part of the validation split."""
        return self._evaluation_loader("val")

    def test_dataloader(self) -> DataLoader[Batch]:
        """Return the loader of this rank's part of the test split."""
        return self._evaluation_loader(self.test_split)

    def predict_dataloader(self) -> DataLoader[Batch]:
        """Return the loader of this rank's part of `predict_split`."""
        return self._evaluation_loader(self.predict_split)

    def _evaluation_loader(self, split: str) -> DataLoader[Batch]:
        examples = self.examples(split)
        rank, world = self._rank_and_world()
        count = self._shards or world
        inputs = len(np.unique(examples.inputs))
        if inputs <= shards_of(world - 1, world, count).start:
            raise UserError(
                f"the {examples.name} data has {inputs} inputs, too few for {world} processes: lower "
                "trainer.devices, or give more data"
            )
        sampler = EvaluationBatchSampler(
            examples.source_lengths,
            examples.inputs,
            size=self.evaluation_batch_size,
            shards=shards_of(rank, world, count),
            count=count,
        )
        return self._loader(examples, sampler)

    def _loader(self, examples: Examples, sampler: Sampler[Any]) -> DataLoader[Batch]:
        return DataLoader(
            examples,
            sampler=sampler,
            batch_size=None,  # the sampler yields whole batches
            num_workers=self._workers,
            persistent_workers=self._workers > 0,
            pin_memory=torch.cuda.is_available(),
            generator=torch.Generator(),  # else each iterator draws from the global one
        )

    def _rank_and_world(self) -> tuple[int, int]:
        return (self.trainer.global_rank, self.trainer.world_size) if self.trainer else (0, 1)


def _batches_per_epoch(trainer: Trainer, length: int) -> int:
    """Return the number of training batches per epoch with a loader of `length` batches."""
    limit = trainer.limit_train_batches
    return max(1, min(length, limit) if isinstance(limit, int) else int(length * limit))


class LoadedData:
    """Stand-in for `Seq2SeqData` in `Seq2SeqModule`, from the datasets of the Trainer's loaders."""

    test_split = "test"
    predict_split = "predict"
    corpus = Corpus(evaluation_only=True)

    def __init__(self, trainer: Trainer) -> None:
        self.loaders: dict[str, Any] = {
            "train": trainer.train_dataloader,
            "val": trainer.val_dataloaders,
            "test": trainer.test_dataloaders,
            "predict": trainer.predict_dataloaders,
        }

    def examples(self, split: str) -> Examples:
        """Return the encoded pairs of the loader of a split."""
        dataset = self.loaders[split]
        while not isinstance(dataset, Examples):
            if not hasattr(dataset, "dataset"):
                raise UserError(
                    f"The {split} loader has no examples of attnlab: give one DataLoader of "
                    f"data.examples({split!r})"
                )
            dataset = dataset.dataset
        return dataset

    @property
    def source_eos(self) -> bool:
        """True if sources end with EOS."""
        return EOS in self.examples("train").sources.padded([0])[0]

    def pairs(self, split: str) -> Any:
        """Return the text pairs of a split, which `Batch.indices` refer to."""
        return self.examples(split).pairs
