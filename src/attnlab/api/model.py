"""Loading of trained models."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from attnlab.errors import UserError
from attnlab.files.run_directory import Run, locate_run
from attnlab.jobs.worker_process import import_from_current_folder
from attnlab.nn.attention.base import Attention
from attnlab.nn.decoders import Decoder
from attnlab.training.build import build_preparation
from attnlab.training.model import Model
from attnlab.training.models import load_model

if TYPE_CHECKING:
    from attnlab.training.module import Seq2SeqModule

RunPath = str | Path | Run  # A run, the path of its directory, or the path of a checkpoint file


def load(
    runs: RunPath | Seq2SeqModule | Sequence[RunPath],
    *,
    trust: str | Sequence[str] = (),
    device: torch.device | str = "cpu",
) -> Model:
    """Load a trained model, in evaluation mode.

    Args:
        runs: a run directory, of which the best checkpoint is used, or a checkpoint file. A list is an
            ensemble: the probabilities of its members are averaged. A module of `attnlab.build` shares its
            network with the model, and is put in evaluation mode.
        trust: modules, or dotted names of classes, that the configuration of the run may name in addition to
            attnlab's, such as the file of a custom mechanism in the current folder.
        device: where to compute, such as "cuda".

    Raises:
        UserError: if a checkpoint is missing or damaged, or names a class that is not trusted; or if the
            members of an ensemble have different vocabularies.
    """
    module: Any = runs  # or a module, whose class is not imported here: Lightning takes seconds
    if hasattr(module, "translator"):
        model: Model = module.model(device)
        return model
    paths = [checkpoint for _, checkpoint in locate_all(module)]
    config, vocabularies, network, _ = load_model(paths, trusted_names(trust))
    return Model(
        config=config,
        vocabularies=vocabularies,
        network=network.to(device),
        prepare=build_preparation(config),
        device=torch.device(device),
    )


def locate_all(runs: RunPath | Sequence[RunPath]) -> list[tuple[Run, Path]]:
    """Return the run and the checkpoint of each member of a model."""
    members = [runs] if isinstance(runs, (str, Path, Run)) else list(runs)
    if not members:
        raise UserError("No run to load: give a run directory or a checkpoint file")
    return [locate_run(str(member.directory if isinstance(member, Run) else member)) for member in members]


def trusted_names(trust: str | Sequence[str]) -> list[str]:
    """Return one or several trusted names as a list; if there are any, the current folder is importable."""
    names = [trust] if isinstance(trust, str) else list(trust)
    if names:
        import_from_current_folder()
    return names


@contextmanager
def attention_replaced(decoder: Decoder, attention: Attention) -> Iterator[None]:
    """Use another attention in a decoder inside the block."""
    original = decoder.attention
    decoder.attention = attention
    try:
        yield
    finally:
        decoder.attention = original
