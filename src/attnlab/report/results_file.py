"""The file results.csv: one line per run in full precision, from which tables are computed.

It has no outputs. The ends of the bootstrap interval over sentences of each main metric are columns of their
own, with the same values in all lines of a variant.
"""

import csv
import io
from pathlib import Path
from typing import Any

from attnlab.errors import UserError
from attnlab.files.table_file import escape_formula, unescape_formula
from attnlab.report.record import RunRecord
from attnlab.report.resampling import interval_over_sentences
from attnlab.report.study import Study

TIMES = ("seconds", "seconds_per_step", "tokens_per_second")
COSTS = {name: name for name in ("parameters", "steps", *TIMES)} | {"peak_memory_bytes": "peak_memory"}
"""Columns of the costs of a run, and its attributes that they hold; those not in `TIMES` are whole."""

LOW, HIGH = " over sentences, low", " over sentences, high"
"""Ends of the names of the columns with the ends of intervals over sentences."""


def format_results(study: Study) -> str:
    """Return CSV of every run, finished or not: scores, costs, commit, package versions and processor."""
    intervals = {
        (variant, metric): interval
        for variant, runs in study.by_variant().items()
        for metric in study.metrics
        if (interval := interval_over_sentences(runs, metric)) is not None
    }
    names = [name + end for name in sorted({metric for _, metric in intervals}) for end in (LOW, HIGH)]
    metrics = sorted({name for run in study.runs for name in run.scores})
    rows = []
    for run in study.runs:
        row: dict[str, object] = {"variant": run.variant, "seed": run.seed, "status": run.status}
        row |= {name: run.scores.get(name) for name in metrics}
        row |= dict.fromkeys(names)
        for (variant, metric), (low, high) in intervals.items():
            if variant == run.variant:
                row |= {metric + LOW: low, metric + HIGH: high}
        row |= {column: getattr(run, name) for column, name in COSTS.items()}
        versions = " ".join(f"{package}={version}" for package, version in run.versions.items())
        row |= {"commit": run.commit, "versions": versions, "cpu": run.cpu}
        rows.append({**row, "directory": run.directory.name, "error": run.error})
    text = io.StringIO()
    lines = ([*rows[0]], *(row.values() for row in rows))
    csv.writer(text, lineterminator="\n").writerows(map(escape_formula, line) for line in lines)
    return text.getvalue()


def read_results(path: Path) -> Study:
    """Read a file that `format_results` wrote; the study is named after its folder."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            runs = [_parse(line, path.parent.name) for line in csv.DictReader(file)]
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}. Give a results.csv of attnlab report") from error
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path} is not a results.csv of attnlab report: {error!r}") from error
    return Study(path.parent.name, runs)


def _parse(row: dict[str, str], study: str) -> RunRecord:
    """Return the run of one line; names of metrics contain a slash."""
    texts = {name: unescape_formula(cell) for name, cell in row.items()}
    values = {name: float(cell) for name, cell in row.items() if "/" in name and cell}
    numbers = {name: float(row[column]) if row[column] else None for column, name in COSTS.items()}
    costs: dict[str, Any] = {
        name: value if value is None or name in TIMES else int(value) for name, value in numbers.items()
    }
    return RunRecord(
        directory=Path(texts["directory"]),
        study=study,
        variant=texts["variant"],
        seed=int(row["seed"]),
        status=row["status"],
        error=texts["error"] or None,
        scores={name: value for name, value in values.items() if not name.endswith((LOW, HIGH))},
        over_sentences={
            name.removesuffix(LOW): (value, values[name.removesuffix(LOW) + HIGH])
            for name, value in values.items()
            if name.endswith(LOW)
        },
        commit=row["commit"] or None,
        versions=dict(part.split("=", 1) for part in row["versions"].split()),
        cpu=row["cpu"] or None,
        **costs,
    )
