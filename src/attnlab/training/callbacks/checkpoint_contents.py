"""Put into each checkpoint what makes it enough by itself."""

from __future__ import annotations

from typing import Any

from lightning import Callback, LightningModule, Trainer


class CheckpointContents(Callback):
    """Adds `contents`, plain values made by `attnlab.training.checkpoints.describe`, under "attnlab"."""

    def __init__(self, contents: dict[str, Any]) -> None:
        self.contents = contents

    def on_save_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Add them."""
        checkpoint["attnlab"] = self.contents
