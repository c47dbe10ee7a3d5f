"""The jobs of a sweep: every combination of values, in which some settings change together. Imports no torch.

`zip(encoder.size=64,128 decoder.size=128,256)` is two jobs, not four: the first values of both settings, and
the second ones.
"""

import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Glob, Override

from attnlab.config.options import key_of, options_of
from attnlab.errors import UsageError

Axis = dict[str, list[str]]
"""Settings that change together, with the override of each job: {"seed": ["seed=0", "seed=1"]}."""

Further = Mapping[str, Mapping[str, Sequence[str]]]
"""Further overrides by setting and value: {"model": {"mingru": ["encoder=mingru"]}}."""

ZIP = re.compile(r"zip\((.*)\)", re.DOTALL)

NEXT_SETTING = re.compile(r"\s+(?=[^\s=,]+=)")  # Space between two settings of `zip(…)`


def split_zip(word: str) -> list[str] | None:
    """Return the overrides inside `zip(…)`, an argument of the command line; None for other arguments."""
    zipped = ZIP.fullmatch(word)
    return None if zipped is None else NEXT_SETTING.split(zipped[1].strip())


def list_jobs(
    params: Mapping[str, str], zips: Sequence[Mapping[str, str]], further: Further, arguments: Sequence[str]
) -> list[list[str]]:
    """Return the overrides of each job.

    `params` and `zips` are the sweeps of a study by setting. `arguments` are overrides of the command line
    and `zip(…)`, which replace sweeps of the same settings.
    """
    axes = [_values([f"{key}={values}"]) for key, values in params.items()]
    axes += [_zip_values([f"{key}={values}" for key, values in each.items()]) for each in zips]
    given = [
        _values([word]) if (zipped := split_zip(word)) is None else _zip_values(zipped) for word in arguments
    ]
    replaced = set().union(*given)
    axes = [{key: values for key, values in axis.items() if key not in replaced} for axis in axes]
    choices = [list(zip(*axis.values(), strict=True)) for axis in [*axes, *given] if axis]
    return [expand([*itertools.chain(*job)], further) for job in itertools.product(*choices)]


def split_space(
    params: Mapping[str, str], arguments: Sequence[str], compare: Sequence[str]
) -> tuple[dict[str, Override], list[str]]:
    """Return the sweeps of a hyper-parameter search by setting, and the other overrides.

    `arguments` replace sweeps of the same settings in `params`. Those of `compare` are not searched.
    """
    words = [*(f"{key}={values}" for key, values in params.items()), *arguments]
    given = {key_of(each): each for each in OverridesParser.create().parse_overrides(words)}
    if missing := [key for key in compare if key not in given]:
        raise UsageError(f"hydra.sweeper.compare: {missing[0]} has no values: give {missing[0]}=A,B")
    searched = [key for key, each in given.items() if each.is_sweep_override() and key not in compare]
    space = {given[key].get_key_element().removeprefix("++"): given[key] for key in searched}
    return space, [str(each.input_line) for key, each in given.items() if key not in searched]


def expand(job: Sequence[str], further: Further) -> list[str]:
    """Return the overrides of a job with those that its values stand for."""
    given = dict(override.lstrip("+").split("=", maxsplit=1) for override in job)
    added = []
    for key, values in further.items():
        by_value = {str(value): words for value, words in values.items()}
        if given.get(key) not in by_value:
            raise UsageError(f"{key}={given.get(key)}: choose from {', '.join(by_value)}")
        added += [word for word in by_value[given[key]] if word.partition("=")[0] not in given]
    return [*added, *job]


def _zip_values(overrides: Sequence[str]) -> Axis:
    """Return the values of settings that change together."""
    axis = _values(overrides)
    counts = {key: len(values) for key, values in axis.items()}
    if len(set(counts.values())) > 1 or len(axis) < len(overrides):
        listed = ", ".join(f"{key} has {count}" for key, count in counts.items())
        raise UsageError(
            f"zip({' '.join(overrides)}): each setting once, and the same number of values; {listed}"
        )
    return axis


def _values(overrides: Sequence[str]) -> Axis:
    parsed = OverridesParser.create().parse_overrides([*overrides])
    return {key_of(override): _single_values(override) for override in parsed}


def _single_values(override: Override) -> list[str]:
    """Return an override of one value for each value of a sweep."""
    key = override.get_key_element()
    value: Any = override.value()
    if isinstance(value, Glob):  # Hydra would not find the options of the user's folders
        names = value.filter(options_of(str(override.key_or_group)))
        if not names:
            raise UsageError(f"{override.input_line}: no option has such a name")
        return [f"{key}={name}" for name in names]
    if not override.is_sweep_override():
        return [f"{key}={override.get_value_element_as_str()}"]
    if not override.is_discrete_sweep():
        raise UsageError(
            f"{override.input_line}: a sweep needs a list of values; hydra/sweeper=optuna searches intervals"
        )
    return [f"{key}={value}" for value in override.sweep_string_iterator()]
