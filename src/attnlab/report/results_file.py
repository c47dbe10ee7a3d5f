"""The file results.csv: one line per run in full precision, from which tables are computed.

It has no outputs. The ends of the bootstrap interval over sentences of each main metric are columns of their
own, with the same values in all lines of a variant.
"""

import csv
import io
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from attnlab.errors import UserError
from attnlab.report.resampling import interval_over_sentences
from attnlab.report.study import RunRecord, Study

COSTS = ("parameters", "steps", "seconds", "seconds_per_step", "tokens_per_second", "peak_memory_bytes")
CODE = ("commit", "versions", "cpu", "directory", "error")

LOW, HIGH = " over sentences, low", " over sentences, high"
"""Ends of the names of the columns with the ends of intervals over sentences."""

FORMULA = re.compile(r"'*[=+\-@\t\r]")
"""Start of a text that a spreadsheet runs as a formula, or of one that is escaped already."""


def format_results(study: Study) -> str:
    """Return CSV of every run, finished or not: scores, costs, commit, package versions and processor."""
    metrics = sorted({name for run in study.runs for name in run.scores})
    intervals = {
        (variant, metric): interval
        for variant, runs in study.by_variant().items()
        for metric in study.metrics
        if (interval := interval_over_sentences(runs, metric)) is not None
    }
    with_interval = sorted({metric for _, metric in intervals})
    lines = [
        [
            *(run.variant, run.seed, run.status, *(run.scores.get(name) for name in metrics)),
            *(end for name in with_interval for end in intervals.get((run.variant, name), (None, None))),
            *(run.parameters, run.steps, run.seconds, run.seconds_per_step, run.tokens_per_second),
            *(run.peak_memory, run.commit),
            " ".join(f"{package}={version}" for package, version in run.versions.items()),
            *(run.cpu, run.directory.name, run.error),
        ]
        for run in study.runs
    ]
    ends = [name + end for name in with_interval for end in (LOW, HIGH)]
    return format_csv([["variant", "seed", "status", *metrics, *ends, *COSTS, *CODE], *lines])


def format_csv(lines: Iterable[Iterable[object]]) -> str:
    """Return CSV, without formulas; None is an empty cell."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(map(escape_formula, line) for line in lines)
    return text.getvalue()


def escape_formula(cell: object) -> object:
    """Put a "'" before a text that a spreadsheet would run as a formula."""
    return f"'{cell}" if isinstance(cell, str) and FORMULA.match(cell) else cell


def _unescape_formula(cell: str) -> str:
    return cell[1:] if cell.startswith("'") and FORMULA.match(cell[1:]) else cell


def read_results(path: Path) -> Study:
    """Read a file that `format_results` wrote; the study is named after its folder."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            runs = [_parse(line, path.parent.name) for line in csv.DictReader(file)]
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}. Give a results.csv of attnlab report") from error
    except (KeyError, ValueError) as error:
        raise UserError(f"{path} is not a results.csv of attnlab report: {error!r}") from error
    return Study(path.parent.name, runs)


def _parse(row: dict[str, str], study: str) -> RunRecord:
    """Return the run of one line; names of metrics contain a slash."""
    costs: dict[str, Any] = {name: float(row[name]) if row[name] else None for name in COSTS}
    counts: dict[str, Any] = {
        name.removesuffix("_bytes"): None if (value := costs.pop(name)) is None else int(value)
        for name in ("parameters", "steps", "peak_memory_bytes")
    }
    return RunRecord(
        directory=Path(_unescape_formula(row["directory"])),
        study=study,
        variant=_unescape_formula(row["variant"]),
        seed=int(row["seed"]),
        status=row["status"],
        error=_unescape_formula(row["error"]) or None,
        scores={
            name: float(value)
            for name, value in row.items()
            if "/" in name and value and not name.endswith((LOW, HIGH))
        },
        over_sentences={
            name.removesuffix(LOW): (float(value), float(row[name.removesuffix(LOW) + HIGH]))
            for name, value in row.items()
            if name.endswith(LOW) and value
        },
        commit=row["commit"] or None,
        versions=dict(part.split("=", 1) for part in row["versions"].split()),
        cpu=row["cpu"] or None,
        **counts,
        **costs,
    )
