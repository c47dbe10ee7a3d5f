"""Checks of the sweeps of a command, before Hydra composes its jobs. Imports no torch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from hydra.core.override_parser.types import Override, RangeSweep

from attnlab.errors import UsageError


def check_sweeps(overrides: Sequence[Override]) -> None:
    """Refuse sweeps without a value, and several sweeps over one setting, of which Hydra would use the last.

    Raises:
        UsageError: at overrides such as `seed=range(0,0)` or `seed=0,1 seed=2,3`.
    """
    for override in overrides:
        if isinstance(override.value(), RangeSweep) and not [*override.sweep_string_iterator()]:
            raise UsageError(f"{override.input_line}: the sweep is empty; range(START,STOP) has no STOP")
    for key, count in Counter(override.key_or_group for override in overrides).items():
        given = [override for override in overrides if override.key_or_group == key]
        if count > 1 and any(override.is_sweep_override() for override in given):
            words = " ".join(str(override.input_line) for override in given)
            values = ",".join(override.get_value_string() for override in given)
            raise UsageError(f"{words}: give all values of {key} in one sweep, {key}={values}")
