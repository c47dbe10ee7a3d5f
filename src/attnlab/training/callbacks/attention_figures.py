"""Heat maps of the attention weights of a few sentences."""

from __future__ import annotations

from lightning import Callback, LightningModule, Trainer

from attnlab.files.run_directory import Run
from attnlab.plotting.files import save_png_and_svg
from attnlab.settings import Count, Size
from attnlab.training.loggers import log_image
from attnlab.training.module import Seq2SeqModule


class AttentionFigures(Callback):
    """Plots the attention of the first decoded sentences to `figures/attention-<n>.png` and `.svg`.

    The sentences are from the validation split during training. At the end the best model's are plotted, from
    the test split (the first test set), or from the validation split if there is no test split. Gold
    alignments are framed for as long as the output equals the reference. A mechanism without weights has no
    figures.

    Args:
        run: run directory; the figures go to its `figures` folder.
        count: number of sentences with heat maps, the first of the split.
        every_n_epochs: validation epochs between two sets of heat maps.
    """

    def __init__(self, *, run: Run, count: Count = 4, every_n_epochs: Size = 10) -> None:
        self.folder = run.figures
        self.count = count
        self.every_n_epochs = every_n_epochs

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        assert isinstance(pl_module, Seq2SeqModule)
        pl_module.kept_weights = max(pl_module.kept_weights, self.count)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Plot the validation split every `every_n_epochs` epochs; at the end, if there is no test split."""
        assert isinstance(pl_module, Seq2SeqModule)
        if trainer.state.fn == "fit":
            due = (trainer.current_epoch + 1) % self.every_n_epochs == 0
        else:
            due = not pl_module.data.corpus.test_splits
        if due:
            self._plot(trainer, pl_module)

    def on_test_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Plot the test split, or the first test set."""
        assert isinstance(pl_module, Seq2SeqModule)
        if pl_module.data.test_split == pl_module.data.corpus.test_splits[0]:
            self._plot(trainer, pl_module)

    def _plot(self, trainer: Trainer, module: LightningModule) -> None:
        assert isinstance(module, Seq2SeqModule)
        if not trainer.is_global_zero:
            return
        for prediction in module.outputs:
            if prediction.index >= self.count or prediction.weights is None or not prediction.weights.any():
                continue
            name = f"{prediction.index + 1}"
            path = save_png_and_svg(prediction.plot(), self.folder / f"attention-{name}")
            log_image(trainer.loggers, f"attention/{name}", path, step=trainer.global_step)
