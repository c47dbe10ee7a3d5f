"""Restoring trained models from their checkpoints."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from textwrap import shorten
from typing import Any

import torch
from hydra.errors import InstantiationException
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException
from torch import Tensor

from attnlab.config.trust import check
from attnlab.data.tokenization.vocabularies import Vocabularies
from attnlab.errors import UserError
from attnlab.nn.ensemble import Ensemble
from attnlab.nn.seq2seq import Seq2Seq, TranslationModel
from attnlab.training import checkpoints
from attnlab.training.build import build_network, copies_source

RESTORE_ERRORS = (
    AttributeError,
    LookupError,
    RuntimeError,
    TypeError,
    ValueError,
    InstantiationException,
    OmegaConfBaseException,
)
"""Exceptions raised when the contents of a checkpoint do not fit this version."""
MAX_REASON = 300  # Maximum number of characters of such an exception in an error message


def load_network(
    path: Path, trust: Sequence[str] = (), *, training: bool = False
) -> tuple[DictConfig, Vocabularies, Seq2Seq, dict[str, Any]]:
    """Restore a trained network, in evaluation mode, from its checkpoint alone.

    Returns:
        Configuration, vocabularies and network, and what `checkpoint_contents` added to the checkpoint.
    """
    checkpoint = checkpoints.read_checkpoint(path)
    with report_misfit(path):
        config, vocabularies = checkpoints.read_contents(checkpoint, path, training=training)
        check(config, path, trust)
        with torch.random.fork_rng(devices=[]):  # initial weights, which the next line replaces
            network = build_network(config, vocabularies)
        network.load_state_dict(network_weights(checkpoint, path))
    return config, vocabularies, network.eval(), checkpoint["attnlab"]


@contextmanager
def report_misfit(path: Path) -> Iterator[None]:
    """Raise the errors of a checkpoint of another version as `UserError`."""
    try:
        yield
    except RESTORE_ERRORS as error:
        reason = shorten(str(error), MAX_REASON, placeholder=" …")
        raise UserError(
            f"{path} does not fit this version of attnlab: use the version that trained it ({reason})"
        ) from error


def network_weights(checkpoint: dict[str, Any], path: Path) -> dict[str, Tensor]:
    """Return the weights of the network in a checkpoint, tensors of any shape by their names."""
    prefix = "network."
    weights = {
        name.removeprefix(prefix): value
        for name, value in checkpoint["state_dict"].items()
        if name.startswith(prefix)
    }
    for name, value in weights.items():
        if isinstance(value, Tensor) and value.isnan().any():
            raise UserError(f"{path}: {name} contains NaN, so that the model cannot predict: train it again")
    return weights


def load_model(
    paths: Sequence[Path], trust: Sequence[str] = ()
) -> tuple[DictConfig, Vocabularies, TranslationModel, list[dict[str, Any]]]:
    """Restore the network of one checkpoint, or the ensemble of several, with the contents of each one.

    The configuration of an ensemble is that of its first member that copies source tokens, so that batches
    hold their `copy_ids`, or that of the first member.
    """
    configs, sides, networks, contents = zip(*(load_network(path, trust) for path in paths), strict=True)
    for path, config, vocabularies in zip(paths, configs, sides, strict=True):
        eos = [each.batching.source_eos for each in (configs[0], config)]
        if reason := difference(sides[0], vocabularies, eos):
            raise UserError(f"{path} and {paths[0]} cannot be ensembled: they differ in {reason}")
    config = next(filter(copies_source, configs), configs[0])
    return config, sides[0], networks[0] if len(paths) == 1 else Ensemble(networks).eval(), [*contents]


def difference(
    one: Vocabularies, other: Vocabularies, source_eos: Sequence[bool] = (False, False)
) -> str | None:
    """Return why two networks cannot predict the same tokens, and the fix; None if they can."""
    if [side.to_json() for side in one] != [side.to_json() for side in other]:
        return "their vocabularies: give runs with the same data and tokenizers, such as several seeds"
    if source_eos[0] != source_eos[1]:
        return "batching.source_eos: give runs in which it is equal"
    return None
