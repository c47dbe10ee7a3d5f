"""Overhead of `attnlab train` per step, compared with a bare loop over the same network and batches.

    python overhead.py experiment=conala data.path=conala-train.json
    python overhead.py experiment=reverse_published

After each step of the trainer, a bare loop trains a second network on the same batch: collate, forward, loss,
backward, clip, optimizer. A trainer step, with all callbacks and loggers, is timed from the end of the bare
step to the end of its last hook. Validation and checkpoints are excluded.
"""

import argparse
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import timing
from lightning import Callback, LightningModule, Trainer, seed_everything
from tables import print_table

from attnlab.config.compose import compose_run
from attnlab.files.run_directory import prepare_run
from attnlab.jobs.logs import quieten_lightning
from attnlab.training import build, components
from attnlab.training.loggers import MetricsFile, finish_wandb
from attnlab.types import Batch


class AlternatingTimer(Callback):
    """Timer of the trainer's steps that runs a bare step after each."""

    def __init__(self, examples: Any, step: timing.Work) -> None:
        self.examples = examples
        self.step = step
        self.trained: list[float] = []
        self.bare: list[float] = []
        self.since: float | None = None

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Exclude the time between epochs."""
        self.since = None

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Batch, batch_idx: int
    ) -> None:
        """Record the trainer's step, run and record the bare step, and restart the clock."""
        ended = time.perf_counter()
        self.step(self.examples[batch.indices.tolist()])
        started = time.perf_counter()
        if self.since is not None:
            self.trained.append(ended - self.since)
            self.bare.append(started - ended)
        self.since = time.perf_counter()


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("overrides", nargs="*", metavar="OVERRIDE", help="settings of attnlab train")
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--csv", type=Path, help="file of the table")
    options = parser.parse_intermixed_args()

    quieten_lightning()
    with tempfile.TemporaryDirectory() as folder:
        config = compose_run(
            [
                "trainer.accelerator=cpu",
                f"trainer.max_steps={options.steps}",
                "trainer.max_epochs=-1",
                "trainer.check_val_every_n_epoch=100000",
                f"paths.output={folder}",
                *options.overrides,
            ]
        )
        seed_everything(config.seed, verbose=False)
        run = prepare_run(config)
        corpus = build.build_corpus(config)
        vocabularies = build.build_vocabularies(config, corpus)
        data = components.build_data(config, corpus, vocabularies)
        data.setup("fit")
        module = components.build_module(
            config, build.build_network(config, vocabularies), vocabularies, corpus
        )
        bare = timing.training_step(module, timing.fast_loss, timing.Settings.of(config))
        timer = AlternatingTimer(data.examples("train"), bare)
        metrics = MetricsFile(run.metrics)
        loggers = [metrics, *components.build_loggers(config, run)]
        callbacks = [
            *components.build_callbacks(config, run, metrics, terminal=False),
            timer,
        ]
        trainer = components.build_trainer(config, run, loggers, callbacks)
        trainer.fit(module, datamodule=data)
        finish_wandb(0)

    skip = min(10, len(timer.bare) // 2)
    trained, plain = median(timer.trained[skip:]), median(timer.bare[skip:])
    added = median(one - other for one, other in zip(timer.trained[skip:], timer.bare[skip:], strict=True))
    row = {
        "experiment": config.name,
        "steps": len(timer.bare) - skip,
        "ms per step": f"{1e3 * trained:.2f}",
        "bare": f"{1e3 * plain:.2f}",
        "added": f"{1e3 * added:.2f}",
        "added, share": f"{added / plain:.3f}",
    }
    print_table([row], "attnlab train and a bare loop, medians", options.csv)


if __name__ == "__main__":
    main()
