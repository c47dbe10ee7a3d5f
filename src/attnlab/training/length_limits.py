"""Warnings about texts that are longer than a limit of the attention or of the search."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from attnlab.data.datamodule import Seq2SeqData
from attnlab.data.examples import Examples
from attnlab.files.predictions import Prediction
from attnlab.nn.attention.location import Location
from attnlab.nn.seq2seq import Seq2Seq, TranslationModel

log = logging.getLogger(__name__)


def warn_of_unattended_positions(network: TranslationModel, data: Seq2SeqData) -> None:
    """Log how many training sources are longer than the attention has positions."""
    attention = network.decoder.attention if isinstance(network, Seq2Seq) else None
    if not isinstance(attention, Location):
        return
    if longer := int((data.examples("train").source_lengths > attention.max_length).sum()):
        message = "%d training sources are longer than attention.max_length=%d: later positions get weight 0"
        log.warning(message, longer, attention.max_length)


def warn_of_cut_outputs(
    split: str, outputs: Sequence[Prediction], references: Examples, *, max_length: int
) -> None:
    """Log how many outputs of a split end at the limit of the search, and how many references are longer."""
    cut = sum(len(output.tokens) > max_length for output in outputs)  # "<eos>" included
    longer = int((references.target_lengths > max_length + 1).sum())
    if cut or longer:
        message = "%s: %d of %d outputs end at search.max_length=%d, and %d references are longer"
        log.warning(message, split, cut, len(outputs), max_length, longer)
