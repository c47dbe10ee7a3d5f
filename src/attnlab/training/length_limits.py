"""Limits of the lengths of texts, checks and warnings; the lengths of search and training from the data."""

import logging
from collections.abc import Sequence
from math import ceil, inf

from omegaconf import DictConfig

from attnlab.data.datamodule import Seq2SeqData
from attnlab.data.digests import SPLIT_NAMES
from attnlab.data.examples import Examples
from attnlab.errors import UserError
from attnlab.files.predictions import Prediction
from attnlab.nn.attention.location import scored_positions
from attnlab.nn.positions import max_positions
from attnlab.nn.seq2seq import Seq2Seq, TranslationModel

log = logging.getLogger(__name__)


LONGEST_OUTPUT = 100
"""Smallest `search.max_length` that is chosen from the data. Outputs longer than all targets are possible."""


STEPS = 1000  # Steps of `trainer.max_steps=auto` for up to `STEP_PAIRS` training pairs
STEP_PAIRS = 800
GROWTH = 0.6  # Exponent with which they grow: four times as many for ten times as many pairs


def choose_steps(config: DictConfig, pairs: int) -> DictConfig:
    """Return the configuration with `trainer.max_steps=auto` replaced by a number for this many pairs.

    With `trainer.val_check_interval=auto` there are four validations.
    """
    trainer = config.trainer
    steps = trainer.max_steps
    if steps == "auto":
        steps = max(STEPS, round(STEPS * (pairs / STEP_PAIRS) ** GROWTH, -2))
        log.info("%s training pairs: trainer.max_steps=%d, from trainer.max_steps=auto", f"{pairs:,}", steps)
    config = config.copy()
    config.trainer.max_steps = int(steps)
    if trainer.val_check_interval == "auto":
        config.trainer.val_check_interval = 1.0 if steps == -1 else max(1, int(steps) // 4)
    return config


def check_positions(network: Seq2Seq, data: Seq2SeqData) -> None:
    """Raise `UserError` if a text of any split has more tokens than there are learned positions for."""
    for part, side in (("encoder", "source"), ("decoder", "target")):
        limit = max_positions(network, part)
        if limit == inf:
            continue
        for split, pairs in data.corpus.splits.items():
            examples = data.examples(split)
            lengths = examples.source_lengths if part == "encoder" else examples.target_lengths
            if longer := (lengths > limit).nonzero()[0].tolist():
                first = pairs[longer[0]].origin or f"pair {longer[0] + 1}"
                name, longest = SPLIT_NAMES.get(split, split), lengths.max()
                raise UserError(
                    f"{part}.max_positions={limit}: {len(longer)} {name} {side}s have more tokens "
                    f"(up to {longest}; the first is {first}). Set {part}.max_positions={longest}, or "
                    f"batching.max_{side}_length={limit} to truncate them"
                )


def choose_max_length(config: DictConfig, data: Seq2SeqData) -> DictConfig:
    """Return the configuration with a number for `search.max_length`, which follows from the data if null."""
    if config.search.max_length is not None:
        return config
    longest = max(int(data.examples(split).target_lengths.max()) - 1 for split in ("train", "val"))
    length = max(LONGEST_OUTPUT, ceil(1.5 * longest))
    if length > LONGEST_OUTPUT:
        log.info("search.max_length=%d: the longest target has %d tokens", length, longest)
    decoder = config.decoder
    if decoder.get("positions") == "learned":
        length = min(length, decoder.max_positions - 1)  # one position for <eos>
    config = config.copy()
    config.search.max_length = length
    return config


def warn_of_unattended_positions(network: TranslationModel, data: Seq2SeqData) -> None:
    """Log how many training sources are longer than the attention has positions."""
    limit = scored_positions(network)
    if limit == inf:
        return
    if longer := int((data.examples("train").source_lengths > limit).sum()):
        message = "%d training sources are longer than attention.max_length=%d: later positions get weight 0"
        log.warning(message, longer, limit)


def warn_of_cut_outputs(
    split: str, outputs: Sequence[Prediction], references: Examples, *, max_length: int
) -> None:
    """Log how many outputs of a split end at the limit of the search, and how many references are longer."""
    cut = sum(len(output.tokens) > max_length for output in outputs)  # "<eos>" included
    longer = int((references.target_lengths > max_length + 1).sum())
    if cut or longer:
        message = "%s: %d of %d outputs end at search.max_length=%d, and %d references are longer"
        log.warning(message, split, cut, len(outputs), max_length, longer)
