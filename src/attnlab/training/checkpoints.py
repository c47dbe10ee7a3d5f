"""Checkpoint files: written whole or not at all, read without running code that lies in them.

A checkpoint holds plain dicts and tensors. Beside what Lightning keeps (weights, optimizer, loops, callbacks)
it holds under "attnlab" the configuration and the vocabularies, so that it can predict by itself.

The file is a zip archive, which carries a CRC-32 of each of its entries. torch does not look at them when it
reads; `load` does. `unzip -t FILE` does the same by hand.
"""

from __future__ import annotations

import logging
import pickle
import zipfile
import zlib
from pathlib import Path
from typing import Any

import torch
from lightning.fabric.plugins import TorchCheckpointIO
from lightning.fabric.utilities.types import _PATH
from omegaconf import DictConfig, OmegaConf

from attnlab.data.tokenization.tokenizer import Tokenizer
from attnlab.data.tokenization.vocabularies import Vocabularies
from attnlab.errors import UserError
from attnlab.runs.files import open_atomically

log = logging.getLogger(__name__)

UNREADABLE = (
    RuntimeError,  # NotImplementedError is one: a method of compression that there is not
    EOFError,
    OSError,
    ValueError,
    pickle.UnpicklingError,
    zipfile.BadZipFile,
    zlib.error,
)
"""What reading a file that is damaged, or no checkpoint, may raise."""


class AtomicCheckpointIO(TorchCheckpointIO):
    """Lightning's checkpoint files, made visible by a rename once they are safely on disk."""

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: _PATH, storage_options: Any | None = None
    ) -> None:
        """Write beside the file, flush to disk, rename."""
        with open_atomically(Path(path)) as file:
            torch.save(checkpoint, file)

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
        UserError: if the file is missing, cut short, damaged, or holds anything but plain values and tensors.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            damaged = archive.testzip()
        if damaged is not None:
            raise zipfile.BadZipFile(f"{damaged} is not what was written")
        checkpoint = torch.load(path, map_location=map_location, weights_only=True)
    except FileNotFoundError:
        raise UserError(f"{path} does not exist: give a run directory or a checkpoint file") from None
    except UNREADABLE as error:
        raise UserError(
            f"{path} cannot be read, it is cut short, damaged or no checkpoint: train again with force=true "
            f"({error})"
        ) from error
    if not isinstance(checkpoint, dict):
        raise UserError(f"{path} is no checkpoint: it holds a {type(checkpoint).__name__}")
    return checkpoint


def load_newest(*paths: Path) -> tuple[Path, dict[str, Any]] | None:
    """The first of some checkpoints that is whole, with what it holds; None where there is none at all.

    Those before it are named, and moved aside so that they never take the place of the one to fall back on.

    Raises:
        UserError: if there are some, and none is whole.
    """
    unreadable: list[Path] = []
    for path in filter(Path.is_file, paths):
        try:
            checkpoint = load(path)
        except UserError as error:
            log.debug("%s", error)
            unreadable.append(path)
            continue
        for other in unreadable:
            log.warning("%s is damaged: going on from the one before it, %s", other, path.name)
            other.replace(other.with_suffix(".damaged"))
        return path, checkpoint
    if unreadable:
        names = " and ".join(path.name for path in unreadable)
        raise UserError(f"{names} in {unreadable[0].parent} cannot be read: force=true starts over")
    return None


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
