"""Parts from outside of attnlab: checks before they train, and digests of their code."""

import hashlib
import inspect
import logging
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from hydra.utils import get_object
from omegaconf import DictConfig
from torch import Tensor, nn

from attnlab.config.construct import accepted, construct, constructor, section
from attnlab.config.trust import targets
from attnlab.data.tokenization.tokenizer import Tokenizer
from attnlab.files.digests import file_digest
from attnlab.nn.seq2seq import Seq2Seq
from attnlab.testing import (
    VOCABULARY,
    Part,
    check_attention,
    check_decoder,
    check_encoder,
    check_readout,
    isolated,
    small_batch,
    small_weights,
)
from attnlab.training.losses.base import LossTerm, Outputs
from attnlab.types import PAD, Batch

log = logging.getLogger(__name__)

LIBRARIES = ("attnlab", "torch", "lightning")  # Packages whose code is recorded by their versions


def check_parts(
    config: DictConfig, network: Seq2Seq, tokenizer: Tokenizer, *, shipped: bool = False
) -> Iterator[str]:
    """Check the parts that are not attnlab's own, which tests cannot know; see `attnlab.testing`.

    Yields:
        The name of each part that passed, such as "attention cosine.Cosine".
    """
    given = accepted(config.encoder, tokenizer=tokenizer)
    sizes = {name: getattr(network.decoder.attention, name) for name in ("query_size", "memory_size")}
    target_width = network.target_embedding.width
    normaliser = construct(section(config, "normaliser"))
    make_attention = partial(constructor(section(config, "attention")).function, normaliser=normaliser)
    checks: dict[str, Callable[[Callable[..., Any]], None]] = {
        "attention": lambda _: check_attention(make_attention, **sizes),
        "encoder": lambda make: check_encoder(
            partial(make, **given), input_size=network.source_embedding.width
        ),
        "decoder": lambda make: check_decoder(make, make_attention(**sizes), input_size=target_width),
        "readout": lambda make: check_readout(
            make,
            state_size=network.decoder.output_size,
            context_size=network.decoder.context_size,
            input_size=target_width,
        ),
    }
    for name, check in checks.items():
        if is_foreign(config[name]) or (shipped and name != "readout"):
            check(constructor(section(config, name)).function)
            yield f"{name} {config[name]._target_}"
    for node in (config.loss.get("terms") or {}).values():
        if node and node.get("weight") != 0 and is_foreign(node):
            term = construct(node)
            if type(term).prepare is LossTerm.prepare:
                with isolated():
                    batch = small_batch()
                    check_loss_term(term, batch, _random_outputs(batch))
                yield f"loss term {node._target_}"


def is_unchecked(term: LossTerm) -> bool:
    """Return whether a term from outside prepares itself with the module, and is not checked before."""
    foreign = not type(term).__module__.startswith("attnlab.")
    return foreign and type(term).prepare is not LossTerm.prepare


def check_prepared_term(
    term: LossTerm, network: nn.Module, teacher_forced: Callable[[Batch], Outputs], batch: Batch
) -> None:
    """Check a term that has prepared itself with the module, on a batch of the training data."""
    modes = {part: part.training for part in network.modules()}
    network.eval()  # without dropout, so that a term that reads the batch too is a mean
    with isolated(), torch.no_grad():
        outputs = teacher_forced(batch)
    check_loss_term(term, batch, outputs)
    for part, mode in modes.items():
        part.training = mode


def check_loss_term(term: LossTerm, batch: Batch, outputs: Outputs) -> None:
    """Check that a prepared term of the loss is a mean over target tokens, with a finite gradient."""
    with isolated():
        part = Part(lambda: term, LossTerm)
        weights, logits = (each.detach().requires_grad_() for each in (outputs.weights, outputs.logits))

        def loss(copies: int) -> Tensor:
            labels = outputs.labels.repeat(copies)
            outputs_of_copies = Outputs(weights.repeat(copies, 1, 1), logits.repeat(copies, 1), labels)
            repeated: Batch = batch.select(torch.arange(len(batch.source)).repeat(copies))
            with part.named("__call__", "a value []"):
                value = term(outputs_of_copies, repeated, 0.5)
            return part.shaped("__call__", value, (), "value []")

        value = loss(1)
        problem = "changes if the batch is repeated: return a mean over the target tokens"
        part.equal("__call__", loss(2), value, problem)
        if not value.requires_grad:
            part.fail("__call__", "depends neither on the logits nor on the attention weights")
        part.check_gradients(value, {"the weights": weights, "the logits": logits}, needed=False)


def _random_outputs(batch: Batch) -> Outputs:
    labels = batch.labels[batch.labels != PAD]  # [N]
    return Outputs(small_weights(batch), torch.randn(len(labels), VOCABULARY), labels)


def describe_code(config: DictConfig) -> dict[str, dict[str, str]]:
    """Return the SHA-256 of the code of each class and function that is not of `LIBRARIES`.

    The code of a part is the file that defines it, and those of its package and of the current folder that
    this file imports, except installed packages.

    Returns:
        `parts`: the digest of each `_target_`; `files`: the digest of each file.
    """
    parts: dict[str, str] = {}
    files: dict[str, str] = {}
    for target in sorted({*targets(config)}):
        if target.partition(".")[0] in LIBRARIES:
            continue
        try:
            module = inspect.getmodule(get_object(target))
        except Exception:  # of a logger that this machine lacks; importing a module can raise any exception
            continue
        if module is not None:
            sources: dict[str, Path] = {}
            _add_sources(module, module.__name__.partition(".")[0], sources)
            digests = {name: file_digest(path) for name, path in sorted(sources.items())}
            parts[target] = hashlib.sha256(str(digests).encode()).hexdigest()
            files |= {str(path): digests[name] for name, path in sources.items()}
    return {"parts": parts, "files": files} if parts else {}


def warn_of_changed_code(recorded: Mapping[str, Any] | None, config: DictConfig) -> list[str]:
    """Return the parts whose code is not that of a result of `describe_code`, and log a warning of each."""
    before, now = ((each or {}).get("parts", {}) for each in (recorded, describe_code(config)))
    changed = [part for part, digest in now.items() if before.get(part, digest) != digest]
    for part in changed:
        log.warning(
            "the code of %s is not the code that this run was started with: its scores are not comparable. "
            "Restore the code, or train again with force=true",
            part,
        )
    return changed


def _add_sources(module: ModuleType, package: str, sources: dict[str, Path]) -> None:
    """Add the source files of a module and of the modules that it uses, by their names."""
    path, name = Path(getattr(module, "__file__", None) or ""), module.__name__
    own = name.partition(".")[0] == package or (
        path.is_relative_to(Path.cwd()) and "site-packages" not in path.parts
    )
    if name in sources or name.partition(".")[0] in LIBRARIES or path.suffix != ".py" or not own:
        return
    sources[name] = path
    for value in [*vars(module).values()]:
        defined = getattr(value, "__module__", None)
        used = value if isinstance(value, ModuleType) else sys.modules.get(str(defined))
        if used is not None:
            _add_sources(used, package, sources)


def is_foreign(node: DictConfig) -> bool:
    """Return whether a section names a class outside attnlab."""
    return any(not target.startswith("attnlab.") for target in targets(node))
