"""Train one run, from its configuration to its scores. Read from top to bottom, this is the whole recipe."""

from __future__ import annotations

import logging
import sys
import time

from lightning import seed_everything
from omegaconf import DictConfig

from attnlab import build
from attnlab.callbacks.pictures import draw_curves
from attnlab.checkpoints import load
from attnlab.metrics.scores import signatures
from attnlab.runs import Run
from attnlab.tracking import MetricsFile, finish_wandb, peak_memory, read_metrics

log = logging.getLogger(__name__)


def train(config: DictConfig, run: Run) -> dict[str, float]:
    """Train, go back to the best checkpoint, score the validation and test splits, and draw.

    Goes on from `last.ckpt` where there is one.

    Returns:
        The scores of the best checkpoint: `val/…`, `attention/…`, and `test/…` where there is a test split.
    """
    started = time.time()
    seed_everything(config.seed, workers=True, verbose=False)

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
        f"{sum(parameter.numel() for parameter in network.parameters()):,}",
    )

    metrics = MetricsFile(run.metrics)
    loggers = [metrics, *build.build_loggers(config, run)]
    callbacks = build.build_callbacks(config, run, vocabularies, terminal=sys.stderr.isatty())
    trainer = build.build_trainer(config, run, loggers, callbacks)
    failed = True
    try:
        checkpoint = run.last if run.last.is_file() else None
        step = -1 if checkpoint is None else load(checkpoint)["global_step"]
        metrics.rewind(step)
        if checkpoint is not None:
            log.info("going on from step %d", step)
        trainer.fit(module, datamodule=data, ckpt_path=checkpoint)
        seconds = time.time() - started
        trainer.loggers = []  # the validation curve is whole: the best checkpoint's scores are no point of it
        scores = dict(trainer.validate(module, datamodule=data, ckpt_path=run.best, verbose=False)[0])
        trainer.loggers = loggers
        if corpus.test:
            scores.update(trainer.test(module, datamodule=data, ckpt_path=run.best, verbose=False)[0])
        failed = False
    finally:
        if trainer.is_global_zero:
            finish_wandb(loggers, failed=failed)

    if trainer.is_global_zero:
        draw_curves(read_metrics(run.metrics), run.figures)
        run.write_result(
            "finished",
            metrics=scores,
            signatures=signatures(module.scores),
            parameters=sum(parameter.numel() for parameter in network.parameters()),
            steps=trainer.global_step,
            seconds=seconds,
            peak_memory=peak_memory(),
        )
    return scores
