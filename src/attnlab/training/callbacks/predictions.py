"""Decoded sentences, as files and as tables in the loggers."""

from __future__ import annotations

from pathlib import Path

from lightning import Callback, LightningModule, Trainer

from attnlab.data.features import without_features
from attnlab.files.predictions import predictions_file, write_columns, write_predictions
from attnlab.training.loggers import log_table
from attnlab.training.module import Seq2SeqModule


class Predictions(Callback):
    """Writes two files per split with one line per sentence, and logs a table of the first ones.

    The files are `val.jsonl`, and `test.jsonl` or one `test-NAME.jsonl` per named test set. Beside each, a
    file with the ending `.tsv` has the source, without features, and the output in two columns.

    Args:
        folder: output folder.
        rows: number of rows of the table.
    """

    def __init__(self, folder: Path, *, rows: int = 20) -> None:
        self.folder = folder
        self.rows = rows

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._write(trainer, pl_module, "val")

    def on_test_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        assert isinstance(pl_module, Seq2SeqModule)
        self._write(trainer, pl_module, pl_module.data.test_split)

    def _write(self, trainer: Trainer, module: LightningModule, split: str) -> None:
        assert isinstance(module, Seq2SeqModule)
        if not trainer.is_global_zero:
            return
        path = self.folder / predictions_file(split)
        write_predictions(path, module.outputs, weights="omit")
        outputs = [(without_features(output.source), output.hypothesis) for output in module.outputs]
        write_columns(path.with_suffix(".tsv"), outputs)
        rows = [
            [output.source, output.reference, output.hypothesis] for output in module.outputs[: self.rows]
        ]
        columns = ["source", "reference", "hypothesis"]
        log_table(trainer.loggers, f"predictions/{split}", columns, rows, step=trainer.global_step)
