"""The data of loaders that a Trainer was given in place of a data module."""

from typing import Any

import numpy as np
from lightning.pytorch import Trainer
from numpy.typing import NDArray

from attnlab.data.corpus import Corpus
from attnlab.data.examples import Examples
from attnlab.errors import UserError
from attnlab.types import EOS


class LoadedData:
    """Stand-in for `Seq2SeqData` in `Seq2SeqModule`, from the datasets of the Trainer's loaders.

    These are `Examples`, or subsets of them.
    """

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

    def inputs(self, split: str) -> NDArray[np.int64]:
        """Return `Examples.inputs` of a split."""
        return self.examples(split).inputs
