"""Hyper-parameter search with Optuna. Imports no torch.

Each trial is an ordinary run in its own run directory, as `attnlab train` would train it with the same
overrides. The search is stored in `tune.db` in the folder of the runs. If it is killed, the same command
resumes the trial that was running, and then runs the trials that remain.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import optuna
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import ChoiceSweep, IntervalSweep, Override, RangeSweep
from hydra.errors import InstantiationException
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf
from optuna import Study, Trial
from optuna.pruners import BasePruner, NopPruner
from optuna.samplers import BaseSampler
from optuna.study import StudyDirection
from optuna.trial import TrialState

from attnlab.config import options
from attnlab.config.compose import compose_run
from attnlab.config.sweep_overrides import check_sweeps
from attnlab.errors import InUseError, UsageError
from attnlab.files.run_directory import Run, prepare, run_of
from attnlab.files.run_identity import identify, short_hash
from attnlab.files.writing import locked, tried
from attnlab.jobs import launcher
from attnlab.jobs.launcher import INTERRUPTED, Worker
from attnlab.jobs.sweep import describe, score, state

WAIT_INTERVAL = 1.0
"""Seconds between two checks whether another process has ended a trial."""


class Plan(NamedTuple):
    """The search space, the settings of the search, and the settings of its trials."""

    overrides: list[str]  # overrides of attnlab train that are equal in every trial
    space: dict[str, Override]  # setting → sweep
    tune: DictConfig  # the tune group
    base: DictConfig  # the configuration without any trial's settings
    default_space: bool  # whether the command has no sweep, so that tune.space is searched

    @property
    def database(self) -> Path:
        """Path of the search's database."""
        return run_of(self.base).directory.parent / "tune.db"

    @property
    def summary(self) -> str:
        """One line about the number of trials and the search space, and how to change them."""
        listed = ", ".join(f"{key}={sweep.get_value_string()}" for key, sweep in self.space.items())
        origin = " (tune.space; a sweep such as attention=none,dot replaces it)" if self.default_space else ""
        return f"searching with {self.tune.trials} trials (tune.trials): {listed}{origin}"

    @property
    def identity(self) -> str:
        """Name of the search in its database, independent of the number of trials."""
        tune = OmegaConf.to_container(self.tune, resolve=True)
        assert isinstance(tune, dict)
        return short_hash(
            {
                "base": identify(self.base),
                "space": {key: sweep.get_value_string() for key, sweep in self.space.items()},
                "tune": {key: value for key, value in tune.items() if key != "trials"},
            }
        )

    def trial_overrides(self, parameters: dict[str, Any]) -> list[str]:
        """Return the overrides of `attnlab train` for a trial."""
        return [*self.overrides, *assignments(parameters)]


class Watch:
    """Waits for a trial's worker, reports its metric to the trial, and stops the worker if it is pruned.

    A search may be killed after a value was stored and before the pruner was asked about it. A resumed trial
    therefore asks again for its last stored value.
    """

    def __init__(self, trial: Trial, run: Run, metric: str, *, interval: float = 1.0) -> None:
        self.trial = trial
        self.run = run
        self.metric = metric
        self.interval = interval  # seconds
        self.reported = len(trial.study.trials[trial.number].intermediate_values)
        self.pruned = self.reported > 0 and trial.should_prune()

    def __call__(self, worker: Worker) -> int:
        """Wait until the worker ends; returns its exit code."""
        while True:
            try:
                return worker.wait(self.interval)
            except subprocess.TimeoutExpired:
                if not self.pruned and self.should_prune():
                    worker.terminate()

    def should_prune(self) -> bool:
        """Report the values logged since the last call; returns whether the pruner stops the trial."""
        values = read_series(self.run.metrics, self.metric)
        while not self.pruned and self.reported < len(values):
            self.trial.report(values[self.reported], self.reported)
            self.reported += 1
            self.pruned = self.trial.should_prune()
        return self.pruned


def make_plan(overrides: list[str]) -> Plan:
    """Separate the overrides into the search space, the settings of the search, and fixed settings.

    Overrides without a sweep search `tune.space`.

    Raises:
        UsageError: at an option, at a sweep that cannot be searched, or if there is no sweep.
        HydraException: at a setting that does not exist.
    """
    dashed = [word for word in overrides if word.startswith("-")]
    if dashed:
        raise UsageError(
            f"attnlab tune has no option {dashed[0]}: it takes settings only, see attnlab tune --help"
        )
    tune_overrides, space, fixed = [], {}, []
    for word, override in zip(overrides, OverridesParser.create().parse_overrides(overrides), strict=True):
        if override.key_or_group.partition(".")[0] == "tune":
            tune_overrides.append(word)
        elif override.is_sweep_override():
            space[override.get_key_element()] = override
        else:
            fixed.append(word)
    group = next((word for word in tune_overrides if word.startswith("tune=")), "tune=default")
    tune = compose_run([f"+{group}", *(word for word in tune_overrides if word != group)]).tune
    settings = options.keys_of("tune", "default")
    if unknown := [key for key in tune if key not in settings]:
        raise UsageError(f"Unknown setting 'tune.{unknown[0]}'.{options.suggest(unknown[0], settings)}")
    check_sweeps([*space.values()])
    build_sampler(tune, tune.seed)  # checks the settings
    build_pruner(tune)
    default_space = not space
    if default_space:
        listed = [f"{key}={sweep}" for key, sweep in (tune.space or {}).items()]
        parsed = OverridesParser.create().parse_overrides(listed)
        space = {override.get_key_element(): override for override in parsed}
    if not space:
        raise UsageError(
            "Nothing to search: give a sweep such as attention=none,dot, see attnlab tune --help"
        )
    trial = optuna.create_study().ask()  # in memory: checks that every sweep can be searched
    drawn = {key: suggest(trial, key, sweep) for key, sweep in space.items()}
    for key, sweep in space.items():  # before any trial: checks names and options
        for value in sweep.sweep_string_iterator() if sweep.is_choice_sweep() else [drawn[key]]:
            # With values of the other sweeps: a setting may exist only for the options of a swept group
            compose_run([*fixed, *assignments({**drawn, key: value})])
    if not any(word.startswith("name=") for word in fixed):
        fixed.append(f"name={compose_run(fixed).name}-tune")
    return Plan(fixed, space, tune, compose_run(fixed), default_space)


def build_sampler(tune: DictConfig, seed: int) -> BaseSampler:
    """Build the sampler of the search.

    Raises:
        UsageError: if it cannot be built.
    """
    with _naming("sampler", tune.sampler):
        sampler: BaseSampler = instantiate(tune.sampler)(seed=seed)
        return sampler


def build_pruner(tune: DictConfig) -> BasePruner:
    """Build the pruner of the search, which stops no trial if it is null.

    Raises:
        UsageError: if it cannot be built.
    """
    with _naming("pruner", tune.pruner):
        pruner: BasePruner = instantiate(tune.pruner) or NopPruner()
        return pruner


@contextmanager
def _naming(part: str, node: Any) -> Iterator[None]:
    """Raise the errors of a part of the search as `UsageError`."""
    if not isinstance(node, DictConfig | None):
        raise UsageError(f"tune.{part}={node}: it is a section; tune.{part}._target_ is a class of Optuna")
    try:
        yield
    except (InstantiationException, TypeError, ValueError) as error:
        reason = " ".join(str(error.__cause__ or error).split())
        raise UsageError(f"tune.{part}: {reason}; see tune.{part}._target_ in Optuna's manual") from error


def suggest(trial: Trial, key: str, sweep: Override) -> str | int | float:
    """Return the trial's value of a setting.

    Raises:
        UsageError: if Optuna cannot search this sweep.
    """
    value = sweep.value()
    draw: Callable[..., float]
    try:
        if isinstance(value, IntervalSweep):
            bounds: list[Any] = [value.start, value.end]
            draw = trial.suggest_int if isinstance(bounds[0], int) else trial.suggest_float
            return draw(key, *bounds, log="log" in value.tags)
        if isinstance(value, RangeSweep):
            values: list[Any] = sorted(sweep.sweep_iterator())
            step: Any = abs(value.step)
            draw = trial.suggest_int if isinstance(values[0], int) else trial.suggest_float
            return draw(key, values[0], values[-1], step=step)
        if isinstance(value, ChoiceSweep):
            return trial.suggest_categorical(key, list(sweep.sweep_string_iterator()))
    except (ValueError, IndexError) as error:
        raise UsageError(f"{sweep.input_line}: {error}") from error
    raise UsageError(f"{sweep.input_line} cannot be searched: attnlab tune --help lists the sweeps that can")


def open_study(plan: Plan) -> Study:
    """Load the search, or create it."""
    plan.database.parent.mkdir(parents=True, exist_ok=True)
    with locked(plan.database.with_suffix(".lock")):
        return _open_study(plan, f"sqlite:///{plan.database}")


def _open_study(plan: Plan, storage: str) -> Study:
    if plan.base.force and plan.identity in optuna.get_all_study_names(storage):
        optuna.delete_study(study_name=plan.identity, storage=storage)
    return optuna.create_study(
        study_name=plan.identity,
        storage=storage,
        direction=StudyDirection.MINIMIZE if plan.base.checkpoint.mode == "min" else StudyDirection.MAXIMIZE,
        pruner=build_pruner(plan.tune),
        load_if_exists=True,
    )


def remaining_trials(study: Study, plan: Plan) -> Iterator[Trial]:
    """Yield the trials whose process was killed, then new ones up to `tune.trials`.

    Several processes may search at once. Each trial belongs to one of them, and the last trials of a process
    that ends too early are taken over by the others, which wait for that.

    The sampler is seeded with the number of the trial, so that a resumed search draws the same values as an
    uninterrupted one.
    """
    folder = plan.database.parent / "trials"
    folder.mkdir(exist_ok=True)
    while True:
        with ExitStack() as claim:
            with locked(folder / "next"):
                running = study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
                number = len(study.get_trials(deepcopy=False))
                free = next(
                    (
                        t
                        for t in running
                        if claim.enter_context(tried(folder / str(t.number)))
                        # Its process may have reported a result since `running` was read
                        and study.get_trials(deepcopy=False)[t.number].state is TrialState.RUNNING
                    ),
                    None,
                )
                trial = None
                if free is not None or number < plan.tune.trials:
                    number = number if free is None else free.number
                    seed = int(np.random.SeedSequence((plan.tune.seed, number)).generate_state(1)[0])
                    study.sampler = build_sampler(plan.tune, seed)
                    trial = study.ask() if free is None else Trial(study, free._trial_id)
                    if free is None:
                        claim.enter_context(tried(folder / str(trial.number)))
                elif not running:
                    return
            if trial is None:
                time.sleep(WAIT_INTERVAL)
            else:
                yield trial


def run_trial(trial: Trial, plan: Plan) -> int:
    """Train a trial's run and report its result to the search.

    Returns:
        The exit code; `INTERRUPTED` after a stop signal, whatever the result of the trial.
    """
    parameters = {key: suggest(trial, key, sweep) for key, sweep in plan.space.items()}
    overrides = plan.trial_overrides(parameters)
    print(f"trial {trial.number + 1}/{plan.tune.trials}  {' '.join(assignments(parameters))}", flush=True)
    os.environ["ATTNLAB_COMMAND"] = f"attnlab train {shlex.join(overrides)}"
    run = prepare_when_free(compose_run(overrides))
    trial.set_user_attr("run", str(run.directory))
    watch = Watch(trial, run, plan.base.checkpoint.monitor)
    # A repeated combination of values has a finished run, or one trained up to the step where it was pruned.
    done = watch.should_prune() or state(run) == "finished"
    code, stopped = (0, False) if done else launcher.train(run, wait=watch, to_log=True)
    # Asked for every value, also if the run has meanwhile finished: the times of reading must not matter.
    if watch.should_prune():
        if state(run) != "finished":
            run.write_result(
                "interrupted", error=f"pruned after {watch.reported} validations: other trials were better"
            )
        trial.study.tell(trial, state=TrialState.PRUNED)
        code = 0
    elif (value := score(run)) is not None:
        trial.study.tell(trial, value)
    elif code != INTERRUPTED:
        trial.study.tell(trial, state=TrialState.FAIL)
    print(describe(run))
    return INTERRUPTED if stopped else code  # the signal may arrive while a run ends or is pruned


def prepare_when_free(config: DictConfig) -> Run:
    """Create a trial's run directory; wait while another process tries the same values."""
    while True:
        try:
            return prepare(config)
        except InUseError:
            time.sleep(WAIT_INTERVAL)


def read_series(path: Path, metric: str) -> list[float]:
    """Read a metric's values from a metrics.csv that may be growing: an incomplete last line is ignored."""
    if not path.is_file():
        return []
    complete, _, _ = path.read_text().rpartition("\n")
    rows = (line.split(",") for line in complete.splitlines())
    return [float(row[3]) for row in rows if row[2] == metric]


def assignments(parameters: dict[str, Any]) -> list[str]:
    """Return parameters as command-line overrides."""
    return [f"{key}={value}" for key, value in parameters.items()]
