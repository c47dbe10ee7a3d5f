"""What was decoded, kept as files and shown as tables."""

from __future__ import annotations

from pathlib import Path

from lightning import Callback, LightningModule, Trainer

from attnlab.runs.predictions import write_predictions
from attnlab.training.loggers import log_table
from attnlab.training.module import Seq2SeqModule


class Predictions(Callback):
    """Writes `predictions/val.jsonl` and `test.jsonl`, a line an example, and shows some in the loggers.

    Args:
        folder: where they go.
        shown: rows of the table.
    """

    def __init__(self, folder: Path, *, shown: int = 20) -> None:
        self.folder = folder
        self.shown = shown

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Write the validation split."""
        self._write(trainer, pl_module, "val")

    def on_test_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Write the test split."""
        self._write(trainer, pl_module, "test")

    def _write(self, trainer: Trainer, module: LightningModule, split: str) -> None:
        assert isinstance(module, Seq2SeqModule)
        if not trainer.is_global_zero:
            return
        write_predictions(self.folder / f"{split}.jsonl", module.outputs, weights="omit")
        rows = [
            [output.source, output.reference, output.hypothesis] for output in module.outputs[: self.shown]
        ]
        log_table(trainer.loggers, f"predictions/{split}", ["source", "reference", "hypothesis"], rows)
