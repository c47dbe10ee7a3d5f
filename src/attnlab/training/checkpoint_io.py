"""Lightning plugin for checkpoint files, apart from their functions: predicting imports no Lightning."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lightning.fabric.plugins import TorchCheckpointIO

from attnlab.training.checkpoints import read_checkpoint, save_checkpoint


class AtomicCheckpointIO(TorchCheckpointIO):
    """Writes checkpoints atomically and loads plain values and tensors only."""

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any | None = None
    ) -> None:
        save_checkpoint(checkpoint, Path(path))

    def load_checkpoint(
        self,
        path: str | Path,
        map_location: Any | None = None,
        weights_only: bool | None = None,
    ) -> dict[str, Any]:
        return read_checkpoint(Path(path), map_location=map_location)
