"""Hyper-parameter search with Optuna. Imports no torch.

Each trial is an ordinary run in its own run directory, as `attnlab train` would train it with the same
overrides. The search is stored in `tune.db` in the folder of the runs. If it is killed, the same command
resumes the trial that was running, and then runs the trials that remain.
"""

import os
import shlex
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np
import optuna
from omegaconf import DictConfig
from optuna import Study, Trial
from optuna.study import StudyDirection
from optuna.trial import TrialState

from attnlab.config.compose import compose_run
from attnlab.errors import INTERRUPTED, InUseError
from attnlab.files.lock import lock_file, try_lock_file
from attnlab.files.metrics_file import read_metrics
from attnlab.files.run_directory import Run, prepare_run
from attnlab.jobs import worker_process
from attnlab.jobs.search_plan import SearchPlan, build_pruner, build_sampler, suggest_value, to_overrides
from attnlab.jobs.status import describe, score, state
from attnlab.jobs.worker_process import Worker

WAIT_INTERVAL = 1.0
"""Seconds between two checks whether another process has ended a trial."""


def open_study(plan: SearchPlan) -> Study:
    """Load the search, or create it."""
    plan.database.parent.mkdir(parents=True, exist_ok=True)
    storage = f"sqlite:///{plan.database}"
    with lock_file(plan.database.with_suffix(".lock")):
        if plan.base.force and plan.identity in optuna.get_all_study_names(storage):
            optuna.delete_study(study_name=plan.identity, storage=storage)
        minimised = plan.base.checkpoint.mode == "min"
        return optuna.create_study(
            study_name=plan.identity,
            storage=storage,
            direction=StudyDirection.MINIMIZE if minimised else StudyDirection.MAXIMIZE,
            pruner=build_pruner(plan.tune),
            load_if_exists=True,
        )


def remaining_trials(study: Study, plan: SearchPlan) -> Iterator[Trial]:
    """Yield the trials whose process was killed, then new ones up to `tune.trials`.

    Several processes may search at once. Each trial belongs to one of them, and the last trials of a process
    that ends too early are taken over by the others, which wait for that.
    """
    locks = plan.database.parent / "trials"
    locks.mkdir(exist_ok=True)
    while True:
        with ExitStack() as claim:
            with lock_file(locks / "next"):
                trials = study.get_trials(deepcopy=False)
                running = [trial.number for trial in trials if trial.state is TrialState.RUNNING]
                abandoned = (
                    number
                    for number in running
                    if claim.enter_context(try_lock_file(locks / str(number)))
                    # Its process may have reported a result since `trials` was read
                    and study.get_trials(deepcopy=False)[number].state is TrialState.RUNNING
                )
                number = next(abandoned, len(trials))
                trial = None
                if number < max(len(trials), plan.tune.trials):
                    # Of the trial alone, so that a resumed search draws the same values
                    seed = np.random.SeedSequence((plan.tune.seed, number)).generate_state(1)[0]
                    study.sampler = build_sampler(plan.tune, int(seed))
                    if number < len(trials):
                        trial = Trial(study, trials[number]._trial_id)
                    else:
                        trial = study.ask()
                        claim.enter_context(try_lock_file(locks / str(number)))
                elif not running:
                    return
            if trial is None:
                time.sleep(WAIT_INTERVAL)
            else:
                yield trial


def run_trial(trial: Trial, plan: SearchPlan) -> int:
    """Train a trial's run and report its result to the search.

    Returns:
        The exit code; `INTERRUPTED` after a stop signal, whatever the result of the trial.
    """
    values = {key: suggest_value(trial, key, sweep) for key, sweep in plan.space.items()}
    overrides = plan.trial_overrides(values)
    print(f"trial {trial.number + 1}/{plan.tune.trials}  {' '.join(to_overrides(values))}", flush=True)
    os.environ["ATTNLAB_COMMAND"] = f"attnlab train {shlex.join(overrides)}"
    run = _prepare_when_free(compose_run(overrides))
    trial.set_user_attr("run", str(run.directory))
    pruning = TrialPruning(trial, run, plan.base.checkpoint.monitor)
    # A repeated combination of values has a finished run, or one trained up to the step where it was pruned.
    if pruning.should_prune() or state(run) == "finished":
        code, stopped = 0, False
    else:
        code, stopped = worker_process.train_in_worker(run, wait=pruning.wait, to_log=True)
    # Asked again after the end, so that the result does not depend on when the values were read
    if pruning.should_prune():
        if state(run) != "finished":
            reason = f"pruned after {pruning.reported} validations: other trials were better"
            run.write_result("interrupted", error=reason)
        trial.study.tell(trial, state=TrialState.PRUNED)
        code = 0
    elif (value := score(run)) is not None:
        trial.study.tell(trial, value)
    elif code != INTERRUPTED:
        trial.study.tell(trial, state=TrialState.FAIL)
    print(describe(run))
    return INTERRUPTED if stopped else code  # the signal may arrive while a run ends or is pruned


def _prepare_when_free(config: DictConfig) -> Run:
    """Create a trial's run directory; wait while another process tries the same values."""
    while True:
        try:
            return prepare_run(config)
        except InUseError:
            time.sleep(WAIT_INTERVAL)


@dataclass
class TrialPruning:
    """Reports a trial's metric to the search, and stops its worker if the trial is pruned.

    A search may be killed after a value was stored and before the pruner was asked about it. A resumed trial
    therefore asks again for its last stored value.
    """

    trial: Trial
    run: Run
    metric: str  # that the search optimises
    interval: float = 1.0  # seconds between two checks of the metric

    def __post_init__(self) -> None:
        self.reported = len(self.trial.study.trials[self.trial.number].intermediate_values)
        self.pruned = self.reported > 0 and self.trial.should_prune()

    def wait(self, worker: Worker) -> int:
        """Wait until the worker ends; returns its exit code."""
        while True:
            try:
                return worker.wait(self.interval)
            except subprocess.TimeoutExpired:
                if not self.pruned and self.should_prune():
                    worker.terminate()

    def should_prune(self) -> bool:
        """Report the values logged since the last call; returns whether the pruner stops the trial."""
        metrics = read_metrics(self.run.metrics) if self.run.metrics.is_file() else {}
        for _, value in metrics.get(self.metric, [])[self.reported :]:
            if self.pruned:
                break
            self.trial.report(value, self.reported)
            self.reported += 1
            self.pruned = self.trial.should_prune()
        return self.pruned
