"""Overrides of a sweep, checked and completed before Hydra composes its jobs. Imports no torch."""

from __future__ import annotations

from collections.abc import Sequence

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, RangeSweep
from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException

from attnlab.config.compose import all_keys, compose_run
from attnlab.config.options import options_of
from attnlab.errors import UsageError, UserError


def check_sweeps(overrides: Sequence[Override]) -> None:
    """Refuse sweeps without a value.

    Raises:
        UsageError: at an override such as `seed=range(0,0)`.
    """
    for override in overrides:
        if isinstance(override.value(), RangeSweep) and not [*override.sweep_string_iterator()]:
            raise UsageError(f"{override.input_line}: the sweep is empty; range(START,STOP) has no STOP")


def with_settings_of_swept_options(words: Sequence[str]) -> list[str]:
    """Return the overrides of a sweep, in which settings that only its options have are sweeps of one value.

    Hydra first composes a sweep without its options, and refuses `data.path=FILE` beside
    `experiment=eng_deu,eng_mar` because the default data has no path. Sweeps are applied to each job.

    Raises:
        UsageError: at a sweep without a value.
        HydraException: at an override that cannot be parsed.
    """
    overrides = OverridesParser.create().parse_overrides([*words])
    check_sweeps(overrides)
    groups = {override.key_or_group for override in overrides if options_of(override.key_or_group)}
    swept = {override.key_or_group for override in overrides if override.is_sweep_override()}
    if not groups & swept:
        return [*words]
    fixed = [str(each.input_line) for each in overrides if each.key_or_group in groups - swept]
    try:
        keys = all_keys(compose_run(fixed))
    except (HydraException, OmegaConfBaseException, UserError):
        return [*words]  # Hydra reports the error
    return [
        f"{override.key_or_group}=choice({word.partition('=')[2]})"
        if _changes_a_setting(override) and override.key_or_group not in {*keys, *groups, *swept}
        else word
        for word, override in zip(words, overrides, strict=True)
    ]


def _changes_a_setting(override: Override) -> bool:
    """Return whether the override gives a value to a setting of a run that it neither adds nor removes."""
    added = override.is_add() or override.is_force_add() or override.is_delete()
    return not added and not override.key_or_group.startswith("hydra.") and override.value() != ""
