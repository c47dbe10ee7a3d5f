"""Hyper-parameter search with Optuna, for `hydra/sweeper=optuna`. Imports no torch.

Each trial is an ordinary run in `outputs/NAME-trials/`, where `optuna.db` stores the searches. The values of
a trial depend only on its number and on the earlier batches of trials, so a killed search resumes exactly.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np
import optuna
from hydra.core.override_parser.types import ChoiceSweep, IntervalSweep, Override, RangeSweep
from hydra.errors import InstantiationException
from omegaconf import DictConfig, OmegaConf
from optuna import Trial
from optuna.samplers import BaseSampler
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState
from rich.table import Table

from attnlab.config.hydra_versions import instantiate
from attnlab.errors import InUseError, UsageError, UserError
from attnlab.files.lock import lock_file
from attnlab.files.run_directory import run_of
from attnlab.files.run_identity import identify, short_hash
from attnlab.files.terminal import print_table
from attnlab.jobs.status import state

BEST_TRIALS = 5  # Number of trials in the table of a search, the best ones

Compose = Callable[[Sequence[str]], DictConfig]


class Search:
    """The trials of one variant."""

    def __init__(
        self, overrides: Sequence[str], space: Mapping[str, Override], sampler: DictConfig, compose: Compose
    ) -> None:
        base = compose(overrides)
        values = {key: sweep.get_value_string() for key, sweep in space.items()}
        settings = OmegaConf.to_container(sampler, resolve=True)
        self.overrides, self.space, self.sampler, self.base = overrides, space, sampler, base
        self.trial_overrides = [*overrides, f"name={base.name}-trials"]
        self.folder = run_of(compose(self.trial_overrides)).directory.parent
        self.name = short_hash({"base": identify(base), "space": values, "sampler": settings})

    def open(self) -> None:
        """Load the trials of earlier processes, or create the search."""
        storage = f"sqlite:///{self.folder}/optuna.db"
        if self.base.force and self.name in optuna.get_all_study_names(storage):
            optuna.delete_study(study_name=self.name, storage=storage)
        self.maximise = self.base.checkpoint.mode == "max"
        direction = StudyDirection.MAXIMIZE if self.maximise else StudyDirection.MINIMIZE
        self.study = optuna.create_study(
            storage=storage, study_name=self.name, direction=direction, load_if_exists=True
        )

    def next_batch(self, n_trials: int, n_jobs: int) -> list[tuple[Trial, list[str]]]:
        """Return the trials of the next batch that have not ended, with their overrides."""
        trials = self.study.get_trials(deepcopy=False)
        unfinished = [each.number for each in trials[:n_trials] if not each.state.is_finished()]
        start = min(unfinished, default=len(trials))
        end = min(n_trials, (start // n_jobs + 1) * n_jobs)
        return [self._draw(number, trials) for number in (*unfinished, *range(len(trials), end))]

    def _draw(self, number: int, trials: Sequence[FrozenTrial]) -> tuple[Trial, list[str]]:
        """Create a trial, or continue that of a process that was killed."""
        self.study.sampler = build_sampler(self.sampler, number)
        trial = Trial(self.study, trials[number]._trial_id) if number < len(trials) else self.study.ask()
        values = {key: suggest_value(trial, key, sweep) for key, sweep in self.space.items()}
        return trial, [*self.trial_overrides, *to_overrides(values)]

    def best(self) -> list[str]:
        """Return the overrides of the variant with the best values, and print the best trials."""
        trials = self.study.get_trials(deepcopy=False)
        finished = [trial for trial in trials if trial.state is TrialState.COMPLETE]
        if not finished:
            raise UserError(f"{self.base.variant}: all trials failed, see {self.folder}")
        finished.sort(key=lambda trial: trial.value or 0.0, reverse=self.maximise)
        counts = f"{len(trials)} trials, {len(finished)} finished"
        table = Table(self.base.checkpoint.monitor, *self.space, title=f"{self.base.variant}: {counts}")
        for trial in finished[:BEST_TRIALS]:
            values = [trial.value, *(trial.params[key] for key in self.space)]
            table.add_row(*(f"{value:.4g}" if isinstance(value, float) else str(value) for value in values))
        print_table(table)
        return [*self.overrides, *to_overrides(finished[0].params)]


def search(
    variants: Sequence[Sequence[str]],
    space: Mapping[str, Override],
    *,
    compose: Compose,
    train: Callable[[Sequence[Sequence[str]]], Sequence[Any]],
    sampler: DictConfig,
    n_trials: int,
    n_jobs: int,
) -> list[list[str]]:
    """Search for each variant, see `Search`; returns the overrides of each with its best values.

    `train` trains jobs; it returns a `JobReturn` of each, with its monitored metric, or None if it failed.
    `n_jobs` of the `n_trials` trials of a variant run at a time.
    """
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    for name, value in (("n_trials", n_trials), ("n_jobs", n_jobs)):
        if not isinstance(value, int) or value < 1:
            raise UsageError(f"hydra.sweeper.{name}={value}: must be a whole number ≥ 1")
    check_space(variants, space, sampler, compose)
    searches = [Search(variant, space, sampler, compose) for variant in variants]
    with ExitStack() as locks:
        for folder in dict.fromkeys(each.folder for each in searches):
            folder.mkdir(parents=True, exist_ok=True)
            if not locks.enter_context(lock_file(folder / "optuna.lock", wait=False)):
                raise InUseError(f"{folder} is in use by another search: wait until it ends, or stop it")
        for each in searches:
            each.open()
        while batch := [(each, *job) for each in searches for job in each.next_batch(n_trials, n_jobs)]:
            for each, trial, overrides in batch:
                values = " ".join(overrides[-len(space) :])
                print(f"trial {trial.number + 1}/{n_trials}  {each.base.variant}  {values}", flush=True)
            results = train([overrides for _, _, overrides in batch])
            for (each, trial, _), result in zip(batch, results, strict=True):
                score, run = result.return_value, run_of(result.cfg)
                if score is None and state(run) not in ("finished", "failed"):
                    raise UserError(f"{run.directory} is not finished: run the same command again")
                valid = score is not None and math.isfinite(score)
                each.study.tell(trial, score if valid else None, None if valid else TrialState.FAIL)
    return [each.best() for each in searches]


def check_space(
    variants: Sequence[Sequence[str]], space: Mapping[str, Override], sampler: DictConfig, compose: Compose
) -> None:
    """Raise `UsageError` before any trial if a sweep cannot be searched or a value is not allowed."""
    if not space:
        raise UsageError("Nothing to search: give an interval, such as optimizer.lr=interval(1e-4,1e-2)")
    trial = optuna.create_study(sampler=build_sampler(sampler, 0)).ask()  # in memory
    drawn = {key: suggest_value(trial, key, sweep) for key, sweep in space.items()}
    for variant in variants:
        for key, sweep in space.items():
            for value in sweep.sweep_string_iterator() if sweep.is_choice_sweep() else [drawn[key]]:
                # With values of the other sweeps: a setting may exist only for options of a searched group
                compose([*variant, *to_overrides({**drawn, key: value})])


def build_sampler(sampler: DictConfig, number: int) -> BaseSampler:
    """Build the sampler of a trial; raise `UsageError` if it cannot be built."""
    try:
        options = {"seed": 0, **sampler}
        seed = np.random.SeedSequence((options["seed"], number)).generate_state(1)[0]
        return instantiate({**options, "seed": int(seed)})  # type: ignore[no-any-return]
    except (InstantiationException, TypeError, ValueError) as error:
        reason = " ".join(str(error.__cause__ or error).split())
        raise UsageError(f"hydra.sweeper.sampler: {reason}; see its class in Optuna's manual") from error


def suggest_value(trial: Trial, key: str, sweep: Override) -> str | int | float:
    """Return the trial's value of a setting; raise `UsageError` if Optuna cannot search this sweep."""
    value: Any = sweep.value()
    try:
        if isinstance(value, ChoiceSweep):
            return trial.suggest_categorical(key, list(sweep.sweep_string_iterator()))
        options: dict[str, Any] = {}
        if isinstance(value, IntervalSweep):
            low, high, options["log"] = value.start, value.end, "log" in value.tags
        elif isinstance(value, RangeSweep):
            values: list[Any] = sorted(sweep.sweep_iterator())
            low, high, options["step"] = values[0], values[-1], abs(value.step or 1)
        else:
            raise UsageError(f"{sweep.input_line}: search an interval, a range or a list of values")
        draw: Callable[..., float] = trial.suggest_int if isinstance(low, int) else trial.suggest_float
        return draw(key, low, high, **options)
    except (ValueError, IndexError) as error:
        raise UsageError(f"{sweep.input_line}: {error}") from error


def to_overrides(values: Mapping[str, Any]) -> list[str]:
    """Return the values of settings as command-line overrides."""
    return [f"{key}={value}" for key, value in values.items()]
