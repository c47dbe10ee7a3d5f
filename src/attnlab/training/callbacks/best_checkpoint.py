"""Keep the best model of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lightning.pytorch.callbacks import ModelCheckpoint


class BestCheckpoint(ModelCheckpoint):
    """Saves `best.ckpt` whenever a validation gives the best score so far.

    Lightning's own forgets the best score if the run directory was moved, and then takes the next one for
    the best.

    Args:
        path: the file.
        monitor: the score.
        mode: whether "min" or "max" is best.
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
        """Go on from the best score so far, wherever the file lies now."""
        super().load_state_dict({**state_dict, "dirpath": self.dirpath})
        self.current_score = state_dict["current_score"]
        if self.best_model_score is not None:
            place = str(Path(str(self.dirpath)) / f"{self.filename}{self.FILE_EXTENSION}")
            self.best_model_path = self.kth_best_model_path = place
            self.best_k_models = {place: self.best_model_score}
