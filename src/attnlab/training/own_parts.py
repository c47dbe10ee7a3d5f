"""Checks of the mechanism, the encoder and the decoder of a configuration before they train."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from omegaconf import DictConfig, OmegaConf

from attnlab.config.construct import accepts, construct, report_errors, section
from attnlab.config.hydra_versions import instantiate
from attnlab.config.trust import walk
from attnlab.nn.seq2seq import Seq2Seq
from attnlab.testing import check_attention, check_decoder, check_encoder


def check_parts(config: DictConfig, network: Seq2Seq, *, shipped: bool = False) -> Iterator[str]:
    """Check the parts that are not attnlab's own, which tests cannot know; see `attnlab.testing`.

    An encoder that takes the tokenizer is left out.

    Args:
        config: the configuration of a run.
        network: its network, which knows the sizes.
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
    if (shipped or _is_foreign(config.encoder)) and not accepts(config.encoder, "tokenizer"):
        check_encoder(_constructor(config.encoder))
        yield f"encoder {config.encoder._target_}"
    if shipped or _is_foreign(config.decoder):
        check_decoder(_constructor(config.decoder), make_attention(**sizes))
        yield f"decoder {config.decoder._target_}"


def _is_foreign(node: DictConfig) -> bool:
    """Return whether a section names a class outside attnlab."""
    targets = [value for key, value in walk(OmegaConf.to_container(node)) if key.endswith("._target_")]
    return any(not str(target).startswith("attnlab.") for target in targets)


def _constructor(node: DictConfig) -> Callable[..., Any]:
    """Return the class of a section, as a partial with its settings."""
    settings: Any = OmegaConf.to_container(node, resolve=True)
    settings.pop("match", None)
    with report_errors(settings["_target_"]):
        return instantiate({**settings, "_partial_": True})  # type: ignore[no-any-return]
