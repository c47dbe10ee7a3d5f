"""Distinguishing variants that share a name, and detecting duplicates of a run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from attnlab.files.run_identity import identity
from attnlab.report.study import RunRecord, group_by_variant

SEPARATOR = " · "
"""Separates the name of a variant from the settings that distinguish it."""


def mark_duplicates(records: Sequence[RunRecord]) -> list[RunRecord]:
    """Mark all but one of the runs with the same configuration as broken; a finished run is kept."""
    kept: dict[str, RunRecord] = {}
    marked = []
    for record in sorted(records, key=lambda record: (not record.finished, record.directory)):
        key = json.dumps([record.variant, record.seed, _settings(record)], sort_keys=True, default=str)
        first = kept.setdefault(key, record) if record.config else record
        if first is not record:
            marked.append(replace(record, status="broken", error=f"duplicate of {first.directory}"))
        else:
            marked.append(record)
    return marked


def distinguish(records: Sequence[RunRecord]) -> list[RunRecord]:
    """Append to the variant of each run the settings in which runs of the same variant differ.

    The seed is not such a setting. For example "additive" becomes "additive · decoder.size=128".
    """
    named = [record for record in records if not record.config]
    for variant, runs in group_by_variant(record for record in records if record.config).items():
        settings = [_settings(run) for run in runs]
        names = _distinguishing(runs, settings)
        for run, values in zip(runs, settings, strict=True):
            parts = [variant, *(_format_setting(name, values.get(name), settings) for name in names)]
            named.append(replace(run, variant=SEPARATOR.join(parts)))
    return named


def _settings(record: RunRecord) -> dict[str, Any]:
    """Return the settings that determine the results, by dotted name, except the variant and the seed."""
    return {name: value for name, value in identity(record.config).items() if name not in ("variant", "seed")}


def _distinguishing(runs: Sequence[RunRecord], settings: Sequence[dict[str, Any]]) -> list[str]:
    """Return a minimal list of settings that distinguish the runs; `name` and classes are preferred.

    A further seed that equals the run's in every run (`data.seed=${seed}`) is not used.
    """
    names = dict.fromkeys(name for values in settings for name in values)
    chosen: list[str] = []
    groups = 1
    for name in sorted(names, key=lambda name: (name != "name", not name.endswith("_target_"))):
        if name.endswith("seed") and all(
            values.get(name) == run.seed for run, values in zip(runs, settings, strict=True)
        ):
            continue
        count = len({str([values.get(key) for key in (*chosen, name)]) for values in settings})
        if count > groups:
            chosen.append(name)
            groups = count
    return chosen


def _format_setting(name: str, value: Any, settings: Sequence[dict[str, Any]]) -> str:
    """Format as `name=value`; a `_target_` as the class name, if class names are unambiguous."""
    if not name.endswith("._target_"):
        return f"{name}={value if isinstance(value, str) else json.dumps(value, default=str)}"
    targets = {str(values.get(name)) for values in settings}
    classes = {target.rpartition(".")[2] for target in targets}
    shown = str(value).rpartition(".")[2] if len(classes) == len(targets) else value
    return f"{name.removesuffix('._target_')}={shown}"
