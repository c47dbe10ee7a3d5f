"""Loss term of word-level knowledge distillation."""

from collections.abc import Sequence
from typing import Annotated

import torch
from torch import Tensor

from attnlab.errors import UserError
from attnlab.files.run_directory import locate_run
from attnlab.nn.readout import copies
from attnlab.nn.seq2seq import TranslationModel
from attnlab.settings import Probability
from attnlab.training.losses.base import LossTerm, Outputs, Trained
from attnlab.training.models import difference, load_model
from attnlab.types import PAD, Batch

Teachers = Annotated[Sequence[str], "a list of run directories or checkpoint files"]


class Distillation(LossTerm):
    """Word-level knowledge distillation (Kim & Rush 2016, arXiv 1606.07947, section 3.1).

    ::

        L = (1 - w) L_NLL + w T,    T = -1/N Σ_i Σ_v q(v | y_<i, x) log p(v | y_<i, x)

    q is the distribution of the teacher and p that of the network. The teacher reads the reference at every
    position. It is not a part of the network: it is neither trained nor saved.

    Args:
        teachers: trained runs with the same vocabularies; the mean of their predictions is learned.
        weight: share w of the teachers' predictions in the loss; the references have the rest.

    Attributes:
        teacher: the model of the teachers, in evaluation mode; `prepare` loads it.
    """

    order = 1

    def __init__(self, *, teachers: Teachers, weight: Probability = 0.5) -> None:
        super().__init__(weight=weight)
        self.locations = list(teachers)
        self.teacher: TranslationModel | None = None

    def prepare(self, module: Trained) -> None:
        if self.teacher is None:
            self.teacher = self._load(module)
        self.teacher.to(module.device)

    def _load(self, module: Trained) -> TranslationModel:
        setting = "loss.terms.distillation.teachers"
        if not self.locations:
            raise UserError(f"{setting}=[]: give a list of run directories or checkpoint files")
        try:
            paths = [locate_run(name)[1] for name in self.locations]
            config, vocabularies, teacher, _ = load_model(paths)
        except UserError as error:
            raise UserError(f"{setting}: {error}") from error
        eos = [config.batching.source_eos, module.data.source_eos]
        reason = difference(vocabularies, module.vocabularies, eos)
        if copies(teacher) != copies(module.network):
            reason = "whether the readout copies: give teachers that do what this run does"
        if reason:
            raise UserError(f"{setting}: {self.locations[0]} and this run differ in {reason}")
        return teacher

    def __call__(self, outputs: Outputs, batch: Batch, progress: float) -> Tensor:
        assert self.teacher is not None
        real = batch.labels != PAD  # [B, T]
        with torch.no_grad():
            taught = self.teacher.logits(self.teacher(batch), batch.copy_ids, real)  # [N, V]
            q = taught.float().softmax(dim=-1)  # [N, V]
        return -(q * outputs.log_probabilities).sum() / len(outputs.labels)

    def add_to(self, loss: Tensor, value: Tensor) -> Tensor:
        return torch.lerp(loss, value, self.weight)
