"""What was decoded, kept as files and shown as tables."""

from __future__ import annotations

import json
from pathlib import Path

from lightning import Callback, LightningModule, Trainer

from attnlab.runs.files import write_atomically
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
        lines = [json.dumps(sample._asdict(), ensure_ascii=False) for sample in module.outputs]
        write_atomically(self.folder / f"{split}.jsonl", "".join(f"{line}\n" for line in lines))
        rows = [
            [sample.source, sample.reference, sample.hypothesis] for sample in module.outputs[: self.shown]
        ]
        log_table(trainer.loggers, f"predictions/{split}", ["source", "reference", "hypothesis"], rows)
