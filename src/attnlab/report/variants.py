"""Names of variants and data sets: the settings, data and code in which runs differ."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import product, takewhile
from math import inf
from pathlib import Path
from typing import Any

from attnlab.report.record import RunRecord

SEPARATOR = " · "  # Separates the name of a variant from the settings that distinguish it


def group_by_variant(runs: Iterable[RunRecord]) -> dict[str, list[RunRecord]]:
    """Group runs by variant, in the order of the runs."""
    groups: dict[str, list[RunRecord]] = {}
    for run in runs:
        groups.setdefault(run.variant, []).append(run)
    return groups


def mark_duplicates(runs: Iterable[RunRecord]) -> list[RunRecord]:
    """Mark all but one of the runs with equal settings, data and code as broken; a finished one is kept."""
    kept: dict[str, list[RunRecord]] = {}
    marked = []
    for run in sorted(runs, key=lambda run: (not run.finished, run.directory)):
        key = json.dumps([run.variant, run.seed, run.settings], sort_keys=True, default=str)
        earlier = kept.setdefault(key, []) if run.config else []
        equal = (each for each in earlier if not run.data or (each.data, each.code) == (run.data, run.code))
        first = next(equal, run)
        if first is run:
            earlier.append(run)
        error = f"duplicate of {first.directory}"
        marked.append(run if first is run else replace(run, status="broken", error=error))
    return marked


def distinguish_variants(runs: Sequence[RunRecord]) -> list[RunRecord]:
    """Append to the variant of each run the settings in which runs of the same variant differ.

    The seed is not such a setting. For example "additive" becomes "additive · decoder.size=128".
    """
    named = [run for run in runs if not run.config]
    for variant, group in group_by_variant(run for run in runs if run.config).items():
        for run, suffix in zip(group, describe(group), strict=True):
            named.append(replace(run, variant=SEPARATOR.join(filter(None, [variant, suffix]))))
    return named


def separate_changed_runs(runs: Sequence[RunRecord]) -> list[RunRecord]:
    """Append to the variant of each finished run a digest of the data, or code, in which its runs differ.

    For example "additive" becomes "additive · test data 1a2b3c4d" if a file was edited between two runs, and
    "additive · Additive code 1a2b3c4d" if the class was. Data that follow the seed of the run
    (`data.seed=${seed}`) are data of one variant.
    """
    suffixes: dict[Path, list[str]] = {}
    for group in group_by_variant(run for run in runs if run.data or run.code).values():
        follows_seed = _follow_seed(group)
        records = [
            ({} if follows_seed else {f"{split} data": digest for split, digest in run.data.items()})
            | {f"{part.rpartition('.')[2]} code": digest for part, digest in run.code.items()}
            for run in group
        ]
        for name in dict.fromkeys(name for record in records for name in record):
            if len({record.get(name) for record in records}) > 1:
                for run, record in zip(group, records, strict=True):
                    suffixes.setdefault(run.directory, []).append(f"{name} {record.get(name, 'none')[:8]}")
    return [
        replace(run, variant=SEPARATOR.join([run.variant, *suffixes.get(run.directory, ())])) for run in runs
    ]


def _follow_seed(runs: Sequence[RunRecord]) -> bool:
    """Return whether the seed of the data of each run is that of the run."""
    names = [name for name in runs[0].config.get("data", {}) if name.endswith("seed")]
    return len({run.seed for run in runs}) > 1 and any(
        all(run.config["data"].get(name) == run.seed for run in runs) for name in names
    )


def split_by_data(variants: Mapping[str, Sequence[RunRecord]]) -> dict[str, list[RunRecord]]:
    """Return the runs of the variants that were evaluated on the same data, by a name of the data.

    Empty if these are all runs. Runs that recorded no digests count as evaluated on the data of the others.
    """
    groups: list[list[Sequence[RunRecord]]] = []
    for runs in variants.values():
        same = next((group for group in groups if _have_same_data(runs, group[0])), None)
        if same is None:
            groups.append([runs])
        else:
            same.append(runs)
    parts = [[run for runs in group for run in runs] for group in groups]
    named = zip(_data_names(parts), parts, strict=True) if len(parts) > 1 else ()
    return dict(sorted(named, key=lambda item: sort_key(item[0].rpartition("=")[2])))


def sort_key(value: str) -> tuple[float | str, ...]:
    """Return the numbers in a text, so that 10 is after 5; texts with letters follow, starting with inf."""
    if re.search(r"[^\W\d_]", value):
        return inf, value
    return tuple(map(float, re.findall(r"-?\d+(?:\.\d+)?", value)))


def _have_same_data(ours: Sequence[RunRecord], theirs: Sequence[RunRecord]) -> bool:
    """Return whether runs have the same pairs in the splits that both evaluated; data may follow the seed."""
    pairs = [(a, b) for a in ours for b in theirs if a.seed == b.seed] or [*product(ours, theirs)]
    for a, b in pairs:
        left, right = a.evaluated_data, b.evaluated_data
        shared = left.keys() & right.keys()
        if left and right and not (shared and all(left[split] == right[split] for split in shared)):
            return False
    return True


def data_settings(parts: Sequence[Sequence[RunRecord]]) -> list[str]:
    """Return the settings that are equal within the runs of each data set and differ between data sets.

    Of these, only those of the data, the name of the study, and texts at the top level, such as a language.
    """
    settings = [[run.settings for run in runs] for runs in parts]
    every = [run for runs in settings for run in runs]
    chosen = []
    for name in dict.fromkeys(name for run in every for name in run):
        is_text = "." not in name and all(isinstance(run.get(name), str) for run in every)
        values = [{json.dumps(run.get(name), default=str) for run in runs} for runs in settings]
        if (name.startswith("data.") or is_text) and all(len(each) == 1 for each in values):
            chosen += [name] * (len(set.union(*values)) > 1)
    return chosen


def _data_names(parts: Sequence[Sequence[RunRecord]]) -> list[str]:
    """Return a name of each data set: the settings that distinguish it, else the digest of its test split."""
    ordered = sorted(data_settings(parts), key=lambda name: ("." in name, name == "name"))
    names = describe([runs[0] for runs in parts], ordered)
    for index, name in enumerate(names):
        if names.count(name) > 1 or not name:
            split, digest = next(iter(parts[index][0].evaluated_data.items()), ("", ""))
            names[index] = SEPARATOR.join(filter(None, [name, f"{split} data {digest[:8]}"]))
    return names


def common_name(variants: Sequence[str]) -> str:
    """Return the common beginning of names, or else their end: "dot" of "dot-length5" and "dot-length10"."""
    names = [re.findall(r"\w+|\W+", variant.partition(SEPARATOR)[0]) for variant in variants]
    beginning, end = (
        [words[0] for words in takewhile(lambda words: len({*words}) == 1, zip(*parts, strict=False))]
        for parts in (names, [parts[::-1] for parts in names])
    )
    return "".join(beginning or end[::-1]).strip(" -_.,;:/=+")


def describe(runs: Sequence[RunRecord], ordered: Sequence[str] | None = None) -> list[str]:
    """Return a minimal list of settings that distinguish the runs, as text for each run.

    `ordered` are the settings to choose from, the preferred first; by default all, with `name` and classes
    first. A further seed that equals the run's in every run (`data.seed=${seed}`) is not used.
    """
    settings = [run.settings for run in runs]
    names = dict.fromkeys(name for values in settings for name in values)
    chosen: list[str] = []
    groups = 1
    preferred = sorted(names, key=lambda name: (name != "name", not name.endswith("_target_")))
    for name in preferred if ordered is None else ordered:
        pairs = zip(runs, settings, strict=True)
        if name.endswith("seed") and all(values.get(name) == run.seed for run, values in pairs):
            continue
        count = len({str([values.get(key) for key in (*chosen, name)]) for values in settings})
        if count > groups:
            chosen.append(name)
            groups = count
    return [
        SEPARATOR.join(_format_setting(name, values.get(name), settings) for name in chosen)
        for values in settings
    ]


def _format_setting(name: str, value: Any, settings: Sequence[dict[str, Any]]) -> str:
    """Format as `name=value`; a `_target_` as the class name, if class names are unambiguous."""
    if not name.endswith("._target_"):
        return f"{name}={value if isinstance(value, str) else json.dumps(value, default=str)}"
    targets = {str(values.get(name)) for values in settings}
    classes = {target.rpartition(".")[2] for target in targets}
    shown = str(value).rpartition(".")[2] if len(classes) == len(targets) else value
    return f"{name.removesuffix('._target_')}={shown}"
