"""The LightningModule: a model with its loss, its metrics and its optimizer."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from math import ceil
from typing import Any, Literal

import lightning
import torch
from lightning.pytorch.trainer.states import TrainerFn
from omegaconf import DictConfig
from torch import Tensor, distributed
from torch.nn.utils import clip_grads_with_norm_, get_total_norm
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from attnlab.data.alignment import alignment_matrix
from attnlab.data.datamodule import Seq2SeqData
from attnlab.decoding.translator import Translator
from attnlab.files.predictions import Prediction
from attnlab.metrics.attention import AttentionMetrics
from attnlab.metrics.registry import score
from attnlab.metrics.texts import WORDS, Texts
from attnlab.metrics.tokens import TokenMetrics
from attnlab.nn.seq2seq import Decoded, TranslationModel
from attnlab.training.length_limits import warn_of_cut_outputs, warn_of_unattended_positions
from attnlab.training.losses.base import Losses, LossTerm, Outputs
from attnlab.training.shards import Shards
from attnlab.training.teacher_forcing import TeacherForcing, sample_forced
from attnlab.training.token_mean import EpochLoss, GradientMean
from attnlab.types import PAD, Batch

log = logging.getLogger(__name__)


class Seq2SeqModule(lightning.LightningModule):
    """Trains and evaluates a translation model.

    Args:
        network: the model.
        translator: decodes the sources in evaluation.
        optimizer: returns an optimizer for given parameters.
        scheduler: returns a scheduler for an optimizer and the arguments named in `scheduler_needs`.
        scheduler_needs: maps arguments of `scheduler` to their values: "total_steps" or "steps_per_epoch",
            both counted in optimizer steps.
        scheduler_interval: step the scheduler after each "step" or "epoch".
        teacher_forcing: probability of reading the reference during training.
        loss_terms: terms that are added to the cross-entropy, by the names under which they are logged.
        text_metrics: names of text metrics of `attnlab.metrics.registry`.
        bleu_tokenizer: sacreBLEU's name of the tokenizer of BLEU.
        shards: virtual shards that make the results independent of the number of processes; None for none.
        config: configuration of the run, with which `attnlab.load` makes a model of the module; None if it
            was built without one.

    Attributes:
        outputs: predictions of the last evaluation, of all processes, ordered by index.
        undefined: reasons why scores of these texts are undefined, by their logged names.
        kept_weights: predictions of the first this many sentences of a split keep their attention weights.
            Callbacks that need weights raise it.
    """

    def __init__(
        self,
        *,
        network: TranslationModel,
        translator: Translator,
        optimizer: Callable[..., Optimizer],
        scheduler: Callable[..., LRScheduler],
        scheduler_needs: Mapping[str, str],
        scheduler_interval: Literal["step", "epoch"],
        teacher_forcing: TeacherForcing,
        loss_terms: Mapping[str, LossTerm] | None = None,
        text_metrics: Sequence[str] = (),
        bleu_tokenizer: str = WORDS,
        shards: Shards | None = None,
        config: DictConfig | None = None,
    ) -> None:
        super().__init__()
        self.config = config
        self.network = network
        self.translator = translator
        self.vocabularies = translator.vocabularies
        self.make_optimizer = optimizer
        self.make_scheduler = scheduler
        self.scheduler_needs = scheduler_needs
        self.scheduler_interval = scheduler_interval
        self.teacher_forcing = teacher_forcing
        terms = sorted((loss_terms or {}).items(), key=lambda item: (item[1].order, item[0]))
        self.loss_terms = dict(terms)
        self.total_steps = 1  # optimizer steps of the training
        self.text_metrics = tuple(text_metrics)
        self.bleu_tokenizer = bleu_tokenizer
        self.shards = shards
        self.gradient_mean = GradientMean()
        self.epoch_loss = EpochLoss()
        self.last_loss: Tensor | None = None  # [], loss of the last training step
        self.gradient_norm: Tensor | None = None  # [], norm at the last optimizer step, before clipping
        count = 1 if shards is None else shards.count
        self.token_metrics = TokenMetrics(count)
        self.attention_metrics = AttentionMetrics(count)
        self.kept_weights = 0
        self.predictions: list[Prediction] = []  # predictions of this process in the current evaluation
        self.outputs: list[Prediction] = []
        self.undefined: dict[str, str] = {}

    @property
    def data(self) -> Seq2SeqData:
        """Data module of the trainer."""
        return self.trainer.datamodule  # type: ignore[attr-defined,no-any-return]

    def forward(self, batch: Batch) -> Tensor:
        """Return the logits [B, T, V] of the labels of a batch, under teacher forcing."""
        logits: Tensor = self.network.logits(self.network(batch), batch.copy_ids)
        return logits

    def teacher_forced(self, batch: Batch, forced: Tensor | None = None) -> Outputs:
        """Run the model on known targets.

        Args:
            batch: B sentences.
            forced: True where the decoder reads the reference, [B, T] bool; None if it always does.
        """
        return self._outputs(self.network(batch, forced), batch)

    def setup(self, stage: str) -> None:
        if self.shards is not None:
            self.shards.setup(self.trainer)

    def losses(self, batch: Batch) -> Losses:
        """Compute the training losses: the mean cross-entropy per token and the terms added to it."""
        forced = sample_forced(self.teacher_forcing, self.global_step, batch.inputs)
        outputs = self.teacher_forced(batch, forced)
        loss = outputs.cross_entropy
        logged = {"train/loss": loss}
        progress = min(1.0, self.global_step / self.total_steps)
        for name, term in self.loss_terms.items():
            value = logged[f"train/{name}_loss"] = term(outputs, batch, progress)
            loss = term.add_to(loss, value)
        return Losses(loss, logged, len(outputs.labels))

    def gold_alignment(self, batch: Batch, split: str) -> Tensor:
        """Return the gold alignments of a batch of a split, [B, T, S] bool, True at linked positions."""
        pairs = self.data.pairs(split)
        return alignment_matrix(
            batch, [self.vocabularies.gold_alignment(pairs[index]) for index in batch.indices.tolist()]
        )

    def on_fit_start(self) -> None:
        """Prepare the terms of the loss, and warn of positions that the attention lacks."""
        for term in self.loss_terms.values():
            term.prepare(self)
        if self.trainer.is_global_zero:
            warn_of_unattended_positions(self.network, self.data)

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """Return the loss [] to differentiate. With shards, also compute the gradients, for `backward`."""
        if self.shards is None:
            losses = self.losses(batch)
        else:
            number = self.trainer.fit_loop.epoch_loop.total_batch_idx
            losses = self.shards.differentiate(
                self.losses, batch, self._trained_parameters(), list(self.buffers()), number=number
            )
        self.last_loss = losses.logged["train/loss"].detach()
        if not self.epoch_loss.update_called:  # Lightning computes and resets it at the end of the epoch
            self.log("train/loss_epoch", self.epoch_loss, on_step=False, on_epoch=True)
        # With shards, every process has the loss of the whole batch: the first one counts it
        counted = self.shards is None or self.global_rank == 0
        self.epoch_loss.update(self.last_loss, losses.tokens if counted else 0)
        if self._is_logged_step():
            self.log_dict(losses.logged, on_step=True, on_epoch=False)
        return self.gradient_mean.weight(
            losses.total, losses.tokens, self.trainer, summed=self.shards is not None
        )

    def backward(self, loss: Tensor, *args: Any, **kwargs: Any) -> None:
        """Compute the gradients of the loss [], or add those that the shards have computed."""
        if self.shards is None:
            super().backward(loss, *args, **kwargs)
        else:
            self.shards.add_gradients(self._trained_parameters())

    def on_before_optimizer_step(self, optimizer: Optimizer) -> None:
        self.gradient_mean.divide(self._trained_parameters(), self.trainer)

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        """Evaluate a batch of the validation split: teacher-forced metrics and decoding."""
        self._evaluate(batch, batch_idx, "val")

    def test_step(self, batch: Batch, batch_idx: int) -> None:
        """Evaluate a batch of the test split: teacher-forced metrics and decoding."""
        self._evaluate(batch, batch_idx, self.data.test_split)

    def on_validation_epoch_end(self) -> None:
        self._log_metrics("val")
        if self.trainer.state.fn == TrainerFn.VALIDATING:  # during training, few networks end their outputs
            self._warn_of_cut_outputs("val")

    def on_test_epoch_end(self) -> None:
        split = self.data.test_split
        self._log_metrics(split)
        self._warn_of_cut_outputs(split)

    def _warn_of_cut_outputs(self, split: str) -> None:
        if self.trainer.is_global_zero:
            limit = self.translator.max_length
            warn_of_cut_outputs(split, self.outputs, self.data.examples(split), max_length=limit)

    def configure_optimizers(self) -> Any:
        optimizer = self.make_optimizer(self.parameters())
        self.trainer.fit_loop.setup_data()  # counts the batches
        self.total_steps = int(self.trainer.estimated_stepping_batches)
        available = {
            "total_steps": self.total_steps,
            "steps_per_epoch": ceil(self.trainer.num_training_batches / self.trainer.accumulate_grad_batches),
        }
        numbers = {argument: available[name] for argument, name in self.scheduler_needs.items()}
        scheduler = self.make_scheduler(optimizer, **numbers)
        after_validations = isinstance(scheduler, ReduceLROnPlateau) and self.scheduler_interval == "epoch"
        return {
            "optimizer": optimizer,
            "lr_scheduler": {
                "scheduler": scheduler,
                "interval": self.scheduler_interval,
                "frequency": (self.trainer.check_val_every_n_epoch or 1) if after_validations else 1,
                "monitor": "val/loss",
            },
        }

    def configure_gradient_clipping(
        self,
        optimizer: Optimizer,
        gradient_clip_val: float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        """Clip by the global norm, which is computed once and kept for `Guard`.

        Lightning refuses fused optimizers in mixed precision, because they unscale fp16 gradients themselves,
        after clipping. With bf16 there is no gradient scale, so that clipping is correct.
        """
        parameters = list(self.trainer.precision_plugin.main_params(optimizer))
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        self.gradient_norm = get_total_norm(gradients, foreach=True)
        if gradient_clip_val and gradient_clip_algorithm != "value" and self.trainer.precision != "16-mixed":
            clip_grads_with_norm_(parameters, gradient_clip_val, self.gradient_norm, foreach=True)
        else:
            self.clip_gradients(optimizer, gradient_clip_val, gradient_clip_algorithm)

    def _is_logged_step(self) -> bool:
        """Return whether loggers read this step's values. Logging those that are not read costs as much."""
        every: int = self.trainer.log_every_n_steps  # type: ignore[attr-defined]
        return self.trainer.should_stop or (every > 0 and (self.global_step + 1) % every == 0)

    def _outputs(self, decoded: Decoded, batch: Batch) -> Outputs:
        real = batch.labels != PAD  # [B, T]
        logits = self.network.logits(decoded, batch.copy_ids, real)  # [N, V]
        return Outputs(decoded.weights, logits, batch.labels[real])

    def _trained_parameters(self) -> list[Tensor]:
        return [parameter for parameter in self.parameters() if parameter.requires_grad]

    def _evaluate(self, batch: Batch, number: int, split: str) -> None:
        """Encode a batch once, update the metrics under teacher forcing, and decode the sources."""
        shard = 0 if self.shards is None else self.shards.start_evaluation_batch(number)
        encoded, state = self.network.encode(batch)
        outputs = self._outputs(self.network.decode(encoded, state, batch), batch)
        self.token_metrics.update(outputs.logits, outputs.labels, shard)
        pairs = [self.data.pairs(split)[index] for index in batch.indices.tolist()]
        gold = self.gold_alignment(batch, split)  # [B, T, S]
        # Without EOS: its prediction needs no particular source token
        self.attention_metrics.update(outputs.weights, batch.target_text, batch.source_text, gold, shard)
        results = self.translator(self.network, batch, pairs, encoded=(encoded, state))
        self.predictions += [self._without_shared_weights(best) for best, *_ in results]

    def _without_shared_weights(self, prediction: Prediction) -> Prediction:
        """Copy the weights that are kept, and drop the others: all are views of the weights of the batch."""
        weights = prediction.weights if prediction.index < self.kept_weights else None
        return replace(prediction, weights=None if weights is None else weights.copy())

    @property
    def texts(self) -> Texts:
        """The outputs of the last evaluation, for text metrics."""
        return Texts(self.outputs, self.vocabularies.target.spell, self.bleu_tokenizer)

    @property
    def is_covered(self) -> bool:
        """True if no output of the last evaluation has a reference: there is nothing to score."""
        return not any(output.reference for output in self.outputs)

    def _log_metrics(self, split: str) -> None:
        self.outputs = gather_predictions(self.predictions)
        self.predictions = []
        if self.is_covered:
            log.info("%s: no output has a reference, so that there are no scores", split)
            self.token_metrics.reset()
            self.attention_metrics.reset()
            return
        scores = score(self.texts, self.text_metrics)
        values = {**self.token_metrics.compute(), **scores.values}
        for name, reason in scores.undefined.items():
            if self.undefined.get(logged := f"{split}/{name}") != reason:
                log.info("%s is undefined: %s", logged, reason)
                self.undefined[logged] = reason
        attention = "attention" if split == "val" else f"{split}/attention"
        self.log_dict(
            {
                **{f"{split}/{name}": torch.as_tensor(value) for name, value in values.items()},
                **{f"{attention}/{name}": value for name, value in self.attention_metrics.compute().items()},
            },
            # All processes have the same values. Their maximum is exact; a mean of three may be rounded
            sync_dist=True,
            reduce_fx="max",
        )
        for metric in (self.token_metrics, self.attention_metrics):
            metric.reset()


def gather_predictions(predictions: Sequence[Prediction]) -> list[Prediction]:
    """Return the predictions of all processes on every process, ordered by index.

    Each index occurs once, even if a sampler gave a sentence to two processes.
    """
    shares: list[Sequence[Prediction]] = [predictions]
    if distributed.is_available() and distributed.is_initialized():
        shares = [[] for _ in range(distributed.get_world_size())]
        distributed.all_gather_object(shares, predictions)
    by_index = {prediction.index: prediction for prediction in chain(*shares)}
    return [by_index[index] for index in sorted(by_index)]
