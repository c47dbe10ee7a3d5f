"""Search space and settings of a hyper-parameter search. Imports no torch."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import optuna
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import ChoiceSweep, IntervalSweep, Override, RangeSweep
from hydra.errors import InstantiationException
from omegaconf import DictConfig, OmegaConf
from optuna import Trial
from optuna.pruners import BasePruner, NopPruner
from optuna.samplers import BaseSampler

from attnlab.config import options
from attnlab.config.compose import check_sweeps, compose_run
from attnlab.config.hydra_versions import instantiate
from attnlab.errors import UsageError
from attnlab.files.run_directory import run_of
from attnlab.files.run_identity import identify, short_hash


class SearchPlan(NamedTuple):
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

    def trial_overrides(self, values: Mapping[str, Any]) -> list[str]:
        """Return the overrides of `attnlab train` for a trial."""
        return [*self.overrides, *to_overrides(values)]


def make_plan(overrides: list[str]) -> SearchPlan:
    """Separate the overrides into the search space, the settings of the search, and fixed settings.

    Overrides without a sweep search `tune.space`.
    """
    dashed = [word for word in overrides if word.startswith("-")]
    if dashed:
        raise UsageError(
            f"attnlab tune has no option {dashed[0]}: it takes settings only, see attnlab tune --help"
        )
    tune_overrides, space, fixed = [], {}, []
    for word, override in zip(overrides, _parse(overrides), strict=True):
        if override.key_or_group.partition(".")[0] == "tune":
            tune_overrides.append(word)
        elif override.is_sweep_override():
            space[override.get_key_element()] = override
        else:
            fixed.append(word)
    tune = _compose_tune(tune_overrides)
    check_sweeps([*space.values()])
    default_space = not space
    if default_space:
        listed = [f"{key}={sweep}" for key, sweep in (tune.space or {}).items()]
        space = {override.get_key_element(): override for override in _parse(listed)}
    if not space:
        raise UsageError(
            "Nothing to search: give a sweep such as attention=none,dot, see attnlab tune --help"
        )
    _check_space(space, fixed)
    if not any(word.startswith("name=") for word in fixed):
        fixed.append(f"name={compose_run(fixed).name}-tune")
    return SearchPlan(fixed, space, tune, compose_run(fixed), default_space)


def _parse(overrides: list[str]) -> list[Override]:
    parsed: list[Override] = OverridesParser.create().parse_overrides(overrides)
    return parsed


def _compose_tune(overrides: list[str]) -> DictConfig:
    """Return the tune group with these overrides, and check it."""
    group = next((word for word in overrides if word.startswith("tune=")), "tune=default")
    tune: DictConfig = compose_run([f"+{group}", *(word for word in overrides if word != group)]).tune
    settings = options.keys_of("tune", "default")
    if unknown := [str(key) for key in tune if key not in settings]:
        raise UsageError(f"Unknown setting 'tune.{unknown[0]}'.{options.suggest(unknown[0], settings)}")
    build_sampler(tune, tune.seed)
    build_pruner(tune)
    return tune


def _check_space(space: Mapping[str, Override], fixed: list[str]) -> None:
    """Check before any trial that every sweep can be searched, and that its settings and options exist."""
    trial = optuna.create_study().ask()  # in memory
    drawn = {key: suggest_value(trial, key, sweep) for key, sweep in space.items()}
    for key, sweep in space.items():
        for value in sweep.sweep_string_iterator() if sweep.is_choice_sweep() else [drawn[key]]:
            # With values of the other sweeps: a setting may exist only for the options of a swept group
            compose_run([*fixed, *to_overrides({**drawn, key: value})])


def build_sampler(tune: DictConfig, seed: int) -> BaseSampler:
    """Build the sampler of the search; raise `UsageError` if it cannot be built."""
    with _error_of("sampler", tune.sampler):
        sampler: BaseSampler = instantiate(tune.sampler)(seed=seed)
        return sampler


def build_pruner(tune: DictConfig) -> BasePruner:
    """Build the pruner of the search, which stops no trial if it is null."""
    with _error_of("pruner", tune.pruner):
        pruner: BasePruner = instantiate(tune.pruner) or NopPruner()
        return pruner


@contextmanager
def _error_of(section: str, node: Any) -> Iterator[None]:
    """Raise the errors of building a section of `tune` as `UsageError`."""
    name = f"tune.{section}"
    if not isinstance(node, DictConfig | None):
        raise UsageError(f"{name}={node}: it is a section; {name}._target_ is a class of Optuna")
    try:
        yield
    except (InstantiationException, TypeError, ValueError) as error:
        reason = " ".join(str(error.__cause__ or error).split())
        raise UsageError(f"{name}: {reason}; see {name}._target_ in Optuna's manual") from error


def suggest_value(trial: Trial, key: str, sweep: Override) -> str | int | float:
    """Return the trial's value of a setting; raise `UsageError` if Optuna cannot search this sweep."""
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


def to_overrides(values: Mapping[str, Any]) -> list[str]:
    """Return the values of settings as command-line overrides."""
    return [f"{key}={value}" for key, value in values.items()]
