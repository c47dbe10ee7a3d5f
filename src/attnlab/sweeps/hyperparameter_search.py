"""Search hyper-parameters: `attnlab tune`. Optuna asks, an ordinary run answers. Imports no torch.

Each trial is the run of `attnlab train` with the same words, in a directory of its own. The search itself is
kept beside them in `tune.db`: killed at any moment, the same command goes on with the trial that was under
way, and does the trials that remain.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import optuna
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import ChoiceSweep, IntervalSweep, Override, RangeSweep
from hydra.errors import HydraException
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from optuna import Study, Trial
from optuna.pruners import NopPruner
from optuna.study import StudyDirection
from optuna.trial import TrialState
from rich.console import Console
from rich.table import Table

from attnlab.config.compose import compose_run, explain
from attnlab.errors import UserError
from attnlab.runs import launcher
from attnlab.runs.directory import Run, prepare, run_of
from attnlab.runs.identity import identify, short_hash
from attnlab.runs.launcher import INTERRUPTED, Worker
from attnlab.sweeps.jobs import describe, score, state

HELP = """attnlab tune [OVERRIDE ...]: search settings; each trial is an ordinary run of attnlab train

  attnlab tune 'optimizer.lr=tag(log,interval(1e-4,1e-1))' attention=additive,dot tune.trials=30
  attnlab tune tune=recipe                  the space of conf/tune/recipe.yaml

What is searched:
  optimizer.lr='interval(0.001,0.1)'           a number between two
  encoder.size='int(interval(8,64))'           a whole number between two
  optimizer.lr='tag(log,interval(1e-4,1e-1))'  its logarithm
  decoder.layers='range(1,4)'                  1, 2, 3
  attention=additive,dot                       one of these
What is best is what checkpoint.monitor and checkpoint.mode say.
How: tune.trials, tune.seed, tune.sampler, tune.pruner (conf/tune/default.yaml).
The same command goes on where it was stopped; more tune.trials go on from there; force=true starts over.
"""

SHOWN = 10
"""Rows of the table of best trials."""


class Plan(NamedTuple):
    """What is searched, and how."""

    words: list[str]  # of attnlab train, the same for every trial
    space: dict[str, Override]  # setting → sweep
    tune: DictConfig  # the tune group
    base: DictConfig  # the configuration before any trial's settings

    @property
    def database(self) -> Path:
        """Where the search is kept."""
        return run_of(self.base).directory.parent / "tune.db"

    @property
    def identity(self) -> str:
        """The search's name in its database: the same for the same question with more trials."""
        asked = {
            "base": identify(self.base),
            "space": {key: sweep.get_value_string() for key, sweep in self.space.items()},
            "how": {key: value for key, value in OmegaConf.to_object(self.tune).items() if key != "trials"},  # type: ignore[union-attr]
        }
        return short_hash(asked)

    def words_of(self, parameters: dict[str, Any]) -> list[str]:
        """What `attnlab train` is told for a trial."""
        return [*self.words, *assignments(parameters)]


class Watch:
    """Waits for a trial's worker, tells the trial its scores, and stops it where the pruner would."""

    def __init__(self, trial: Trial, run: Run, metric: str, *, interval: float = 1.0) -> None:
        self.trial = trial
        self.run = run
        self.metric = metric
        self.interval = interval  # seconds between two looks
        self.seen = len(trial.study.trials[trial.number].intermediate_values)
        self.pruned = False

    def __call__(self, worker: Worker) -> int:
        """The worker's exit code, when it has ended."""
        while True:
            try:
                return worker.wait(self.interval)
            except subprocess.TimeoutExpired:
                if not self.pruned and self.is_hopeless():
                    worker.terminate()

    def is_hopeless(self) -> bool:
        """Tell the trial what has been logged since; whether the pruner would stop there."""
        for step, value in list(enumerate(read_series(self.run.metrics, self.metric)))[self.seen :]:
            self.trial.report(value, step)
            self.seen = step + 1
            if self.trial.should_prune():
                self.pruned = True
                break
        return self.pruned


def main(words: list[str]) -> int:
    """`attnlab tune`: returns 0 if a trial finished, 1 if none did, 2 at wrong usage, 75 if interrupted."""
    if {"-h", "--help"} & set(words):
        print(HELP, end="")
        return 0
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        plan = make_plan(words)
    except (HydraException, OmegaConfBaseException) as error:
        if os.environ.get("ATTNLAB_TRACEBACK"):
            raise
        print(f"attnlab: {explain(error)}", file=sys.stderr)
        return 2
    study = open_study(plan)
    for trial in remaining_trials(study, plan):
        if run_trial(trial, plan) == INTERRUPTED:
            print(f"stopped in trial {trial.number + 1}; the same command goes on from here")
            return INTERRUPTED
    return conclude(study, plan)


def make_plan(words: list[str]) -> Plan:
    """Part the words into what is searched, how, and what stays the same.

    Raises:
        UserError: at an option, at a sweep that cannot be searched, or if nothing is searched.
        HydraException: at a setting that does not exist.
    """
    options = [word for word in words if word.startswith("-")]
    if options:
        raise UserError(f"attnlab tune takes settings, and no option {options[0]}: attnlab tune --help")
    how, space, fixed = [], {}, []
    for word, override in zip(words, OverridesParser.create().parse_overrides(words), strict=True):
        if override.key_or_group.partition(".")[0] == "tune":
            how.append(word)
        elif override.is_sweep_override():
            space[override.get_key_element()] = override
        else:
            fixed.append(word)
    group = next((word for word in how if word.startswith("tune=")), "tune=default")
    tune = compose_run([f"+{group}", *(word for word in how if word != group)]).tune
    listed = OverridesParser.create().parse_overrides([f"{key}={sweep}" for key, sweep in tune.space.items()])
    space = {**{override.get_key_element(): override for override in listed}, **space}
    if not space:
        raise UserError("nothing to search: give a sweep such as attention=none,dot (attnlab tune --help)")
    trial = optuna.create_study().ask()  # kept nowhere: shows that every sweep can be drawn from
    for key, sweep in space.items():
        suggest(trial, key, sweep)
    if not any(word.startswith("name=") for word in fixed):
        fixed.append(f"name={compose_run(fixed).name}-tune")
    return Plan(fixed, space, tune, compose_run(fixed))


def suggest(trial: Trial, key: str, sweep: Override) -> str | int | float:
    """Draw a setting's value.

    Raises:
        UserError: at a sweep that Optuna cannot draw from.
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
        raise UserError(f"{sweep.input_line}: {error}") from error
    raise UserError(f"{sweep.input_line} cannot be searched: attnlab tune --help says what can")


def open_study(plan: Plan) -> Study:
    """The search as it stands, or a new one."""
    plan.database.parent.mkdir(parents=True, exist_ok=True)
    storage = f"sqlite:///{plan.database}"
    if plan.base.force and plan.identity in optuna.get_all_study_names(storage):
        optuna.delete_study(study_name=plan.identity, storage=storage)
    return optuna.create_study(
        study_name=plan.identity,
        storage=storage,
        direction=StudyDirection.MINIMIZE if plan.base.checkpoint.mode == "min" else StudyDirection.MAXIMIZE,
        pruner=instantiate(plan.tune.pruner) or NopPruner(),
        load_if_exists=True,
    )


def remaining_trials(study: Study, plan: Plan) -> Iterator[Trial]:
    """The trial that was under way when the search was killed, then new ones up to `tune.trials`.

    The sampler is seeded by the trial's number, so that a search that was killed asks for what it would have
    asked for.
    """
    while True:
        under_way = study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
        number = under_way[0].number if under_way else len(study.get_trials(deepcopy=False))
        if number >= plan.tune.trials:
            return
        seed = int(np.random.SeedSequence((plan.tune.seed, number)).generate_state(1)[0])
        study.sampler = instantiate(plan.tune.sampler)(seed=seed)
        yield Trial(study, under_way[0]._trial_id) if under_way else study.ask()


def run_trial(trial: Trial, plan: Plan) -> int:
    """Train a trial's run, and tell the search how it ended; returns the exit code."""
    parameters = {key: suggest(trial, key, sweep) for key, sweep in plan.space.items()}
    words = plan.words_of(parameters)
    print(f"trial {trial.number + 1}/{plan.tune.trials}  {' '.join(assignments(parameters))}", flush=True)
    os.environ["ATTNLAB_COMMAND"] = f"attnlab train {shlex.join(words)}"
    run = prepare(compose_run(words))
    trial.set_user_attr("run", str(run.directory))
    watch = Watch(trial, run, plan.base.checkpoint.monitor)
    # Parameters that come again find their run finished, or as far as it was trained when it was pruned.
    finished_or_pruned = state(run) == "finished" or watch.is_hopeless()
    code = 0 if finished_or_pruned else launcher.train(run, wait=watch, to_log=True)
    value = score(run)
    if value is not None:
        watch.is_hopeless()  # tells the last scores too: later trials are measured by them
        trial.study.tell(trial, value)
    elif watch.pruned:
        run.write_result("interrupted", error=f"pruned after {watch.seen} validations: others did better")
        trial.study.tell(trial, state=TrialState.PRUNED)
        code = 0
    elif code != INTERRUPTED:
        trial.study.tell(trial, state=TrialState.FAIL)
    print(describe(run))
    return code


def conclude(study: Study, plan: Plan) -> int:
    """Show the best trials, and the words that train the best one; returns the exit code."""
    trials = study.get_trials(deepcopy=False)
    finished = [trial for trial in trials if trial.state == TrialState.COMPLETE]
    finished.sort(key=lambda trial: trial.value or 0.0, reverse=study.direction == StudyDirection.MAXIMIZE)
    counts = [sum(trial.state == state for trial in trials) for state in (TrialState.PRUNED, TrialState.FAIL)]
    title = f"{len(trials)} trials: {len(finished)} finished, {counts[0]} pruned, {counts[1]} failed"
    if not finished:
        print(f"attnlab: {title}; their directories say why: {plan.database.parent}", file=sys.stderr)
        return 1
    table = Table("trial", plan.base.checkpoint.monitor, *plan.space, "run directory", title=title)
    for column in table.columns:
        column.overflow = "fold"  # a path cut short cannot be opened
    for trial in finished[:SHOWN]:
        cells = [_short(value) for value in (trial.value, *(trial.params[key] for key in plan.space))]
        table.add_row(str(trial.number + 1), *cells, Path(trial.user_attrs["run"]).name)
    console = Console(soft_wrap=True)
    console.print(table)
    console.print(f"best  {finished[0].user_attrs['run']}", highlight=False)
    words = [word for word in plan.words_of(finished[0].params) if not word.startswith("force=")]
    console.print(f"      attnlab train {shlex.join(words)}", highlight=False, markup=False)
    return 0


def read_series(path: Path, metric: str) -> list[float]:
    """A metric's values in a metrics.csv that may be growing: a last line not yet whole is left out."""
    if not path.is_file():
        return []
    whole, _, _ = path.read_text().rpartition("\n")
    rows = (line.split(",") for line in whole.splitlines())
    return [float(row[3]) for row in rows if row[2] == metric]


def assignments(parameters: dict[str, Any]) -> list[str]:
    """Parameters as words of a command."""
    return [f"{key}={value}" for key, value in parameters.items()]


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
