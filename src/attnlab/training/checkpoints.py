"""Checkpoint files: written atomically, verified, and loaded without executing code.

A checkpoint contains only plain dicts and tensors. Besides Lightning's entries (weights, optimizer, loops,
callbacks) it holds the configuration and the vocabularies under "attnlab", so that it suffices to predict,
and digests of the data, so that changed data is noticed.

The file is a zip archive whose comment is the SHA-256 of everything before it. torch verifies neither this
nor the CRC-32 of the entries; `read_checkpoint` does.
"""

import hashlib
import logging
import os
import pickle
import zipfile
import zlib
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf

from attnlab.data import digests
from attnlab.data.corpus import Corpus
from attnlab.data.tokenization.tokenizer import SPECIAL_TOKENS, Tokenizer
from attnlab.data.tokenization.vocabularies import Vocabularies
from attnlab.errors import UserError
from attnlab.files.writing import no_space_left, open_atomically

log = logging.getLogger(__name__)

DIGEST_SIZE = hashlib.sha256().digest_size

BLOCK = 2**20  # Bytes that are read at once

READ_ERRORS = (RuntimeError, EOFError, OSError, ValueError, zipfile.BadZipFile, zlib.error)
"""Of a file that is damaged or not a checkpoint; an unknown compression method is a RuntimeError."""


def save_checkpoint(checkpoint: dict[str, Any], path: Path) -> None:
    """Write a temporary file, flush it to disk and rename it."""
    try:
        with open_atomically(path) as file:
            torch.save(checkpoint, file)
            file.seek(-2, os.SEEK_END)  # the last field of an archive is the length of its comment
            file.write(DIGEST_SIZE.to_bytes(2, "little"))
            file.seek(0)
            file.write(hashlib.file_digest(file, "sha256").digest())
    except (OSError, RuntimeError) as error:
        if not no_space_left(error):
            raise
        raise UserError(
            f"{path} cannot be written: no space left. The checkpoint before it is kept; free some space "
            "and run the same command again"
        ) from error


def read_checkpoint(path: Path, *, map_location: Any = "cpu", mmap: bool = True) -> dict[str, Any]:
    """Load and verify a checkpoint of plain values and tensors.

    Its tensors are mapped: only what is read of them takes memory. `mmap=False` is for a training, which
    replaces the file.
    """
    try:
        _verify(path)
        checkpoint = torch.load(path, map_location=map_location, mmap=mmap, weights_only=True)
    except FileNotFoundError:
        raise UserError(f"{path} does not exist. Give a run directory or a checkpoint file") from None
    except (PermissionError, IsADirectoryError) as error:
        raise UserError(f"{path} cannot be read ({error.strerror})") from error
    except pickle.UnpicklingError as error:
        raise UserError(
            f"{path} cannot be read: it is damaged, or it contains Python objects other than tensors and "
            "plain values, which could run code when they are loaded"
        ) from error
    except READ_ERRORS as error:
        raise UserError(
            f"{path} cannot be read: it is truncated, damaged or not a checkpoint. Copy it again, or train "
            f"the run that wrote it again with force=true ({error})"
        ) from error
    if not isinstance(checkpoint, dict):
        raise UserError(f"{path} is not a checkpoint: it contains a {type(checkpoint).__name__}")
    return checkpoint


def _verify(path: Path) -> None:
    """Raise `BadZipFile` if a checkpoint of attnlab, or an entry of another file, has a wrong checksum.

    Compressed entries are refused as well: torch writes none, and a small file could fill the memory.
    """
    with path.open("rb") as file, zipfile.ZipFile(file) as archive:
        if any(entry.file_size > entry.compress_size for entry in archive.infolist()):
            raise zipfile.BadZipFile("it is compressed")
        file.seek(-2, os.SEEK_END)
        if file.read() == b"\0\0":  # no comment, so it was not written by attnlab
            if damaged := archive.testzip():
                raise zipfile.BadZipFile(f"the checksum of {damaged} is wrong")
            return
        digest, left = hashlib.sha256(), file.seek(-DIGEST_SIZE, os.SEEK_END)
        file.seek(0)
        while left and (block := file.read(min(left, BLOCK))):
            digest.update(block)
            left -= len(block)
        if archive.comment != digest.digest():
            raise zipfile.BadZipFile("its checksum is wrong")


def read_newest_checkpoint(*paths: Path) -> tuple[Path, dict[str, Any]] | None:
    """Load the first intact checkpoint of several; None if none of the files exists."""
    damaged: list[Path] = []
    for path in filter(Path.is_file, paths):
        try:
            checkpoint = read_checkpoint(path)
        except UserError as error:
            log.debug("%s", error)
            damaged.append(path)
            continue
        for other in damaged:
            log.warning("%s is damaged; resuming from the previous checkpoint %s", other, path.name)
            other.replace(other.with_suffix(".damaged"))
        return path, checkpoint
    if damaged:
        names = " and ".join(path.name for path in damaged)
        raise UserError(f"{names} in {damaged[0].parent} cannot be read. Start again with force=true")
    return None


def checkpoint_contents(
    config: DictConfig, vocabularies: Vocabularies, run_id: str, corpus: Corpus
) -> dict[str, Any]:
    """Return the configuration, the vocabularies, the run's id and digests of the data for a checkpoint."""
    return {
        "data": digests.describe(corpus, vocabularies),
        "metrics": list(corpus.metrics),
        "training_sources": torch.from_numpy(digests.source_hashes(corpus.train, vocabularies.source)),
        "config": OmegaConf.to_container(config, resolve=True),
        "vocabularies": [tokenizer.to_json() for tokenizer in vocabularies],
        "wandb_id": run_id,
    }


def read_contents(
    checkpoint: dict[str, Any], path: Path, *, training: bool = False
) -> tuple[DictConfig, Vocabularies]:
    """Return the configuration and the vocabularies that `checkpoint_contents` added to a checkpoint.

    The configuration has no callbacks and loggers, and without `training` no loss terms.
    """
    if "attnlab" not in checkpoint:
        raise UserError(f"{path} was not written by attnlab: it contains no configuration")
    contents = checkpoint["attnlab"]
    source, target = (Tokenizer.from_json(text) for text in contents["vocabularies"])
    if min(source.size, target.size) <= len(SPECIAL_TOKENS):
        raise UserError(f"{path} has an empty vocabulary: train the run again with force=true")
    config = OmegaConf.create(contents["config"])
    # Only a training has these. Without them, predicting need not import Lightning to check their classes.
    config.callbacks, config.logger = {}, {}
    if not training:
        config.loss = {"terms": {}}
    return config, Vocabularies(source, target)
