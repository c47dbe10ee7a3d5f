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
from omegaconf import DictConfig, OmegaConf
from torch import Tensor

from attnlab.config.construct import accepts, construct, report_errors, section
from attnlab.config.hydra_versions import instantiate
from attnlab.config.trust import walk
from attnlab.data.tokenization.tokenizer import Tokenizer
from attnlab.files.digests import file_digest
from attnlab.nn.seq2seq import Seq2Seq
from attnlab.testing import (
    LENGTHS,
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

LIBRARIES = ("attnlab", "torch", "lightning")
"""Packages whose code is recorded by their versions."""


def check_parts(
    config: DictConfig, network: Seq2Seq, tokenizer: Tokenizer, *, shipped: bool = False
) -> Iterator[str]:
    """Check the parts that are not attnlab's own, which tests cannot know; see `attnlab.testing`.

    Loss terms that prepare themselves with the module are left out.

    Args:
        config: the configuration of a run.
        network: its network, which knows the sizes.
        tokenizer: of the source, for encoders that take it.
        shipped: check the parts of attnlab too.

    Yields:
        The name of each part that passed, such as "attention cosine.Cosine".

    Raises:
        PartError: if a part does not keep the contract of its base class.
    """
    attention = network.decoder.attention
    sizes = {"query_size": attention.query_size, "memory_size": attention.memory_size}
    make_attention = partial(
        _constructor(config.attention), normaliser=construct(section(config, "normaliser"))
    )
    if shipped or _is_foreign(config.attention):
        check_attention(make_attention, **sizes)
        yield f"attention {config.attention._target_}"
    if shipped or _is_foreign(config.encoder):
        given = {"tokenizer": tokenizer} if accepts(config.encoder, "tokenizer") else {}
        check_encoder(partial(_constructor(config.encoder), **given))
        yield f"encoder {config.encoder._target_}"
    if shipped or _is_foreign(config.decoder):
        check_decoder(_constructor(config.decoder), make_attention(**sizes))
        yield f"decoder {config.decoder._target_}"
    if _is_foreign(config.readout):
        check_readout(_constructor(config.readout))
        yield f"readout {config.readout._target_}"
    for node in (config.loss.get("terms") or {}).values():
        if node and node.get("weight") != 0 and _is_foreign(node):
            term = construct(node)
            if type(term).prepare is LossTerm.prepare:
                check_loss_term(term)
                yield f"loss term {node._target_}"


def describe_code(config: DictConfig) -> dict[str, dict[str, str]]:
    """Return the SHA-256 of the code of each class and function that is not of `LIBRARIES`.

    The code of a part is the file that defines it, and those of its package and of the current folder that
    this file imports, except installed packages.

    Returns:
        `parts`: the digest of each `_target_`; `files`: the digest of each file.
    """
    parts: dict[str, str] = {}
    files: dict[str, str] = {}
    for target in sorted({*_targets(config)}):
        if target.partition(".")[0] in LIBRARIES:
            continue
        try:
            module = inspect.getmodule(get_object(target))
        except Exception:  # of a logger that this machine lacks; importing a module can raise any exception
            continue
        if module is None:
            continue
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


def _is_foreign(node: DictConfig) -> bool:
    """Return whether a section names a class outside attnlab."""
    return any(not target.startswith("attnlab.") for target in _targets(node))


def _targets(node: DictConfig) -> list[str]:
    return [str(value) for key, value in walk(OmegaConf.to_container(node)) if key.endswith("._target_")]


def _constructor(node: DictConfig) -> Callable[..., Any]:
    """Return the class of a section, as a partial with its settings."""
    settings: Any = OmegaConf.to_container(node, resolve=True)
    settings.pop("match", None)
    settings.pop("tied", None)
    with report_errors(settings["_target_"]):
        return instantiate({**settings, "_partial_": True})  # type: ignore[no-any-return]


def check_loss_term(term: Any) -> None:
    """Check that a term of the loss is a mean over target tokens, with a finite gradient.

    Raises:
        PartError: names the class, the method, its file and line, and what is expected.
    """
    with isolated():
        part = Part(lambda: term, LossTerm)
        part.build()
        batch = small_batch()
        real = batch.labels != PAD  # [B, T]
        weights = small_weights().requires_grad_()
        logits = torch.randn(int(real.sum()), VOCABULARY).requires_grad_()  # [N, V]
        value = _loss(part, term, Outputs(weights, logits, batch.labels[real]), batch)
        twice = batch.select(torch.arange(len(LENGTHS)).repeat(2))
        outputs = Outputs(weights.repeat(2, 1, 1), logits.repeat(2, 1), batch.labels[real].repeat(2))
        problem = "changes if the batch is repeated: return a mean over the target tokens"
        part.equal("__call__", _loss(part, term, outputs, twice), value, problem)
        if not value.requires_grad:
            part.fail("__call__", "depends neither on the logits nor on the attention weights")
        value.backward()  # type: ignore[no-untyped-call]
        if not all(leaf.grad is None or leaf.grad.isfinite().all() for leaf in (weights, logits)):
            part.fail("__call__", "has a gradient of NaN or infinity")


def _loss(part: Part, term: Any, outputs: Any, batch: Batch) -> Tensor:
    with part.named("__call__", "a value []"):
        value = term(outputs, batch, 0.5)
    return part.shaped("__call__", value, (), "value []")
