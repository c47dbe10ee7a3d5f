"""Loss term of label smoothing."""

from torch import Tensor

from attnlab.settings import Probability
from attnlab.training.losses.base import LossTerm, Outputs, Trained
from attnlab.types import Batch


class LabelSmoothing(LossTerm):
    """Label smoothing (Szegedy et al. 2016, arXiv 1512.00567, section 7).

    ::

        L = (1 - w) L_NLL + w/V T,    T = -1/N Σ_i Σ_v log p(v | y_<i, x)

    The sum is over the V tokens of the vocabulary, also with a readout that copies: the other entries depend
    on the other sentences of the batch.

    Args:
        weight: share w of the target distribution that is spread over the vocabulary.
    """

    order = 0

    def __init__(self, *, weight: Probability = 0.1) -> None:
        super().__init__(weight=weight)
        self.vocabulary_size = 0

    def prepare(self, module: Trained) -> None:
        self.vocabulary_size = module.vocabularies.target.size

    def __call__(self, outputs: Outputs, batch: Batch, progress: float) -> Tensor:
        log_p = outputs.log_probabilities[:, : self.vocabulary_size]  # [N, V]
        return -log_p.sum(dim=-1).sum() / len(log_p)

    def add_to(self, loss: Tensor, value: Tensor) -> Tensor:
        return (1 - self.weight) * loss + value * (self.weight / self.vocabulary_size)
