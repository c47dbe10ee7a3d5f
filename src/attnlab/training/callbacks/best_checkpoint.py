"""Checkpoint of the best epoch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lightning.pytorch.callbacks import ModelCheckpoint


class BestCheckpoint(ModelCheckpoint):
    """Saves `best.ckpt` whenever a validation reaches the best score so far.

    Lightning's `ModelCheckpoint` loses the best score if the run directory was moved, and would then replace
    the best checkpoint by the next one.

    Args:
        path: checkpoint file.
        monitor: logged metric.
        mode: "min" or "max", whichever is better.
    """

    def __init__(self, path: Path, *, monitor: str, mode: str) -> None:
        super().__init__(
            dirpath=path.parent,
            filename=path.stem,
            monitor=monitor,
            mode=mode,
            enable_version_counter=False,
        )

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the best score so far, with the current location of the file."""
        super().load_state_dict({**state_dict, "dirpath": self.dirpath})
        self.current_score = state_dict["current_score"]
        if self.best_model_score is not None:
            path = str(Path(str(self.dirpath)) / f"{self.filename}{self.FILE_EXTENSION}")
            self.best_model_path = self.kth_best_model_path = path
            self.best_k_models = {path: self.best_model_score}

    @classmethod
    def was_saved(cls, checkpoint: dict[str, Any]) -> bool:
        """Return whether `best.ckpt` existed when this checkpoint was saved."""
        states = (state for key, state in checkpoint["callbacks"].items() if key.startswith(cls.__name__))
        return any(state["best_model_path"] for state in states)
