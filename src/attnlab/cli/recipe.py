"""Train one run, from its configuration to its scores. Read from top to bottom, this is the whole recipe."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

from lightning import seed_everything
from omegaconf import DictConfig

from attnlab.config import build
from attnlab.errors import UserError
from attnlab.metrics.registry import signatures
from attnlab.runs.directory import Run
from attnlab.runs.metrics_file import read_metrics
from attnlab.training.callbacks import LastCheckpoint
from attnlab.training.callbacks.pictures import draw_curves
from attnlab.training.checkpoints import load, load_newest
from attnlab.training.loggers import MetricsFile, peak_memory

log = logging.getLogger(__name__)


def train(config: DictConfig, run: Run) -> dict[str, float]:
    """Train, go back to the best checkpoint, score the validation and test splits, and draw.

    Goes on from `last.ckpt` where there is one, or from the one before if that is damaged, and ends as if it
    had never stopped: see `LastCheckpoint`.

    Returns:
        The scores of the best checkpoint: `val/…`, `attention/…`, and `test/…` where there is a test split.
    """
    seed_everything(config.seed, workers=True, verbose=False)
    metrics = MetricsFile(run.metrics)
    loggers = [metrics, *build.build_loggers(config, run)]  # first: what fails from here on fails there too

    corpus = build.build_corpus(config)
    vocabularies = build.build_vocabularies(config, corpus)
    data = build.build_data(config, corpus, vocabularies)
    network = build.build_network(config, vocabularies)
    module = build.build_module(config, network, vocabularies, corpus)
    log.info(
        "%d training, %d validation, %d test pairs · vocabulary %d → %d · %s parameters",
        *(len(split) for split in (corpus.train, corpus.val, corpus.test)),
        vocabularies.source.size,
        vocabularies.target.size,
        f"{network.parameter_count:,}",
    )

    callbacks = build.build_callbacks(config, run, vocabularies, metrics, terminal=sys.stderr.isatty())
    trainer = build.build_trainer(config, run, loggers, callbacks)
    trainer.fit(module, datamodule=data, ckpt_path=_go_on(run, metrics))
    seconds = next(part.seconds for part in callbacks if isinstance(part, LastCheckpoint))
    trainer.loggers = []  # the validation curve is whole: the best checkpoint's scores are no point of it
    scores = dict(trainer.validate(module, datamodule=data, ckpt_path=run.best, verbose=False)[0])
    trainer.loggers = loggers
    if corpus.test:
        scores.update(trainer.test(module, datamodule=data, ckpt_path=run.best, verbose=False)[0])

    if trainer.is_global_zero:
        draw_curves(read_metrics(run.metrics), run.figures)
        run.write_result(
            "finished",
            metrics=scores,
            signatures=signatures(module.text_metrics),
            parameters=network.parameter_count,
            steps=trainer.global_step,
            seconds=seconds,
            peak_memory=peak_memory(),
        )
    return scores


def _go_on(run: Run, metrics: MetricsFile) -> Path | None:
    """The checkpoint to go on from, or None; metrics.csv is cut to what had been logged when it was saved."""
    found = load_newest(run.last, run.previous)
    if found is None:
        metrics.rewind(0)
        return None
    path, checkpoint = found
    if "resumption" not in checkpoint:
        raise UserError(
            f"{path} was saved by an earlier version, which left things out: force=true starts over"
        )
    if run.best.is_file():
        load(run.best)  # better found damaged now than after the training
    metrics.rewind(checkpoint["resumption"]["metrics_length"])
    log.info("going on from step %d", checkpoint["global_step"])
    return path
