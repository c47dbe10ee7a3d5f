"""Files of decoded sentences and of their attention weights."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path

from lightning import Callback, LightningModule, Trainer
from lightning.pytorch.loggers import WandbLogger

from attnlab.files.predictions import Prediction, write_columns, write_predictions
from attnlab.files.run_directory import Run, predictions_file
from attnlab.report.files import save_png_and_svg
from attnlab.settings import Count, Size
from attnlab.training.loggers import log_image
from attnlab.training.module import Seq2SeqModule


class Predictions(Callback):
    """Writes two files per split with one line per sentence, and sends a table of the first ones to W&B.

    The files are `val.jsonl`, and `test.jsonl` or one `test-NAME.jsonl` per named test set. Beside each, a
    file with the ending `.tsv` has the source, its features if there are any, and the output in columns.
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
        has_features = module.config is not None and module.config.data.get("features_column") is not None
        outputs = [
            (*(output.columns if has_features else [output.source]), output.hypothesis)
            for output in module.outputs
        ]
        write_columns(path.with_suffix(".tsv"), outputs)
        columns = ["source", "reference", "hypothesis"]
        rows = [
            [output.source, " | ".join(output.references), output.hypothesis]
            for output in module.outputs[: self.rows]
        ]
        for logger in trainer.loggers:
            if isinstance(logger, WandbLogger):
                logger.log_text(key=f"predictions/{split}", columns=columns, data=rows)


class FirstOutputs(Callback, ABC):
    """Base of callbacks that write the attention weights of the first decoded sentences.

    At the end of a run the best model's are from the test split (the first test set), or from the validation
    split if there is no test split.
    """

    def __init__(self, run: Run, count: int) -> None:
        self.run = run
        self.count = count

    @abstractmethod
    def write(self, trainer: Trainer, outputs: Sequence[Prediction]) -> None:
        """Write the outputs of the first sentences."""

    def is_due(self, trainer: Trainer) -> bool:
        """Return whether to write after this validation of a training."""
        return False

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        assert isinstance(pl_module, Seq2SeqModule)
        pl_module.kept_weights = max(pl_module.kept_weights, self.count)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        assert isinstance(pl_module, Seq2SeqModule)
        is_training, splits = trainer.state.fn == "fit", pl_module.data.corpus.test_splits
        self._write(trainer, pl_module, self.is_due(trainer) if is_training else not splits)

    def on_test_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        assert isinstance(pl_module, Seq2SeqModule)
        self._write(trainer, pl_module, pl_module.data.test_split == pl_module.data.corpus.test_splits[0])

    def _write(self, trainer: Trainer, module: Seq2SeqModule, is_due: bool) -> None:
        if is_due and trainer.is_global_zero:
            self.write(trainer, [output for output in module.outputs if output.index < self.count])


class AttentionFigures(FirstOutputs):
    """Plots attention weights to `figures/attention-<n>.png` and `.svg`, also during training.

    Args:
        count: number of sentences with heat maps, the first of the split.
        every_n_epochs: validation epochs between two sets of heat maps.
    """

    def __init__(self, *, run: Run, count: Count = 4, every_n_epochs: Size = 10) -> None:
        super().__init__(run, count)
        self.every_n_epochs = every_n_epochs

    def is_due(self, trainer: Trainer) -> bool:
        return (trainer.current_epoch + 1) % self.every_n_epochs == 0

    def write(self, trainer: Trainer, outputs: Sequence[Prediction]) -> None:
        for output in outputs:
            if output.weights is not None and output.weights.any():
                name = f"{output.index + 1}"
                path = save_png_and_svg(output.plot(), self.run.figures / f"attention-{name}")
                log_image(trainer.loggers, f"attention/{name}", path, step=trainer.global_step)


class AttentionWeights(FirstOutputs):
    """Writes predictions with their attention weights to `predictions/attention.jsonl`, for the report.

    Args:
        count: number of sentences whose attention weights are kept for the report, the first of the split.
    """

    def __init__(self, *, run: Run, count: Count = 200) -> None:
        super().__init__(run, count)

    def write(self, trainer: Trainer, outputs: Sequence[Prediction]) -> None:
        write_predictions(self.run.attention, outputs, weights="pack")
