"""The recipe of one run: data, model, training, evaluation."""

import logging
import math
import sys
from pathlib import Path
from typing import Any

from lightning import LightningModule, Trainer, seed_everything
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.callbacks import LambdaCallback
from omegaconf import DictConfig
from torch import Tensor

from attnlab.config.checks import check_settings
from attnlab.data import digests
from attnlab.data.corpus import Corpus
from attnlab.data.tokenization.vocabularies import Vocabularies, references
from attnlab.errors import UserError
from attnlab.fast import describe_speed
from attnlab.files.metrics_file import read_metrics
from attnlab.files.run_directory import Run
from attnlab.metrics import registry
from attnlab.metrics.registry import describe_foreign, signatures
from attnlab.nn.seq2seq import Seq2Seq
from attnlab.report.curves import save_training_curves
from attnlab.training import components
from attnlab.training.callbacks.checkpoints import BestCheckpoint, LastCheckpoint
from attnlab.training.callbacks.reproducibility import EpochDigests
from attnlab.training.checkpoints import read_checkpoint, read_newest_checkpoint
from attnlab.training.components import build_objects
from attnlab.training.environment import gpu_names, peak_memory
from attnlab.training.hardware import choose_for_machine
from attnlab.training.loggers import MetricsFile, TolerantWandbLogger
from attnlab.training.own_parts import describe_code, warn_of_changed_code

log = logging.getLogger(__name__)

PERFECT = 99.9  # Percentage of right outputs from which more training is not suggested


def train(config: DictConfig, run: Run) -> dict[str, float]:
    """Train a model, evaluate its best checkpoint on the validation and test splits, and plot the curves.

    Returns:
        The metrics of the best checkpoint: `val/…`, `attention/…`, and `test/…` if there is a test split, or
        `test/NAME/…` for each of several test sets.
    """
    check_settings(config)
    seed_everything(config.seed, workers=True, verbose=False)
    metrics = MetricsFile(run.metrics)
    loggers = [metrics, *components.build_loggers(config, run)]  # first, so that they record later failures

    # Data and network
    module, data, report = build_objects(config, run=run)
    network, corpus, contents = module.network, data.corpus, module.contents
    assert isinstance(network, Seq2Seq)
    assert module.config is not None
    config = module.config
    module.save_hyperparameters(dict(module.hparams), logger=False)  # `build_loggers` has logged the settings
    report |= choose_for_machine(config, network, run)
    report |= {"precision": config.trainer.precision, "data": contents["data"]}
    report |= {"code": code} if (code := describe_code(config)) else {}
    components.check_monitored(config, module, data)
    seen = _log_data(corpus, data.vocabularies, contents["training_sources"])
    report |= {"seen": seen} if seen else {}
    log.info(
        "%s parameters, %s trainable",
        *(f"{count:,}" for count in (network.parameter_count, network.trainable_parameter_count)),
    )

    # Training
    checkpoint = _checkpoint_to_resume(run, metrics, contents)
    if checkpoint is not None:
        recorded = run.read_result().get("code")
        warn_of_changed_code(recorded, config)
        report |= {"code": recorded} if recorded else {}  # that of the start
    for logger in loggers:
        if isinstance(logger, TolerantWandbLogger):
            logger.replay(run.metrics)

    def record_start(trainer: Trainer, _: LightningModule) -> None:
        if trainer.is_global_zero:
            log.info("%s", describe_speed(network))
            run.write_result("running", **report)

    callbacks = components.build_callbacks(config, run, metrics, terminal=sys.stderr.isatty())
    callbacks.append(LambdaCallback(on_train_start=record_start))
    trainer = components.build_trainer(config, run, loggers, callbacks)
    try:
        trainer.fit(module, datamodule=data, ckpt_path=checkpoint)
    except MisconfigurationException as error:  # of settings of the Trainer that do not fit each other
        raise UserError(" ".join(str(error).split())) from error
    of_kind: dict[type, Any] = {type(callback): callback for callback in callbacks}
    if not of_kind[BestCheckpoint].best_model_path:
        log.info("there was no validation during training: the last weights are saved as best.ckpt")
        trainer.save_checkpoint(run.best, weights_only=False)
    if trainer.is_global_zero:
        log_untrained(config.checkpoint, read_metrics(run.metrics), trainer.global_step)
    seconds, epoch_digests = of_kind[LastCheckpoint].seconds, of_kind[EpochDigests].digests

    # Evaluation
    module.load_state_dict(read_checkpoint(run.best)["state_dict"])
    trainer.loggers = []  # the best checkpoint's scores are not part of the validation curve
    evaluations = trainer.validate(module, datamodule=data, verbose=False)  # empty if limited to no batch
    trainer.loggers = loggers
    for data.test_split in corpus.test_splits:
        evaluations += trainer.test(module, datamodule=data, verbose=False)
    scores: dict[str, float] = {name: value for each in evaluations for name, value in each.items()}

    if trainer.is_global_zero:
        save_training_curves(read_metrics(run.metrics), run.figures)
        evaluated = {split: corpus.splits[split] for split in ("val", *corpus.test_splits)}
        notes = {"undefined": module.undefined, "described": describe_foreign(module.text_metrics)}
        run.write_result(
            "finished",
            metrics=scores,
            signatures=signatures(module.text_metrics, module.texts),
            references={split: references(pairs, data.vocabularies) for split, pairs in evaluated.items()},
            parameters=network.parameter_count,
            trainable_parameters=network.trainable_parameter_count,
            steps=trainer.global_step,
            digest=epoch_digests[-1] if epoch_digests else None,
            epoch_digests=epoch_digests,
            seconds=seconds,
            peak_memory=peak_memory(),
            gpus=gpu_names(),
            **{name: note for name, note in notes.items() if note},
        )
        for path in sorted(run.directory.glob("fit-profile*")):
            log.info("profile: %s", path)
    return scores


def _log_data(corpus: Corpus, vocabularies: Vocabularies, training_sources: Tensor) -> dict[str, list[int]]:
    """Log the sizes of the data; return the positions of the sources that training data have, by split."""
    log.info(
        "%d training, %d validation, %s test pairs · vocabulary %d → %d",
        len(corpus.train),
        len(corpus.val),
        " + ".join(str(len(corpus.splits[split])) for split in corpus.test_splits) or "0",
        vocabularies.source.size,
        vocabularies.target.size,
    )
    if repeated := digests.count_duplicates(corpus.train):
        log.info("%d training pairs repeat an earlier pair", repeated)
    positions = {}
    for split in ("val", *corpus.test_splits):
        pairs = corpus.splits[split]
        seen = digests.are_seen(pairs, training_sources.numpy(), vocabularies.source)
        if seen.any():
            positions[split] = seen.nonzero()[0].tolist()
            name = digests.SPLIT_NAMES.get(split, split)
            log.warning(
                "%d of the %d sources of the %s data are in the training data", seen.sum(), len(pairs), name
            )
    return positions


def log_untrained(checkpoint: DictConfig, logged: dict[str, list[tuple[int, float]]], steps: int) -> None:
    """Log that the last of several validations was the best one, so that more steps may help.

    The loss is read too: error rates can stay at 100 % while it still falls. Nothing is logged if at least
    99.9 % of the outputs are right.
    """
    exact = [value for _, value in logged.get("val/exact_match", [])]
    if exact and registry.metric("val/exact_match").of_100(exact[-1]) >= PERFECT:
        return
    for metric, mode in {"val/loss": "min", checkpoint.monitor: checkpoint.mode}.items():
        *earlier, last = [value for _, value in logged.get(metric, [])] or [math.nan]
        if earlier and (last < min(earlier) if mode == "min" else last > max(earlier)):
            log.warning(
                "%s was best at the last of %d steps: more may help (trainer.max_steps, trainer.max_epochs)",
                metric,
                steps,
            )
            return


def _checkpoint_to_resume(run: Run, metrics: MetricsFile, contents: dict[str, Any]) -> Path | None:
    """Return the checkpoint to resume from, or None, and truncate metrics.csv to its state at that time."""
    newest = read_newest_checkpoint(run.last, run.previous)
    if newest is None:
        metrics.truncate(0)
        return None
    path, checkpoint = newest
    _check_run(run, path, checkpoint)
    recorded, data = checkpoint["attnlab"]["data"], contents["data"]
    first, now = (part["config"]["trainer"]["precision"] for part in (checkpoint["attnlab"], contents))
    if first != now:
        raise UserError(
            f"{path} was trained in {first}, and trainer.precision=auto is {now} on this machine: resume on "
            "a machine like the first, or start again with force=true"
        )
    digests.check_unchanged(recorded, data, data["splits"], fix="start again with force=true")
    if run.best.is_file():
        _check_run(run, run.best, read_checkpoint(run.best))  # now rather than after the training
    elif BestCheckpoint.was_saved(checkpoint):
        raise UserError(f"{run.best} was deleted: start again with force=true")
    metrics.truncate(checkpoint["resumption"]["metrics_length"])
    log.info("resuming from step %d", checkpoint["global_step"])
    return path


def _check_run(run: Run, path: Path, checkpoint: dict[str, Any]) -> None:
    """Raise `UserError` if a checkpoint in the directory of a run was written by another run."""
    if (writer := checkpoint.get("attnlab", {}).get("wandb_id")) != run.hash:
        raise UserError(
            f"{path} was written by the run {writer}, not by {run.hash}: put the run's own checkpoint "
            "back, or start again with force=true"
        )
