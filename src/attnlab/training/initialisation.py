"""Initial weights from another run's checkpoint or from word vectors, and frozen parts of a network.

Only the weights and the vocabularies of a checkpoint are used. No object is built from its configuration,
so that a checkpoint of another person cannot run code.
"""

import hashlib
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attnlab.config.options import suggest
from attnlab.data.tokenization.tokenizer import SPECIAL_TOKENS, Tokenizer
from attnlab.data.tokenization.vocabularies import Vocabularies
from attnlab.data.word_vectors import read_word_vectors
from attnlab.errors import UserError
from attnlab.files.run_directory import Run, locate_run
from attnlab.nn.seq2seq import Seq2Seq
from attnlab.settings import FilePath
from attnlab.training import checkpoints
from attnlab.training.models import network_weights, report_misfit

log = logging.getLogger(__name__)

NETWORK_PARTS = (
    *("source_embedding", "encoder", "bridge"),
    *("target_embedding", "decoder.attention", "decoder", "readout"),
)
"""Parts of a network in the report; a parameter belongs to the first part that contains it."""

Counts = dict[str, dict[str, int]]
"""Numbers of parameters that are "loaded", "new" and "left out", by the names of the tensors."""


@dataclass(frozen=True)
class Source:
    """Vocabularies and weights of the checkpoint that a training starts from."""

    path: Path
    sha256: str
    vocabularies: Vocabularies
    weights: dict[str, Tensor]

    def extend(self, trained: Vocabularies) -> Vocabularies:
        """Return the vocabularies of the checkpoint, with the new entries of those of the new data."""
        ours, shared = self.vocabularies, trained.source is trained.target
        if shared and ours.source.to_json() != ours.target.to_json():
            raise UserError(
                f"init.from={self.path}: that run has one vocabulary for sources and one for targets. Set "
                "shared_vocabulary=false"
            )
        try:
            source, target = (side.extended(other) for side, other in zip(ours, trained, strict=True))
        except ValueError as error:
            raise UserError(
                f"init.from={self.path}: {error}. Set tokenizer, target_tokenizer and shared_vocabulary as "
                "in that run"
            ) from error
        for name, side, extended in (("source", ours.source, source), ("target", ours.target, target)):
            log.info("%s vocabulary: %d entries, %d new", name, side.size, extended.size - side.size)
        return Vocabularies(source, source if shared else target)


def read_source(location: str) -> Source:
    """Read the vocabularies and the weights of a run directory or a checkpoint file."""
    try:
        path = locate_run(location)[1]
        checkpoint = checkpoints.read_checkpoint(path)
        with report_misfit(path):
            _, vocabularies = checkpoints.read_contents(checkpoint, path)
            weights = network_weights(checkpoint, path)
    except UserError as error:
        raise UserError(f"init.from: {error}") from error
    if not weights or not all(isinstance(value, Tensor) for value in weights.values()):
        raise UserError(f"init.from: {path} contains no weights of a network: give a run of attnlab train")
    return Source(path, hashlib.sha256(path.read_bytes()).hexdigest(), vocabularies, weights)


def find_source(
    location: str | None, run: Run | None, trained: Vocabularies
) -> tuple[Source | None, Vocabularies]:
    """Return the checkpoint that a run starts from, and the vocabularies of the run.

    A run that resumes needs only its own checkpoint: it is not initialised, and has its vocabularies.
    """
    if location is None:
        return None, trained
    newest = checkpoints.read_newest_checkpoint(run.last, run.previous) if run else None
    if newest is not None:
        path, checkpoint = newest
        return None, checkpoints.read_contents(checkpoint, path)[1]
    source = read_source(location)
    return source, source.extend(trained)


@torch.no_grad()
def initialise(network: Seq2Seq, vocabularies: Vocabularies, source: Source) -> dict[str, Any]:
    """Load the weights of a checkpoint into the parts of a network that they fit, and log a table of them.

    A parameter is loaded if its name and its shape are equal. In a table with one row per entry of a
    vocabulary, the rows of the checkpoint's entries are loaded: the length of such a table is the size of the
    vocabulary, in the checkpoint and in the network, whose vocabularies extend those of the checkpoint.

    Returns:
        Path and SHA-256 of the checkpoint, and the numbers of loaded, new and left out parameters.
    """
    counts: Counts = {"loaded": {}, "new": {}, "left out": {}}
    sizes = {(old.size, new.size) for old, new in zip(source.vocabularies, vocabularies, strict=True)}
    weights = dict(source.weights)
    for name, parameter in network.named_parameters():
        value = weights.pop(name, None)
        if value is not None:
            is_table = value.ndim > 0 and parameter.ndim > 0 and (len(value), len(parameter)) in sizes
            part = parameter[: len(value)] if is_table else parameter
            fits = part.shape == value.shape
            if fits:
                part.copy_(value)
            counts["loaded" if fits else "left out"][name] = value.numel()
        if new := parameter.numel() - counts["loaded"].get(name, 0):
            counts["new"][name] = new
    known = network.state_dict().keys()  # also the second names of shared parameters, and buffers
    counts["left out"] |= {name: value.numel() for name, value in weights.items() if name not in known}
    log.info("initial weights from %s (sha256 %s)", source.path, source.sha256[:12])
    for line in _describe(counts):
        log.info("%s", line)
    totals = {name.replace(" ", "_"): sum(each.values()) for name, each in counts.items()}
    resized = sum(counts["left out"][name] for name in counts["left out"].keys() & known)
    if resized > totals["loaded"]:
        log.warning(
            "init.from=%s: %s parameters have another shape in this network and are not loaded: give it the "
            "sizes of that run",
            source.path,
            f"{resized:,}",
        )
    return {"checkpoint": str(source.path), "sha256": source.sha256, **totals}


def _describe(counts: Counts) -> Iterator[str]:
    """Yield a table with one row per part of the network, and the names of the tensors that do not fit."""
    yield f"{'part':<20}{''.join(f'{column:>12}' for column in counts)}"
    for part in NETWORK_PARTS:
        row = [sum(n for name, n in each.items() if part_of(name) == part) for each in counts.values()]
        if any(row):
            yield f"{part:<20}{''.join(f'{n:>12,}' for n in row)}"
    for column in ("new", "left out"):
        if counts[column]:
            yield f"{column}: {', '.join(counts[column])}"


def load_word_vectors(
    network: Seq2Seq,
    vocabularies: Vocabularies,
    *,
    shared: bool = False,
    source_vectors: FilePath | None = None,
    target_vectors: FilePath | None = None,
    frozen: bool = False,
) -> dict[str, dict[str, Any]]:
    """Replace initial embeddings by pretrained word vectors.

    Tokens without a vector keep their random initial embedding.

    Args:
        shared: one table for source and target; needs shared_vocabulary=true.
        source_vectors: pretrained word vectors in the text format of word2vec or GloVe, or fastText's .vec.
        target_vectors: the same for the target side.
        frozen: do not train the tables with pretrained vectors.

    Returns:
        For each side with vectors: the file, the number of tokens, and how many of them have a vector.
    """
    files = {"source": source_vectors, "target": target_vectors}
    if shared and target_vectors:
        raise UserError("embedding.shared=true has one table: give embedding.source_vectors only")
    if frozen and not any(files.values()):
        raise UserError(
            "embedding.frozen=true freezes pretrained vectors: set embedding.source_vectors=FILE or "
            "embedding.target_vectors=FILE"
        )
    report = {}
    for side, path in files.items():
        if path is None:
            continue
        tokenizer: Tokenizer = getattr(vocabularies, side)
        weight: Tensor = getattr(network, f"{side}_embedding").table.weight
        setting = f"embedding.{side}_vectors"
        vectors = read_word_vectors(path, tokenizer.id_of, size=weight.size(1), setting=setting)
        with torch.no_grad():
            weight[list(vectors)] = torch.from_numpy(np.stack(list(vectors.values())))
        weight.requires_grad_(not frozen)
        found, tokens = len(vectors), tokenizer.size - len(SPECIAL_TOKENS)
        report[side] = {"file": path, "tokens": tokens, "with_vector": found}
        share = 100 * found / tokens
        log.info("%s: %d of %d tokens have a vector in %s (%.1f %%)", setting, found, tokens, path, share)
    return report


def freeze(network: Seq2Seq, parts: Sequence[str]) -> None:
    """Exclude parts of a network from training."""
    names = [name for name, module in network.named_modules() if name and [*module.parameters()]]
    for part in parts:
        if part not in names:
            options = f"{suggest(part, names)} Parts: {', '.join(NETWORK_PARTS)}"
            raise UserError(f"init.freeze: the network has no part {part!r}.{options}")
        network.get_submodule(part).requires_grad_(False)
    if network.trainable_parameter_count == 0:
        raise UserError(f"init.freeze={list(parts)} leaves nothing to train: remove a part")


def part_of(name: str) -> str:
    """Return the part of the network that a parameter belongs to."""
    return next((part for part in NETWORK_PARTS if name.startswith(f"{part}.")), "other")
