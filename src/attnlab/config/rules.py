"""Kinds of allowed values of settings: numbers in a range, choices, shares, lengths."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple


class Rule(NamedTuple):
    """Allowed values of a setting."""

    allows: Callable[[Any], bool]
    expected: str  # completes "must be …"


def whole(minimum: int, maximum: float = math.inf, *, other: tuple[Any, ...] = ()) -> Rule:
    """Allow whole numbers from `minimum` to `maximum`, and the values in `other`."""
    limits = f"≥ {minimum}" if math.isinf(maximum) else f"in [{minimum}, {maximum}]"
    return Rule(
        lambda value: _is_one_of(value, other) or (is_whole(value) and minimum <= value <= maximum),
        _with_others(f"a whole number {limits}", other),
    )


def number(text: str, *, null: bool = False) -> Rule:
    """Allow finite numbers in an interval in mathematical notation, such as "[0, 1)", "(0, inf)"."""
    low, high = (float(bound) for bound in text[1:-1].split(","))
    above, below = text[0] == "(" or math.isinf(low), text[-1] == ")"

    def allows(value: Any) -> bool:
        if value is None:
            return null
        if not _is_number(value):
            return False
        return bool((value > low if above else value >= low) and (value < high if below else value <= high))

    if math.isinf(high):
        expected = "a number" if math.isinf(low) else f"a number {'>' if above else '≥'} {low:g}"
    else:
        expected = f"a number in {text}"
    return Rule(allows, _with_others(expected, (None,) if null else ()))


def choice(*options: Any) -> Rule:
    """Allow these values only."""
    shown = [show(option) for option in options]
    expected = shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} or {shown[-1]}"
    return Rule(lambda value: _is_one_of(value, options), expected)


def share_or_count(*other: Any) -> Rule:
    """Allow a share of the batches (a fraction up to 1.0), a number of batches, and the values in `other`."""

    def allows(value: Any) -> bool:
        return _is_one_of(value, other) or (
            _is_number(value) and value > 0 and (is_whole(value) or value <= 1)
        )

    return Rule(allows, _with_others("a share in (0, 1] or a whole number of batches ≥ 1", other))


def is_duration(value: Any) -> bool:
    """Return whether a value is a training time of Lightning, or null."""
    return value is None or isinstance(value, Mapping) or bool(re.fullmatch(r"\d+(:\d+){3}", str(value)))


def is_devices(value: Any) -> bool:
    """Return whether a value is a number or a list of devices."""
    numbers = value if isinstance(value, list) else str(value).split(",")
    return value in ("auto", -1, "-1") or (
        bool(numbers)
        and all(re.fullmatch(r"\d+", str(number).strip()) for number in numbers)
        and (isinstance(value, list) or "," in str(value) or int(str(value)) >= 1)
    )


def is_lengths(value: Any) -> bool:
    """Return whether a value is a shortest and a longest length."""
    return (
        isinstance(value, list)
        and len(value) == 2
        and all(map(is_whole, value))
        and 1 <= value[0] <= value[1]
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def is_whole(value: Any) -> bool:
    """Return whether a value is an int, and not a bool."""
    return isinstance(value, int) and not isinstance(value, bool)


def _is_one_of(value: Any, options: tuple[Any, ...]) -> bool:
    """Return whether a value is one of the options; unlike for `in`, 1 is not True."""
    return any(type(value) is type(option) and value == option for option in options)


def _with_others(expected: str, other: tuple[Any, ...]) -> str:
    return " or ".join([expected, *(show(value) for value in other)])


def show(value: Any) -> str:
    """Format a value as it is typed in an override: null, true, [1, 2]."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
