"""Base class of the terms of the training loss."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, NamedTuple, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from attnlab.data.datamodule import Seq2SeqData
from attnlab.data.tokenization.vocabularies import Vocabularies
from attnlab.nn.seq2seq import TranslationModel
from attnlab.settings import NotNegative
from attnlab.types import PAD, Batch


@dataclass(frozen=True)
class Outputs:
    """Outputs of a network for the N target tokens of a batch that are not padding."""

    weights: Tensor  # attention weights [B, T, S], also at padding
    logits: Tensor  # [N, V], or [N, V + S] of a readout that copies
    labels: Tensor  # [N]

    @cached_property
    def log_probabilities(self) -> Tensor:
        """Logarithms of the predicted probabilities in fp32, [N, V] or [N, V + S] as `logits`."""
        return self.logits.float().log_softmax(dim=-1)

    @cached_property
    def cross_entropy(self) -> Tensor:
        """Mean cross-entropy [] of the tokens."""
        return F.nll_loss(self.log_probabilities, self.labels, ignore_index=PAD)


class Losses(NamedTuple):
    """Losses of a batch, [] each: means over its target tokens."""

    total: Tensor  # the loss that is minimised
    logged: dict[str, Tensor]  # its parts, by the name under which they are logged
    tokens: int  # number of target tokens without padding


class Trained(Protocol):
    """Attributes of the LightningModule that a loss term can use."""

    network: TranslationModel
    vocabularies: Vocabularies

    @property
    def data(self) -> Seq2SeqData:
        """Data module of the trainer."""

    @property
    def device(self) -> torch.device:
        """Device of the network."""

    def gold_alignment(self, batch: Batch, split: str) -> Tensor:
        """Return the gold alignments of a batch of a split, [B, T, S] bool, True at linked positions."""


class LossTerm(ABC):
    """A term of the training loss, which is added to the cross-entropy: L + λ T.

    The section `loss.terms.NAME` describes a term; its value T is logged as `train/NAME_loss`. A term is a
    mean over the N target tokens of a batch, so that the losses of batches, weighted by N, add up to that of
    one large batch. It is used in training only: validation losses are cross-entropies.

    Args:
        weight: weight λ of the term in the loss; 0 for a loss without it.

    Attributes:
        order: terms with a smaller number are added first; see `add_to`.
    """

    order: ClassVar[int] = 2

    def __init__(self, *, weight: NotNegative) -> None:
        self.weight = weight

    def prepare(self, module: Trained) -> None:  # noqa: B027  # most terms need nothing
        """Check and fetch what the term needs, before training starts."""

    @abstractmethod
    def __call__(self, outputs: Outputs, batch: Batch, progress: float) -> Tensor:
        """Compute the value T of the term, [].

        Args:
            outputs: what the network predicts for the batch.
            batch: the batch.
            progress: share of the training's optimizer steps that are done, in [0, 1].
        """

    def add_to(self, loss: Tensor, value: Tensor) -> Tensor:
        """Return the loss [] with this term, given its value []."""
        return loss + self.weight * value
