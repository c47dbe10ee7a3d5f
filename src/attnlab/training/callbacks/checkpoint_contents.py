"""Configuration and vocabularies inside every checkpoint."""

from __future__ import annotations

from typing import Any

from lightning import Callback, LightningModule, Trainer


class CheckpointContents(Callback):
    """Adds the plain values of `attnlab.training.checkpoints.describe` to checkpoints, under "attnlab".

    With them a checkpoint suffices to predict.

    Args:
        contents: the result of `describe`.
    """

    def __init__(self, contents: dict[str, Any]) -> None:
        self.contents = contents

    def on_save_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Add the contents to the checkpoint."""
        checkpoint["attnlab"] = self.contents
