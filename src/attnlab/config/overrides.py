"""Checks of overrides whose errors Hydra would report in a stack trace or not at all. Imports no torch."""

from collections import Counter
from collections.abc import Iterable, Sequence

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, QuotedString, RangeSweep
from hydra.errors import HydraException

from attnlab.config.options import options_of
from attnlab.errors import UsageError


def check_overrides(overrides: Iterable[str]) -> None:
    """Refuse overrides of groups that name no option; Hydra would end with a stack trace."""
    for word in overrides:
        group = word.lstrip("+").partition("=")[0].partition("@")[0]
        options = options_of(group)
        if not options or word.startswith(("~", "-")):
            continue
        try:
            override = OverridesParser.create().parse_override(word)
        except HydraException:
            continue  # Hydra reports it
        if override.is_sweep_override():
            continue
        value = override.value()
        chosen = value if isinstance(value, list) else [value]
        if not chosen or not all(
            isinstance(each, str | QuotedString) and str(each).strip() for each in chosen
        ):
            raise UsageError(f"{word}: choose an option of {group}: {', '.join(options)}")


def check_sweeps(overrides: Sequence[Override]) -> None:
    """Refuse sweeps without a value, and several sweeps over one setting: Hydra would use the last one."""
    for override in overrides:
        if isinstance(override.value(), RangeSweep) and not [*override.sweep_string_iterator()]:
            raise UsageError(f"{override.input_line}: the sweep is empty; range(START,STOP) has no STOP")
    for key, count in Counter(override.key_or_group for override in overrides).items():
        given = [override for override in overrides if override.key_or_group == key]
        if count > 1 and any(override.is_sweep_override() for override in given):
            words = " ".join(str(override.input_line) for override in given)
            values = ",".join(override.get_value_string() for override in given)
            raise UsageError(f"{words}: give all values of {key} in one sweep, {key}={values}")
