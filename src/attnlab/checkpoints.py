"""Checkpoint files: written whole or not at all, read without running code that lies in them.

A checkpoint holds plain dicts and tensors. Beside what Lightning keeps (weights, optimizer, loops, callbacks)
it holds under "attnlab" the configuration and the vocabularies, so that it can predict by itself.
"""

from __future__ import annotations

import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import torch
from lightning.fabric.plugins import TorchCheckpointIO
from lightning.fabric.utilities.types import _PATH
from omegaconf import DictConfig, OmegaConf

from attnlab.data.tokenizers import Tokenizer, Vocabularies
from attnlab.errors import UserError


class AtomicCheckpointIO(TorchCheckpointIO):
    """Lightning's checkpoint files, made visible by a rename once they are safely on disk."""

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: _PATH, storage_options: Any | None = None
    ) -> None:
        """Write beside the file, flush to disk, rename."""
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(f".{target.name}.tmp")
        with temporary.open("wb") as file:
            torch.save(checkpoint, file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)

    def load_checkpoint(
        self,
        path: _PATH,
        map_location: Any | None = None,
        weights_only: bool | None = None,
    ) -> dict[str, Any]:
        """Read plain values and tensors alone."""
        return load(Path(path), map_location=map_location)


def load(path: Path, *, map_location: Any = "cpu") -> dict[str, Any]:
    """Read a checkpoint.

    Raises:
        UserError: if the file is missing, cut short or holds anything but plain values and tensors.
    """
    try:
        checkpoint = torch.load(path, map_location=map_location, weights_only=True)
    except FileNotFoundError:
        raise UserError(f"{path} does not exist: give a run directory or a checkpoint file") from None
    except (RuntimeError, EOFError, OSError, pickle.UnpicklingError, zipfile.BadZipFile) as error:
        raise UserError(
            f"{path} cannot be read, it is cut short or no checkpoint: delete it and train again ({error})"
        ) from error
    if not isinstance(checkpoint, dict):
        raise UserError(f"{path} is no checkpoint: it holds a {type(checkpoint).__name__}")
    return checkpoint


def describe(config: DictConfig, vocabularies: Vocabularies, run_id: str) -> dict[str, Any]:
    """What a checkpoint needs beside Lightning's own, in plain values."""
    return {
        "config": OmegaConf.to_container(config, resolve=True),
        "vocabularies": [tokenizer.to_json() for tokenizer in vocabularies],
        "wandb_id": run_id,
    }


def restore(checkpoint: dict[str, Any], path: Path) -> tuple[DictConfig, Vocabularies]:
    """The configuration and vocabularies that `describe` put in.

    Raises:
        UserError: if the checkpoint was not written by this package.
    """
    if "attnlab" not in checkpoint:
        raise UserError(f"{path} was not written by attnlab: it holds no configuration")
    described = checkpoint["attnlab"]
    source, target = (Tokenizer.from_json(text) for text in described["vocabularies"])
    return OmegaConf.create(described["config"]), Vocabularies(source, target)
