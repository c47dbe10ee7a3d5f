"""The LightningModule: a model with its loss, its metrics and its optimizer."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from math import ceil, inf, nan
from pathlib import Path
from typing import Any, Literal, Self

import lightning
import torch
from lightning.pytorch.trainer.states import TrainerFn
from omegaconf import DictConfig, OmegaConf
from torch import Tensor, distributed
from torch.nn.utils import clip_grads_with_norm_, get_total_norm
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau
from torchmetrics import MetricCollection

from attnlab.data.alignment import alignment_matrix
from attnlab.data.corpus import Corpus, Pair
from attnlab.data.datamodule import LoadedData, Seq2SeqData
from attnlab.decoding.translator import Translator
from attnlab.errors import UserError
from attnlab.files.predictions import Prediction
from attnlab.metrics.attention import AttentionMetrics
from attnlab.metrics.registry import score
from attnlab.metrics.text.edit_distance import edits
from attnlab.metrics.texts import WORDS, Texts
from attnlab.metrics.tokens import IGNORED, TokenMetrics
from attnlab.nn.seq2seq import Decoded, TranslationModel
from attnlab.training.build import build_preparation
from attnlab.training.length_limits import warn_of_cut_outputs, warn_of_unattended_positions
from attnlab.training.losses.base import Losses, LossTerm, Outputs
from attnlab.training.model import Model
from attnlab.training.models import difference, load_network
from attnlab.training.module_arguments import module_arguments
from attnlab.training.own_parts import check_prepared_term, is_unchecked
from attnlab.training.shards import Shards
from attnlab.training.teacher_forcing import TeacherForcing, sample_forced
from attnlab.training.token_mean import EpochLoss, GradientMean
from attnlab.types import PAD, Batch

log = logging.getLogger(__name__)


class Seq2SeqModule(lightning.LightningModule):
    """Trains and evaluates a translation model, with any Trainer of Lightning; see `attnlab.build`.

    Args:
        translator: decodes the sources in evaluation.
        optimizer: returns an optimizer for given parameters.
        lr: learning rate that `optimizer` receives; None for its own.
        scheduler: returns a scheduler for an optimizer and the arguments named in `scheduler_needs`.
        scheduler_needs: maps arguments of `scheduler` to their values: "total_steps" or "steps_per_epoch",
            both counted in optimizer steps, or "lr".
        scheduler_interval: step the scheduler after each "step" or "epoch".
        teacher_forcing: probability of reading the reference during training.
        loss_terms: terms that are added to the cross-entropy, by the names under which they are logged.
        text_metrics: names of text metrics of `attnlab.metrics.registry`.
        class_metrics: metrics of the next token, given its logits [N, V] and labels [N].
        bleu_tokenizer: sacreBLEU's name of the tokenizer of BLEU.
        shards: virtual shards that make the results independent of the number of processes; None for none.
        config: configuration of the run, for `translate` and for Lightning's hyper-parameters; None for none.

    Attributes:
        lr: as the argument; Lightning's Tuner sets it.
        contents: the result of `attnlab.training.checkpoints.checkpoint_contents`, which is added to every
            checkpoint under "attnlab", so that it suffices to predict; empty for none.
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
        lr: float | None = None,
        scheduler: Callable[..., LRScheduler],
        scheduler_needs: Mapping[str, str],
        scheduler_interval: Literal["step", "epoch"],
        teacher_forcing: TeacherForcing,
        loss_terms: Mapping[str, LossTerm] | None = None,
        text_metrics: Sequence[str] = (),
        class_metrics: MetricCollection | None = None,
        bleu_tokenizer: str = WORDS,
        shards: Shards | None = None,
        config: DictConfig | None = None,
    ) -> None:
        super().__init__()
        self.config = config
        if config is not None:
            self.save_hyperparameters(OmegaConf.to_container(config, resolve=True))
        self.contents: dict[str, Any] = {}
        self.network = network
        self.translator = translator
        self.vocabularies = translator.vocabularies
        self.make_optimizer = optimizer
        self.lr = lr
        self.make_scheduler = scheduler
        self.scheduler_needs = scheduler_needs
        self.scheduler_interval = scheduler_interval
        self.teacher_forcing = teacher_forcing
        terms = sorted((loss_terms or {}).items(), key=lambda item: (item[1].order, item[0]))
        self.loss_terms = dict(terms)
        self.total_steps: float = 1  # optimizer steps of the training; infinite if they are not limited
        self.text_metrics = tuple(text_metrics)
        self.class_metrics = class_metrics or MetricCollection([])
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
        """Data module of the trainer, or the data of the loaders that it was given."""
        return self.trainer.datamodule or LoadedData(self.trainer)  # type: ignore[attr-defined,return-value]

    @classmethod
    def load_from_checkpoint(  # type: ignore[override]
        cls,
        checkpoint_path: str | Path,
        map_location: Any = None,
        hparams_file: Any = None,
        strict: Any = None,
        weights_only: Any = None,
        *,
        lr: float | None = None,
        trust: str | Sequence[str] = (),
    ) -> Self:
        """Restore a module, in evaluation mode, from any checkpoint of attnlab alone; no code of it is run.

        Lightning's `hparams_file`, `strict` and `weights_only` have no effect: a checkpoint has its
        hyper-parameters, must fit, and is read without code.

        Args:
            map_location: device of the module; None for the CPU.
            lr: learning rate of a further training; None for that of the checkpoint.
            trust: modules, or dotted names of classes, that the configuration may name; see `attnlab.load`.

        Raises:
            UserError: if the checkpoint is missing or damaged, or names a class that is not trusted.
        """
        names = [trust] if isinstance(trust, str) else trust
        config, vocabularies, network, contents = load_network(Path(checkpoint_path), names, training=True)
        corpus = Corpus(metrics=tuple(contents.get("metrics", ())), evaluation_only=True)
        arguments = module_arguments(config, network, vocabularies, corpus)
        if lr is not None:
            arguments["lr"] = lr
        arguments["bleu_tokenizer"] = contents.get("bleu_tokenizer", arguments["bleu_tokenizer"])
        module = cls(**arguments)
        module.contents = contents
        return module.to(map_location or "cpu").eval()

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        if self.contents:  # with the configuration, which is not saved twice
            for key in (self.CHECKPOINT_HYPER_PARAMS_NAME, self.CHECKPOINT_HYPER_PARAMS_KEY):
                checkpoint.pop(key, None)
            checkpoint["attnlab"] = {**self.contents, "bleu_tokenizer": self.bleu_tokenizer}

    def model(self, device: torch.device | str = "cpu") -> Model:
        """Return a model that shares the network, which is put in evaluation mode and on a device."""
        if self.config is None:
            raise UserError("The module was built without a configuration: use attnlab.build")
        return Model(
            config=self.config,
            vocabularies=self.vocabularies,
            network=self.network.eval().to(device),
            prepare=build_preparation(self.config),
            device=torch.device(device),
        )

    def translate(self, sentences: str | Sequence[str], **settings: Any) -> list[Prediction]:
        """Translate sentences; see `Model.translate`."""
        training = self.network.training
        try:
            return self.model(self.device).translate(sentences, **settings)
        finally:
            self.network.train(training)

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
        if self._compiler_ctx is not None or self.network._compiled_call_impl is not None:
            raise UserError(
                "torch.compile would compile the loops over positions again for each length, which takes "
                "minutes: give the Trainer the module itself, whose loops are fused"
            )
        if self.trainer.world_size > 1 and self.trainer.datamodule is None:  # type: ignore[attr-defined]
            raise UserError(
                "Several processes need the data module, which gives each sentence to one of them: "
                "trainer.fit(module, data)"
            )
        given = getattr(self.trainer.datamodule, "vocabularies", self.vocabularies)  # type: ignore[attr-defined]
        if given is not self.vocabularies and difference(given, self.vocabularies):
            raise UserError(
                "The data has other vocabularies than the module: build both from the checkpoint, such as "
                'attnlab.build(["init.from=a.ckpt"], train=…, val=…)'
            )
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
        pairs = self._pairs(batch, split)
        return alignment_matrix(batch, [self.vocabularies.gold_alignment(pair) for pair in pairs])

    def _pairs(self, batch: Batch, split: str) -> list[Pair]:
        pairs = self.data.pairs(split)
        return [pairs[index] for index in batch.indices.tolist()]

    def on_fit_start(self) -> None:
        """Prepare the terms of the loss, and warn of positions that the attention lacks.

        A network that predicted before is in evaluation mode, without dropout, which Lightning would keep.
        """
        if not self.network.training:
            self.train()
        for term in self.loss_terms.values():
            term.prepare(self)
            if is_unchecked(term):
                examples = self.data.examples("train")
                batch = examples[[*range(min(3, len(examples)))]].to(self.device)
                check_prepared_term(term, self.network, self.teacher_forced, batch)
        if self.trainer.is_global_zero:
            warn_of_unattended_positions(self.network, self.data)

    def on_train_start(self) -> None:
        """Refuse a schedule that ends before the training."""
        steps = self.trainer.estimated_stepping_batches
        for argument, number in self.scheduler_needs.items():
            length = getattr(self.lr_schedulers(), argument, inf)
            if number == "total_steps" and steps > length:
                raise UserError(
                    f"The learning-rate schedule ends after {length:.0f} steps, and this training has "
                    f"{steps:.0f}: resume with the same max_epochs, start a new training with "
                    "init.from=CHECKPOINT, use Tuner.scale_batch_size before fit, or train with "
                    "scheduler=constant"
                )

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

    def validation_step(self, batch: Batch, batch_idx: int, dataloader_idx: int = 0) -> None:
        self._evaluate(batch, batch_idx, "val")

    def test_step(self, batch: Batch, batch_idx: int, dataloader_idx: int = 0) -> None:
        self._evaluate(batch, batch_idx, self.data.test_split)

    def predict_step(self, batch: Batch, batch_idx: int, dataloader_idx: int = 0) -> list[Prediction]:
        results = self.translator(self.network, batch, self._pairs(batch, self.data.predict_split))
        return [best.with_own_weights() for best, *_ in results]

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
        optimizer = self.make_optimizer(self.parameters(), **({} if self.lr is None else {"lr": self.lr}))
        try:
            self.trainer.fit_loop.setup_data()  # counts the batches
        except ValueError as error:  # of an interval of validations that does not fit
            raise UserError(" ".join(str(error).split())) from error
        if not self.trainer.limit_train_batches:
            raise UserError("trainer.limit_train_batches=0 leaves nothing to train: increase it")
        self.total_steps = self.trainer.estimated_stepping_batches
        if self.total_steps == inf and "total_steps" in self.scheduler_needs.values():
            raise UserError(
                "The learning-rate schedule needs the number of steps: create the Trainer with max_epochs or "
                "max_steps, or build with scheduler=constant"
            )
        available = {
            "total_steps": self.total_steps,
            "lr": self.lr,
            "steps_per_epoch": ceil(self.trainer.num_training_batches / self.trainer.accumulate_grad_batches),
        }
        numbers = {argument: available[name] for argument, name in self.scheduler_needs.items()}
        scheduler = self.make_scheduler(optimizer, **numbers)
        is_plateau = isinstance(scheduler, ReduceLROnPlateau)
        trainer: Any = self.trainer
        interval = trainer.val_check_batch or 0  # None if it is a time
        validates = trainer.limit_val_batches and interval <= trainer.num_training_batches
        if is_plateau and not validates:
            raise UserError(
                "scheduler=plateau reads the loss after each epoch, which then needs a validation: lower "
                "trainer.val_check_interval, raise trainer.limit_val_batches, or set scheduler=constant"
            )
        after_validations = is_plateau and self.scheduler_interval == "epoch"
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
        """Encode a batch once, decode the sources, and update the metrics of the nearest targets."""
        pairs = self._pairs(batch, split)
        shard = 0 if self.shards is None else self.shards.start_evaluation_batch(number)
        encoded, state = self.network.encode(batch)
        outputs = self._outputs(self.network.decode(encoded, state, batch), batch)
        if outputs.logits.isnan().any():
            raise diverged("output of the network", nan, self.global_step)
        scored = self._decode(batch, pairs, split, (encoded, state)).to(batch.target.device)  # [B, 1]
        labels = batch.labels.masked_fill(~scored, IGNORED)[batch.labels != PAD]  # [N]
        self.token_metrics.update(outputs.logits, labels, shard)
        self.class_metrics.update(outputs.logits, labels)
        gold = self.gold_alignment(batch, split)  # [B, T, S]
        # Without EOS: its prediction needs no particular source token
        targets = batch.target_text & scored  # [B, T]
        self.attention_metrics.update(outputs.weights, targets, batch.source_text, gold, shard)

    def _decode(self, batch: Batch, pairs: Sequence[Pair], split: str, encoded: tuple[Any, Any]) -> Tensor:
        """Decode every input of a batch once, and keep its prediction.

        Returns:
            True at the pair of each input whose target is nearest to the output, [B, 1] bool.
        """
        inputs: dict[int, list[int]] = {}  # rows of the batch
        numbers = self.data.examples(split).inputs[batch.indices.numpy(force=True)]
        for row, first in enumerate(numbers.tolist()):
            inputs.setdefault(first, []).append(row)
        firsts = [row for row, *_ in inputs.values()]
        results = self.translator(
            self.network,
            batch if len(firsts) == len(pairs) else batch.select(torch.tensor(firsts)),
            [pairs[row] for row in firsts],
            encoded=encoded if len(firsts) == len(pairs) else None,
        )
        scored = torch.zeros(len(pairs), 1, dtype=torch.bool)
        for rows, (best, *_) in zip(inputs.values(), results, strict=True):
            references = [self.vocabularies.reference(pairs[row]) for row in rows]
            spell = self.vocabularies.target.spell
            scored[rows[edits(best.hypothesis, references, spell).position if len(rows) > 1 else 0]] = True
            self.predictions.append(self._detached(best, tuple(dict.fromkeys(filter(None, references)))))
        return scored

    def _detached(self, prediction: Prediction, references: tuple[str, ...]) -> Prediction:
        """Copy the weights that are kept, and drop the others."""
        prediction = replace(prediction, references=references)
        kept = prediction.index < self.kept_weights
        return prediction.with_own_weights() if kept else replace(prediction, weights=None)

    @property
    def texts(self) -> Texts:
        """The outputs of the last evaluation, for text metrics."""
        return Texts(self.outputs, self.vocabularies.target.spell, self.bleu_tokenizer)

    @property
    def is_covered(self) -> bool:
        """True if no output of the last evaluation has a reference: there is nothing to score."""
        return not any(output.references for output in self.outputs)

    def _log_metrics(self, split: str) -> None:
        self.outputs = gather_predictions(self.predictions)
        self.predictions = []
        inputs = self.data.examples(split).inputs[[output.index for output in self.outputs]]
        if repeated := len(inputs) - len({*inputs.tolist()}):
            log.warning(
                "%s: %d outputs are of an input in another batch, and scored without its other references: "
                "give the Trainer the data module",
                split,
                repeated,
            )
        metrics = (self.token_metrics, self.class_metrics, self.attention_metrics)
        computed, classes, attended = [{} if self.is_covered else each.compute() for each in metrics]
        with torch.inference_mode(False):  # or else no later training could update them
            for metric in metrics:
                metric.reset()
        if self.is_covered:
            log.info("%s: no output has a reference, so that there are no scores", split)
            return
        scores = score(self.texts, self.text_metrics)
        values = {**computed, **classes, **scores.values}
        for name, reason in scores.undefined.items():
            if self.undefined.get(logged := f"{split}/{name}") != reason:
                log.info("%s is undefined: %s", logged, reason)
                self.undefined[logged] = reason
        attention = "attention" if split == "val" else f"{split}/attention"
        self.log_dict(
            {
                **{f"{split}/{name}": torch.as_tensor(value) for name, value in values.items()},
                **{f"{attention}/{name}": value for name, value in attended.items()},
            },
            # All processes have the same values. Their maximum is exact; a mean of three may be rounded
            sync_dist=True,
            reduce_fx="max",
        )


def diverged(name: str, value: float, step: int) -> UserError:
    """Return the error of a value that is not finite."""
    return UserError(
        f"The {name} is {value} at step {step}: training diverged. Lower optimizer.lr, set "
        "trainer.gradient_clip_val, or set trainer.precision=32-true. The last good checkpoint is kept"
    )


def gather_predictions(predictions: Sequence[Prediction]) -> list[Prediction]:
    """Return the predictions of all processes on every process, ordered by index."""
    shares: list[Sequence[Prediction]] = [predictions]
    if distributed.is_available() and distributed.is_initialized():
        shares = [[] for _ in range(distributed.get_world_size())]
        distributed.all_gather_object(shares, predictions)
    by_index = {prediction.index: prediction for prediction in chain(*shares)}
    return [by_index[index] for index in sorted(by_index)]
