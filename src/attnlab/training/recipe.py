"""The recipe of one run, from its configuration to its scores."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Any

from lightning import LightningModule, Trainer, seed_everything
from lightning.pytorch.callbacks import LambdaCallback
from omegaconf import DictConfig

from attnlab.config import build
from attnlab.data import digests
from attnlab.data.tokenization.vocabularies import references
from attnlab.errors import UserError
from attnlab.fast import describe_speed
from attnlab.files.metrics_file import read_metrics
from attnlab.files.run_directory import Run
from attnlab.metrics.registry import signatures
from attnlab.training import build_training
from attnlab.training.callbacks import BestCheckpoint, EpochDigests, LastCheckpoint
from attnlab.training.checkpoints import describe, load, load_newest
from attnlab.training.curves import save_training_curves
from attnlab.training.environment import gpu_names, peak_memory
from attnlab.training.initialisation import find_source, freeze, initialise, load_word_vectors
from attnlab.training.loggers import MetricsFile
from attnlab.training.precision import cpu_flags, warn_of_slow_precision
from attnlab.training.restore import restore_teacher

log = logging.getLogger(__name__)


def train(config: DictConfig, run: Run) -> dict[str, float]:
    """Train a model, evaluate its best checkpoint on the validation and test splits, and plot the curves.

    Resumes from `last.ckpt` if it exists, or from `previous.ckpt` if that is damaged. The results are the
    same as without the interruption: see `LastCheckpoint`.

    Returns:
        The metrics of the best checkpoint: `val/…`, `attention/…`, and `test/…` if there is a test split, or
        `test/NAME/…` for each of several test sets.
    """
    seed_everything(config.seed, workers=True, verbose=False)
    if config.trainer.precision == "auto":
        precision = build_training.choose_precision(config, run.read_result().get("precision"))
        log.info("trainer.precision=auto: %s", precision)
        config = config.copy()
        config.trainer.precision = precision
    warn_of_slow_precision(str(config.trainer.precision), str(config.trainer.accelerator), cpu_flags())
    metrics = MetricsFile(run.metrics)
    # First, so that they record later failures
    loggers = [metrics, *build_training.build_loggers(config, run)]

    log.info("reading the data")
    corpus = build.build_corpus(config)
    vocabularies = build.build_vocabularies(config, corpus)
    source = None
    init = config.get("init") or {}
    if init.get("from") is not None:
        source, vocabularies = find_source(init["from"], run, vocabularies)
    data = build.build_data(config, corpus, vocabularies)
    log.info("building the network")
    network = build.build_network(config, vocabularies)
    word_vectors = load_word_vectors(config, network, vocabularies)
    initial = {} if source is None else {"init": initialise(network, source)}
    freeze(network, init.get("freeze", []))
    teacher = restore_teacher(config, vocabularies)
    module = build_training.build_module(config, network, vocabularies, corpus, teacher)
    log.info(
        "%d training, %d validation, %s test pairs · vocabulary %d → %d · %s parameters, %s trainable",
        len(corpus.train),
        len(corpus.val),
        " + ".join(str(len(corpus.splits[split])) for split in corpus.test_splits) or "0",
        vocabularies.source.size,
        vocabularies.target.size,
        f"{network.parameter_count:,}",
        f"{network.trainable_parameter_count:,}",
    )

    contents = describe(config, vocabularies, run.hash, corpus)
    for split in ("val", *corpus.test_splits):
        pairs = corpus.splits[split]
        if seen := digests.count_seen(pairs, contents["training_sources"].numpy()):
            log.warning(
                "%d of the %d sources of the %s data are in the training data",
                seen,
                len(pairs),
                digests.SPLIT_NAMES.get(split, split),
            )
    checkpoint = _resume(run, metrics, contents)
    callbacks = build_training.build_callbacks(config, run, contents, metrics, terminal=sys.stderr.isatty())

    def record_start(trainer: Trainer, _: LightningModule) -> None:
        if trainer.is_global_zero:
            log.info("%s", describe_speed(network))
            run.write_result(
                "running", precision=str(config.trainer.precision), data=contents["data"], **initial
            )

    callbacks.append(LambdaCallback(on_train_start=record_start))
    trainer = build_training.build_trainer(config, run, loggers, callbacks)
    trainer.fit(module, datamodule=data, ckpt_path=checkpoint)
    if not any(part.best_model_path for part in callbacks if isinstance(part, BestCheckpoint)):
        log.info("there was no validation during training: the last weights are saved as best.ckpt")
        trainer.save_checkpoint(run.best)
    seconds = next(part.seconds for part in callbacks if isinstance(part, LastCheckpoint))
    chain = next(part.digests for part in callbacks if isinstance(part, EpochDigests))
    trainer.loggers = []  # the best checkpoint's scores are not part of the validation curve
    scores = dict(trainer.validate(module, datamodule=data, ckpt_path=run.best, verbose=False)[0])
    trainer.loggers = loggers
    for data.test_split in corpus.test_splits:
        scores.update(trainer.test(module, datamodule=data, ckpt_path=run.best, verbose=False)[0])

    evaluated = {split: corpus.splits[split] for split in ("val", *corpus.test_splits)}
    if trainer.is_global_zero:
        save_training_curves(read_metrics(run.metrics), run.figures)
        run.write_result(
            "finished",
            metrics=scores,
            signatures=signatures(module.text_metrics),
            references={split: references(pairs, vocabularies) for split, pairs in evaluated.items()},
            **({"word_vectors": word_vectors} if word_vectors else {}),
            parameters=network.parameter_count,
            trainable_parameters=network.trainable_parameter_count,
            steps=trainer.global_step,
            digest=chain[-1] if chain else None,
            epoch_digests=chain,
            seconds=seconds,
            peak_memory=peak_memory(),
            gpus=gpu_names(),
        )
        for path in sorted(run.directory.glob("fit-profile*")):
            log.info("profile: %s", path)
    return scores


def _resume(run: Run, metrics: MetricsFile, contents: dict[str, Any]) -> Path | None:
    """Return the checkpoint to resume from, or None, and truncate metrics.csv to its state at that time.

    Raises:
        UserError: if the data or the precision of `contents` (see `describe`) differs from the checkpoint's.
    """
    newest = load_newest(run.last, run.previous)
    if newest is None:
        metrics.truncate(0)
        return None
    path, checkpoint = newest
    if "resumption" not in checkpoint:
        raise UserError(
            f"{path} is from an earlier version and cannot be resumed: start again with force=true"
        )
    recorded, data = checkpoint["attnlab"].get("data"), contents["data"]
    first, now = (part["config"]["trainer"]["precision"] for part in (checkpoint["attnlab"], contents))
    if first != now:
        raise UserError(
            f"{path} was trained in {first}, and trainer.precision=auto is {now} on this machine: resume on "
            "a machine like the first, or start again with force=true"
        )
    digests.check_unchanged(recorded, data, data["splits"], fix="start again with force=true")
    if run.best.is_file():
        load(run.best)  # report a damaged file now rather than after the training
    elif BestCheckpoint.was_saved(checkpoint):
        raise UserError(f"{run.best} was deleted: start again with force=true")
    metrics.truncate(checkpoint["resumption"]["metrics_length"])
    log.info("resuming from step %d", checkpoint["global_step"])
    return path
