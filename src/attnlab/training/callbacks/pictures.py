"""Heat maps of what the decoder looked at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from lightning import Callback, LightningModule, Trainer

from attnlab.data.alignment import alignment_matrix, output_alignment
from attnlab.plotting.curves import plot_curves
from attnlab.plotting.files import save_png_and_svg
from attnlab.plotting.heatmap import plot_heatmap
from attnlab.runs.directory import Run
from attnlab.training.loggers import log_image
from attnlab.training.module import Seq2SeqModule, Split

SHARES = ("sharpness", "monotonicity", "coverage", "alignment_accuracy")
"""The scores of attention that share the scale from 0 to 1."""


class Pictures(Callback):
    """Draws the attention of a few sentences as they are decoded, to `figures/attention-<n>.png` and `.svg`.

    From the validation split while training, and from the test split (or validation, where there is no test
    split) of the best model at its end. A mechanism without weights has no pictures. The gold alignment is
    framed where there is one, as far as the output is the reference.

    Args:
        run: whose figures they are.
        count: sentences, the first of the split.
        every_n_epochs: draw after each so many epochs.
    """

    def __init__(self, *, run: Run, count: int = 4, every_n_epochs: int = 10) -> None:
        self.folder = run.figures
        self.count = count
        self.every_n_epochs = every_n_epochs

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Draw, if it is time."""
        if trainer.state.fn != "fit" or (trainer.current_epoch + 1) % self.every_n_epochs == 0:
            self._draw(trainer, pl_module, "val")

    def on_test_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Draw."""
        self._draw(trainer, pl_module, "test")

    @torch.no_grad()
    def _draw(self, trainer: Trainer, module: LightningModule, split: Split) -> None:
        assert isinstance(module, Seq2SeqModule)
        if not trainer.is_global_zero or self.count == 0:
            return
        data = module.data
        pairs = data.pairs(split)[: self.count]
        batch = data.examples(split)[list(range(len(pairs)))]
        vocabularies = module.vocabularies
        gold = alignment_matrix(batch, [vocabularies.gold_alignment(pair) for pair in pairs])  # [B, T, S]
        found = module.search(batch.to(module.device), pairs)
        for row, (tokens, weights) in enumerate(zip(found.tokens, found.weights, strict=True)):
            if not weights[0].any():
                return
            length = int(batch.source_lengths[row])
            figure = plot_heatmap(
                weights[0].numpy(),
                vocabularies.source.tokens(batch.source[row, :length].tolist()),
                [*vocabularies.tokens(tokens[0], pairs[row].source), "<eos>"],
                alignment=output_alignment(batch, gold, row, tokens[0]),
            )
            path = save_png_and_svg(figure, self.folder / f"attention-{row + 1}")
            log_image(trainer.loggers, f"attention/{row + 1}", path)


def draw_curves(series: Mapping[str, Sequence[tuple[int, float]]], folder: Path) -> None:
    """Draw what a run logged: loss, learning rate, accuracy, BLEU and attention, a PNG and an SVG each."""
    pictures = {
        "loss": ["train/loss_epoch", "val/loss"],
        "learning_rate": [name for name in series if name.startswith("lr-")],
        "accuracy": ["val/token_accuracy", "val/exact_match", "val/parses"],
        "bleu": ["val/bleu", "val/chrf", "val/conala_bleu"],
        "attention": [f"attention/{name}" for name in SHARES],
    }
    for title, names in pictures.items():
        drawn = {name: series[name] for name in names if name in series}
        if drawn:
            save_png_and_svg(plot_curves(drawn, y_label=title.replace("_", " ")), folder / title)
