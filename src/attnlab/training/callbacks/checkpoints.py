"""Checkpoints of a training: the last one, from which it resumes bit-exactly, and the best one."""

import signal
import time
from pathlib import Path
from typing import Any, Literal

from lightning import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import Tensor

from attnlab.errors import STOP_SIGNALS, InterruptedRunError
from attnlab.files.run_directory import Run
from attnlab.metrics.registry import metric
from attnlab.settings import NotNegative
from attnlab.training.loggers import MetricsFile
from attnlab.training.module import Seq2SeqModule


class LastCheckpoint(Callback):
    """Saves `last.ckpt` between two batches: after each epoch, every few minutes, and when interrupted.

    Between two batches the validation, the scheduler step and the lines of metrics.csv of the previous batch
    are complete, and no gradient is being accumulated. A run that resumes from there equals an uninterrupted
    one. At the times at which Lightning saves it would not: at the end of an epoch a plateau scheduler has
    not yet seen the epoch and its loss is not logged, and at the end of a batch its validation has not yet
    run.

    Stop signals are only recorded during training: Lightning's own handlers stop without a checkpoint, and
    saving inside a signal handler deadlocks under DDP. Outside training there is nothing to save, and the
    previous handlers are active.

    This callback must come before all callbacks that log. The previous checkpoint is kept beside the last
    one.

    Args:
        metrics: the file that is truncated to its current length when training resumes.
        every_minutes: minutes between checkpoints inside epochs; None to save only at the end of epochs.

    Attributes:
        interrupted: whether a stop signal arrived.
    """

    def __init__(self, run: Run, metrics: MetricsFile, *, every_minutes: NotNegative | None) -> None:
        self.run = run
        self.metrics = metrics
        self.every_minutes = every_minutes
        self.interrupted = False
        self.handlers = {number: signal.getsignal(number) for number in STOP_SIGNALS}
        self.saved_batches = 0
        self.saved_at = time.monotonic()
        self.started_at = time.monotonic()
        self.restored_metrics: dict[str, Tensor] = {}

    @property
    def seconds(self) -> float:
        """Training time of this run, without the time that was lost when it was killed."""
        return time.monotonic() - self.started_at

    def on_save_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Add the state that Lightning does not save."""
        assert isinstance(pl_module, Seq2SeqModule)
        _turn_back(checkpoint["loops"])
        sums: Any = pl_module.all_gather(pl_module.epoch_loss.sums())  # [2], or [processes, 2] of several
        checkpoint["resumption"] = {
            "metrics_length": self.metrics.flush(),
            "seconds": self.seconds,
            "epoch_loss": sums.reshape(-1, 2).cpu(),
            "should_stop": trainer.should_stop,
            "callback_metrics": {name: value.cpu() for name, value in trainer.callback_metrics.items()},
        }

    def on_load_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Restore the state that Lightning does not save, if training is resumed."""
        if trainer.state.fn != "fit":
            return
        assert isinstance(pl_module, Seq2SeqModule)
        state = checkpoint["resumption"]
        self.started_at = time.monotonic() - state["seconds"]
        trainer.should_stop = state["should_stop"]
        pl_module.epoch_loss.restore(state["epoch_loss"], trainer.global_rank, trainer.world_size)
        self.restored_metrics = state["callback_metrics"]

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Install the signal handlers, and correct what Lightning restores."""
        for number in STOP_SIGNALS:  # after Lightning, which has already installed its own
            signal.signal(number, self._interrupt)
        trainer.callback_metrics.update(self.restored_metrics)  # a plateau scheduler may read them
        self.saved_batches = trainer.fit_loop.epoch_loop.batch_progress.total.ready
        self.saved_at = time.monotonic()
        epochs = trainer.fit_loop.epoch_progress.current
        if epochs.ready == epochs.completed:
            # A new epoch starts. With max_steps, Lightning would skip batches as if inside the last one.
            trainer.fit_loop.epoch_loop.restarting = False

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.fit_loop.epoch_loop.batch_progress.total.ready > self.saved_batches:
            self._save(trainer)
        self._stop_if_requested(trainer)

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        if batch_idx == 0 or batch_idx % trainer.accumulate_grad_batches != 0:
            return
        save = self.interrupted or self._is_time(trainer)
        if trainer.strategy.reduce_boolean_decision(save, all=False):
            self._save(trainer)
            self._stop_if_requested(trainer)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Let plateau schedulers see this epoch: Lightning skips them in an epoch that was resumed."""
        trainer.fit_loop.on_iteration_done()  # with max_steps, the setter of `restarting` would set it

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Save the end of training: a run that is killed later only has to be evaluated."""
        self._save(trainer)
        self._stop_if_requested(trainer)
        self._restore_handlers()

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Restore the previous handlers if Lightning replaced them for an evaluation outside training."""
        if trainer.state.fn != "fit":
            self._restore_handlers()

    on_test_start = on_validation_start

    def _interrupt(self, *_: Any) -> None:
        self.interrupted = True

    def _restore_handlers(self) -> None:
        for number, handler in self.handlers.items():
            signal.signal(number, handler)

    def _is_time(self, trainer: Trainer) -> bool:
        """Return whether it is time to save, by the clock of process 0."""
        if self.every_minutes is None or not trainer.is_global_zero:
            return False
        return time.monotonic() - self.saved_at >= 60 * self.every_minutes

    def _save(self, trainer: Trainer) -> None:
        if trainer.is_global_zero and self.run.last.is_file():
            self.run.last.replace(self.run.previous)
        trainer.save_checkpoint(self.run.last, weights_only=False)
        self.saved_batches = trainer.fit_loop.epoch_loop.batch_progress.total.ready
        self.saved_at = time.monotonic()

    def _stop_if_requested(self, trainer: Trainer) -> None:
        if trainer.strategy.reduce_boolean_decision(self.interrupted, all=False):
            raise InterruptedRunError


def _turn_back(loops: dict[str, Any]) -> None:
    """Set saved loop counters to their values before the epoch or the batch that is about to start.

    Lightning has already counted it as ready. Inside an epoch, Lightning can resume from the last hook of a
    batch: the batch before is then about to be counted as completed, and its validation, if it had one, as
    done.
    """
    fit = loops["fit_loop"]
    for counts in (fit["epoch_progress"]["total"], fit["epoch_progress"]["current"]):
        counts["ready"] -= counts["ready"] > counts["started"]
    batches = fit["epoch_loop.batch_progress"]
    if batches["total"]["ready"] > batches["total"]["started"]:
        for counts in (batches["total"], batches["current"]):
            counts["ready"] -= 1
            counts["completed"] -= 1
        batches["is_last_batch"] = False
        fit["epoch_loop.state_dict"]["_batches_that_stepped"] -= 1


class BestCheckpoint(ModelCheckpoint):
    """Saves `best.ckpt` whenever a validation reaches the best score so far.

    A later checkpoint replaces one with the worst possible score, such as a word error rate of 100: while no
    output is right, the score does not show that the network learns.

    Lightning's `ModelCheckpoint` loses the best score if the run directory was moved, and would then replace
    the best checkpoint by the next one.
    """

    def __init__(self, path: Path, *, monitor: str, mode: Literal["min", "max"]) -> None:
        super().__init__(
            dirpath=path.parent, filename=path.stem, monitor=monitor, mode=mode, enable_version_counter=False
        )

    def check_monitor_top_k(self, trainer: Trainer, current: Tensor | None = None) -> bool:
        """Return whether to save a checkpoint with the score `current`, a scalar tensor."""
        if current is None:
            return False
        if super().check_monitor_top_k(trainer, current):
            return True
        low, high = metric(str(self.monitor)).bounds
        worst = high if self.mode == "min" else low
        return current.item() == worst == self.best_k_models[self.kth_best_model_path].item()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the best score so far, with the current location of the file."""
        super().load_state_dict({**state_dict, "dirpath": self.dirpath})
        self.current_score = state_dict["current_score"]
        if self.best_model_score is not None:
            path = str(Path(str(self.dirpath)) / f"{self.filename}{self.FILE_EXTENSION}")
            self.best_model_path = self.kth_best_model_path = path
            self.best_k_models = {path: self.best_model_score}

    @classmethod
    def was_saved(cls, checkpoint: dict[str, Any]) -> bool:
        """Return whether `best.ckpt` existed when this checkpoint was saved."""
        states = (state for key, state in checkpoint["callbacks"].items() if key.startswith(cls.__name__))
        return any(state["best_model_path"] for state in states)
