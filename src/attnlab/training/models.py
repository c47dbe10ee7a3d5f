"""Restoring trained models from their checkpoints."""

from collections.abc import Sequence
from pathlib import Path
from textwrap import shorten
from typing import Any

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
MAX_REASON = 300
"""Maximum number of characters of such an exception in an error message."""


def load_network(path: Path, trust: Sequence[str] = ()) -> tuple[DictConfig, Vocabularies, Seq2Seq]:
    """Restore a trained network, in evaluation mode, from its checkpoint alone.

    For `trust` see `attnlab.config.trust`.
    """
    return load_for_training(path, trust, training=False)[:3]


def load_for_training(
    path: Path, trust: Sequence[str] = (), *, training: bool = True
) -> tuple[DictConfig, Vocabularies, Seq2Seq, dict[str, Any]]:
    """Restore a network as `load_network`, with the contents of the checkpoint under "attnlab".

    The configuration has no callbacks and loggers, and without `training` no loss terms.
    """
    checkpoint = checkpoints.read_checkpoint(path)
    try:
        config, vocabularies = checkpoints.read_contents(checkpoint, path, training=training)
        check(config, path, trust)
        network = build_network(config, vocabularies)
        network.load_state_dict(network_weights(checkpoint, path))
    except RESTORE_ERRORS as error:
        reason = shorten(str(error), MAX_REASON, placeholder=" …")
        raise UserError(
            f"{path} does not fit this version of attnlab: use the version that trained it ({reason})"
        ) from error
    return config, vocabularies, network.eval(), checkpoint["attnlab"]


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
) -> tuple[DictConfig, Vocabularies, TranslationModel]:
    """Restore the network of one checkpoint, or the ensemble of several.

    The configuration of an ensemble is that of its first member that copies source tokens, so that batches
    hold their `copy_ids`, or that of the first member.
    """
    config, vocabularies, first = load_network(paths[0], trust)
    members = [first]
    for path in paths[1:]:
        other, others, network = load_network(path, trust)
        if difference := _difference(config, vocabularies, other, others):
            raise UserError(f"{path} and {paths[0]} cannot be ensembled: they differ in {difference}")
        if copies_source(other) and not copies_source(config):
            config = other
        members.append(network)
    if len(members) == 1:
        return config, vocabularies, first
    return config, vocabularies, Ensemble(members).eval()


def _difference(
    config: DictConfig, vocabularies: Vocabularies, other: DictConfig, others: Vocabularies
) -> str | None:
    """Return why two networks cannot predict the same tokens, and the fix; None if they can."""
    if [side.to_json() for side in others] != [side.to_json() for side in vocabularies]:
        return "their vocabularies: give runs with the same data and tokenizers, such as several seeds"
    if other.batching.source_eos != config.batching.source_eos:
        return "batching.source_eos: give runs in which it is equal"
    return None
