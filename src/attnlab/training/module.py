"""The LightningModule: a network, its loss, its scores and its optimizer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import lightning
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.utils import clip_grads_with_norm_, get_total_norm
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from attnlab.data.alignment import alignment_matrix
from attnlab.data.corpus import Pair
from attnlab.data.datamodule import Seq2SeqData
from attnlab.data.tokenization.vocabularies import Vocabularies
from attnlab.decoding.reranking import rerank
from attnlab.decoding.search import beam, greedy
from attnlab.metrics.attention import AttentionMetrics
from attnlab.metrics.text import score
from attnlab.metrics.tokens import MeanLoss, TokenMetrics
from attnlab.nn.attention.coverage import coverage_loss
from attnlab.nn.seq2seq import Decoded, TranslationModel
from attnlab.runs.predictions import Prediction
from attnlab.training.gathering import gather_predictions
from attnlab.training.schedules import TeacherForcing, draw_forced
from attnlab.types import PAD, Batch, Hypotheses

Split = Literal["val", "test"]


class Seq2SeqModule(lightning.LightningModule):
    """Trains and scores a `TranslationModel`.

    Args:
        network: the network.
        vocabularies: the tokenizers of both sides.
        optimizer: makes an optimizer of parameters.
        scheduler: makes a scheduler of an optimizer, given the numbers named in `scheduler_needs`.
        scheduler_needs: maps arguments of `scheduler` to the numbers they are: "total_steps" or
            "steps_per_epoch", both in optimizer steps.
        scheduler_interval: step the scheduler after each "step" or "epoch".
        teacher_forcing: how often the decoder reads the reference.
        label_smoothing: share of the target distribution spread over the vocabulary (in training only).
        coverage_weight: λ of the coverage loss λ Σ_j min(α_tj, c_tj) (in training only).
        beam_size: hypotheses kept in search; 1 is greedy.
        length_penalty: exponent of the length that beam scores are divided by.
        coverage_penalty: β of the part of a beam score that asks for every source token to be looked at.
        accepts: which texts a beam prefers to all others; None for no preference.
        max_length: longest output, in tokens.
        text_metrics: names of text metrics of `attnlab.metrics.registry`.
    """

    def __init__(
        self,
        *,
        network: TranslationModel,
        vocabularies: Vocabularies,
        optimizer: Callable[..., Optimizer],
        scheduler: Callable[..., LRScheduler],
        scheduler_needs: Mapping[str, str],
        scheduler_interval: Literal["step", "epoch"],
        teacher_forcing: TeacherForcing,
        label_smoothing: float = 0.0,
        coverage_weight: float = 0.0,
        beam_size: int = 1,
        length_penalty: float = 1.0,
        coverage_penalty: float = 0.0,
        accepts: Callable[[str], bool] | None = None,
        max_length: int = 100,
        text_metrics: Sequence[str] = (),
    ) -> None:
        super().__init__()
        self.network = network
        self.vocabularies = vocabularies
        self.make_optimizer = optimizer
        self.make_scheduler = scheduler
        self.scheduler_needs = scheduler_needs
        self.scheduler_interval = scheduler_interval
        self.teacher_forcing = teacher_forcing
        self.label_smoothing = label_smoothing
        self.coverage_weight = coverage_weight
        self.beam_size = beam_size
        self.length_penalty = length_penalty
        self.coverage_penalty = coverage_penalty
        self.accepts = accepts
        self.max_length = max_length
        self.text_metrics = tuple(text_metrics)
        self.train_loss = MeanLoss()  # over the tokens of the epoch so far
        self.last_loss: Tensor | None = None  # of the last step trained
        self.gradient_norm: Tensor | None = None  # of the last step of the optimizer, before it was clipped
        self.token_metrics = TokenMetrics()
        self.attention_metrics = AttentionMetrics()
        self.decoded: list[Prediction] = []  # by this process in the current evaluation
        self.outputs: list[Prediction] = []  # by all processes in the last evaluation, ordered by index

    @property
    def data(self) -> Seq2SeqData:
        """The data that the trainer was given."""
        return self.trainer.datamodule  # type: ignore[attr-defined,no-any-return]

    def decode(self, batch: Batch, forced: Tensor | None = None) -> tuple[Decoded, Tensor, Tensor]:
        """Decode with the target known.

        Returns:
            What was decoded, and for the N real tokens alone their logits [N, V] and labels [N].
        """
        decoded: Decoded = self.network(batch, forced)
        real = batch.labels != PAD  # [B, T]
        return decoded, self.network.logits(decoded, batch.copy_ids, real), batch.labels[real]

    def cross_entropy(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Mean over the labels [N] that are no padding, of logits [N, V], or [N, V + S] of a copying readout.

        Label smoothing gives its share to the V words of the vocabulary alone: what else a sentence has to
        copy, and how many of the S entries are none of its own, depends on its batch mates.
        """
        words, share = self.vocabularies.target.size, self.label_smoothing
        if logits.size(-1) == words or share == 0:
            return F.cross_entropy(logits.float(), labels, ignore_index=PAD, label_smoothing=share)
        log_p = logits.float().log_softmax(dim=-1)  # [N, V + S]
        even = -log_p[labels != PAD, :words].mean()
        return (1 - share) * F.nll_loss(log_p, labels, ignore_index=PAD) + share * even

    def search(self, batch: Batch, pairs: Sequence[Pair]) -> Hypotheses:
        """Decode the sources alone, greedily or with a beam; `pairs` are the batch's, in its order."""
        if self.beam_size == 1:
            return greedy(self.network, batch, max_length=self.max_length)
        found = beam(
            self.network,
            batch,
            size=self.beam_size,
            max_length=self.max_length,
            length_penalty=self.length_penalty,
        )
        return rerank(
            found,
            pairs,
            output_text=self.vocabularies.output_text,
            coverage_penalty=self.coverage_penalty,
            accepts=self.accepts,
        )

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """Mean cross-entropy over the batch's real tokens, and what coverage adds to it."""
        forced = draw_forced(self.teacher_forcing, self.global_step, batch.inputs)
        decoded, logits, labels = self.decode(batch, forced)
        loss = self.cross_entropy(logits, labels)
        self.last_loss = loss.detach()
        if not self.train_loss.update_called:  # Lightning then reads and resets it at the epoch's end
            self.log("train/loss_epoch", self.train_loss, on_step=False, on_epoch=True)
        self.train_loss.update(self.last_loss, len(labels))
        of_step = {"train/loss": self.last_loss}
        if self.coverage_weight > 0:
            repeated = coverage_loss(decoded.weights, batch.labels != PAD)
            of_step["train/coverage_loss"] = repeated
            loss = loss + self.coverage_weight * repeated
        if self.trainer._logger_connector.should_update_logs:  # what no logger will read costs as much to log
            self.log_dict(of_step, on_step=True, on_epoch=False)
        return loss

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        """Score a batch with the target known, and search for it with the target hidden."""
        self._evaluate(batch, "val")

    def test_step(self, batch: Batch, batch_idx: int) -> None:
        """The same on the test split."""
        self._evaluate(batch, "test")

    def on_validation_epoch_end(self) -> None:
        """Log the scores of the validation split."""
        self._log_scores("val")

    def on_test_epoch_end(self) -> None:
        """Log the scores of the test split."""
        self._log_scores("test")

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Add what the epoch has come to, which Lightning would begin anew."""
        own = torch.stack([self.train_loss.total, self.train_loss.tokens])
        everyone: Any = self.all_gather(own)  # [2], or [ranks, 2] where there are several
        checkpoint["train_loss"] = everyone.reshape(-1, 2)  # [ranks, 2]

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Take it back, each rank its own."""
        own = checkpoint["train_loss"][self.global_rank :: self.trainer.world_size].sum(0)  # [2]
        self.train_loss.total, self.train_loss.tokens = own.unbind()

    def configure_optimizers(self) -> Any:
        """The optimizer, and its scheduler."""
        optimizer = self.make_optimizer(self.parameters())
        total = int(self.trainer.estimated_stepping_batches)
        available = {
            "total_steps": total,
            "steps_per_epoch": max(1, total // max(1, self.trainer.max_epochs or 1)),
        }
        numbers = {argument: available[name] for argument, name in self.scheduler_needs.items()}
        scheduler = self.make_scheduler(optimizer, **numbers)
        return {
            "optimizer": optimizer,
            "lr_scheduler": {
                "scheduler": scheduler,
                "interval": self.scheduler_interval,
                "monitor": "val/loss",
            },
        }

    def configure_gradient_clipping(
        self,
        optimizer: Optimizer,
        gradient_clip_val: float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        """Clip by the norm in as few passes as can be, and with fused optimizers too.

        Lightning refuses those in mixed precision, since they divide fp16's gradients by their scale
        themselves, after the clipping. In bf16 there is no scale.
        """
        parameters = list(self.trainer.precision_plugin.main_params(optimizer))
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        self.gradient_norm = get_total_norm(gradients, foreach=True)
        if gradient_clip_val and gradient_clip_algorithm == "norm" and self.trainer.precision != "16-mixed":
            clip_grads_with_norm_(parameters, gradient_clip_val, self.gradient_norm, foreach=True)
        else:
            self.clip_gradients(optimizer, gradient_clip_val, gradient_clip_algorithm)

    def _evaluate(self, batch: Batch, split: Split) -> None:
        decoded, logits, labels = self.decode(batch)
        self.token_metrics.update(logits, labels)
        indices = batch.indices.tolist()
        pairs = [self.data.pairs(split)[index] for index in indices]
        gold = alignment_matrix(batch, [self.vocabularies.gold_alignment(pair) for pair in pairs])
        # What predicts EOS need not look anywhere
        self.attention_metrics.update(decoded.weights, batch.target_text, batch.source_text, gold)
        found = zip(indices, pairs, self.search(batch, pairs).tokens, strict=True)
        self.decoded += [self._prediction(index, pair, best[0]) for index, pair, best in found]

    def _prediction(self, index: int, pair: Pair, hypothesis: list[int]) -> Prediction:
        reference = pair.reference
        if reference is None:
            reference = self.vocabularies.target.clean(pair.target)
        text = self.vocabularies.output_text(hypothesis, pair)
        return Prediction(
            index=index,
            source=pair.source,
            reference=reference,
            hypothesis=text,
            annotations=pair.annotations or {},
        )

    def _log_scores(self, split: Split) -> None:
        self.outputs = gather_predictions(self.decoded)
        self.decoded = []
        values = {**self.token_metrics.compute(), **score(self.outputs, self.text_metrics)}
        attention = {"val": "attention", "test": "test/attention"}[split]
        self.log_dict(
            {
                **{f"{split}/{name}": torch.as_tensor(value) for name, value in values.items()},
                **{f"{attention}/{name}": value for name, value in self.attention_metrics.compute().items()},
            },
            sync_dist=True,
        )
        for metric in (self.token_metrics, self.attention_metrics):
            metric.reset()
