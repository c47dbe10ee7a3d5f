"""Rules for submitted results of the benchmark, and comparison of a repeated training."""

import re
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from attnlab.metrics import registry
from attnlab.report.benchmark.scores import LEAST_SEEDS, REFERENCE, Cell, Results, Score, sentence_counts

CHANGING = ("marathi",)  # Tasks whose file is replaced by its publisher: results may lack them

SIZE_TOLERANCE = 0.05
"""Largest difference of the number of parameters from that of the reference, as a fraction."""

CONDITIONS = ("commit", "cpu", "versions")
"""Runs with equal settings have equal outputs if these are equal too."""

ALLOWED = re.compile(
    r"[+~]*(attention(@attention\.[\w.]+)?[.=]|paths\.output=|logger=\w+$|hydra[./]launcher[.=])"
)
"""Settings that a submission may change: the attention, the output folder, the logger and the launcher."""

FIXED = ("metric", "inputs", "parameters", "steps", "data", "train", "code")
"""Columns that must be equal if a run is trained again on another machine or with another version."""


def differences(results: Results, again: Score) -> list[str]:
    """Return what differs between a score and that of the same run trained again; empty if nothing does.

    The commit, processor and versions are only compared if something else differs.
    """
    first = results.scores.get(again.cell, {}).get(again.model, {}).get(again.seed)
    if first is None:
        return [f"{again.split}: the file lacks this test set"]

    def different(*names: str) -> list[str]:
        return [
            f"different {name}: {getattr(first, name)}, again: {getattr(again, name)}"
            for name in names
            if getattr(first, name) not in ("", getattr(again, name))
        ]

    lines = different("score", *FIXED, "outputs")
    if not lines and np.array_equal(first.counts, again.counts):
        return []
    by_seed = results.scores[again.cell][again.model]
    seeds = ", ".join(f"{seed}: {each.score:.1f}" for seed, each in sorted(by_seed.items()))
    lines = lines or [f"{again.split}: different inputs are right"]
    return [*lines, *different(*CONDITIONS), f"{again.split}: scores by seed in the file: {seeds}"]


def other_conditions(results: Results, again: Score) -> bool:
    """Return whether other outputs can be due to another commit, processor or version."""
    first = results.scores.get(again.cell, {}).get(again.model, {}).get(again.seed)
    return (
        first is not None
        and all(getattr(first, name) in ("", getattr(again, name)) for name in FIXED)
        and any(getattr(first, name) != getattr(again, name) for name in CONDITIONS)
    )


def violations(ours: Results, stored: Results) -> list[str]:
    """Return which rules of the suite the results of a mechanism break."""
    rows, given = [*ours], _given_counts(stored)
    reference = {
        cell: next(iter(by[REFERENCE].values())) for cell, by in stored.scores.items() if REFERENCE in by
    }
    places: dict[str, dict[str, None]] = {}  # test sets by what is wrong there
    for each in rows:
        first = reference.get(each.cell)
        if first is not None and (each.task not in CHANGING or each.data == first.data):  # else not compared
            for problem in _of_row(each, first, given[first.metric]):
                places.setdefault(problem, {})[f"{each.task} ({each.split})"] = None
    by_row = [f"{problem}: {', '.join(found)}" for problem, found in places.items()]
    return [*_of_settings(rows, stored), *_of_seeds(rows, reference), *by_row]


def _of_settings(rows: Sequence[Score], stored: Results) -> list[str]:
    lines = [
        f"several values of {name}"
        for name in ("model", "overrides", "code")
        if len({getattr(each, name) for each in rows}) > 1
    ]
    taken = {each.model for each in rows} & {each.model for each in stored}
    lines += [f"{model} is a stored mechanism" for model in sorted(taken)]
    overrides = {text for each in rows for text in re.split(r" (?=[+~]*[\w@./]+=|~)", each.overrides)}
    if other := sorted(text for text in overrides if not ALLOWED.match(text)):
        lines.append(f"settings beside those of the attention: {' '.join(other)}")
    if varying := sorted(text for text in overrides if "${" in text):
        lines.append(f"settings that another setting or the environment can change: {' '.join(varying)}")
    if any("_target_=" in text for text in overrides) and not all(each.code for each in rows):
        lines.append("no digest of the code")
    return lines


def _of_seeds(rows: Sequence[Score], reference: Mapping[Cell, Score]) -> list[str]:
    lines, seeds = [], {each.seed for each in rows}
    if len(seeds) < LEAST_SEEDS or seeds != {*range(len(seeds))}:
        numbers = ", ".join(map(str, sorted(seeds)))
        lines.append(f"seeds {numbers}: {LEAST_SEEDS} or more are needed, without a gap from 0")
    present = {(*each.cell, each.seed) for each in rows}
    optional = {*CHANGING} - {each.task for each in rows}
    needed = {(*cell, seed) for cell in reference if cell[0] not in optional for seed in seeds}
    if missing := sorted({task for task, _, _ in needed - present}):
        lines.append(f"test sets or seeds are missing: {', '.join(missing)}")
    return lines


def _of_row(row: Score, reference: Score, given: NDArray[np.bool_]) -> list[str]:
    lines = []
    ratio = row.parameters / reference.parameters
    if abs(ratio - 1) > SIZE_TOLERANCE:
        lines.append(f"{ratio:.2f} of the parameters of {REFERENCE}")
    lines += [
        f"another value of {name}"
        for name in ("metric", "inputs", "steps", "data", "train")
        if getattr(row, name) != getattr(reference, name)
    ]
    lines += [
        f"no {name}"
        for name in ("outputs", "cpu", "versions")  # an installed package has no commit
        if not getattr(row, name)
    ]
    comparable = row.metric == reference.metric and row.counts.shape == reference.counts.shape
    if comparable and not _is_possible(row, reference, given):
        lines.append("counts that no outputs have")
    return lines


def _given_counts(stored: Results) -> dict[str, NDArray[np.bool_]]:
    """Return which counts [C] of each metric no output changes; all stored outputs have the same."""
    given: dict[str, NDArray[np.bool_]] = {}
    for cell in stored.scores:
        rows = [*stored.only([cell])]
        counts = np.stack([each.counts for each in rows])  # [R, N, C]
        equal = (counts == counts[0]).all(axis=(0, 1))  # on this test set, on which all outputs may be wrong
        given[rows[0].metric] = given.get(rows[0].metric, True) & equal
    return given


def _is_possible(row: Score, reference: Score, given: NDArray[np.bool_]) -> bool:
    """Return whether the counts of a row belong to the test set, and no input has a score above 100."""
    if (row.counts != reference.counts)[:, given].any():
        return False
    values = sentence_counts(row.metric).value(row.counts.astype(float))  # [N]
    return bool(registry.metric(row.metric).of_100(float(np.nanmax(values))) <= 100 + 1e-6)
