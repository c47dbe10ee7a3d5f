"""Attention weights of the first sentences, for the report's explorer."""

from __future__ import annotations

from lightning import Callback, LightningModule, Trainer

from attnlab.files.predictions import write_predictions
from attnlab.files.run_directory import Run
from attnlab.settings import Count
from attnlab.training.module import Seq2SeqModule


class AttentionWeights(Callback):
    """Writes `predictions/attention.jsonl`: predictions of the best model with their attention weights.

    They are from the test split (the first test set), or from the validation split if there is no test split.

    Args:
        run: run directory.
        count: number of sentences whose attention weights are kept for the report, the first of the split.
    """

    def __init__(self, *, run: Run, count: Count = 200) -> None:
        self.path = run.attention
        self.count = count

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        assert isinstance(pl_module, Seq2SeqModule)
        pl_module.kept_weights = max(pl_module.kept_weights, self.count)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        assert isinstance(pl_module, Seq2SeqModule)
        if trainer.state.fn != "fit" and not pl_module.data.corpus.test_splits:
            self._write(trainer, pl_module)

    def on_test_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Write the test split, or the first test set."""
        assert isinstance(pl_module, Seq2SeqModule)
        if pl_module.data.test_split == pl_module.data.corpus.test_splits[0]:
            self._write(trainer, pl_module)

    def _write(self, trainer: Trainer, module: Seq2SeqModule) -> None:
        if trainer.is_global_zero:
            first = [prediction for prediction in module.outputs if prediction.index < self.count]
            write_predictions(self.path, first, weights="pack")
