"""Runs, scores and curves as pandas data frames. Imports no torch."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnlab.errors import UserError
from attnlab.files.metrics_file import read_metrics
from attnlab.files.run_directory import Run
from attnlab.files.run_identity import NEUTRAL, identity
from attnlab.report.collect import collect

if TYPE_CHECKING:
    import pandas as pd


def results(*paths: str | Path) -> pd.DataFrame:
    """Return every run at or below the paths as a row: its state, scores and settings.

    Columns: `name`, `variant`, `seed`, `status`, `error`, `directory`, `parameters`, `steps`, `seconds`; each
    final metric by its name, such as `test/bleu`; each setting by its dotted name, such as `encoder.size`,
    except those that do not change the results. Values that a run lacks are missing (NaN).

    Args:
        paths: run directories, or folders that contain some (default: `outputs`).

    Raises:
        UserError: if a path does not exist or contains no run.
    """
    import pandas as pd

    study = collect([Path(path) for path in paths or ("outputs",)])
    facts = ("variant", "seed", "status", "error", "directory", "parameters", "steps", "seconds")
    rows: list[dict[str, Any]] = [
        {"name": run.study, **{name: getattr(run, name) for name in facts}, "directory": str(run.directory)}
        for run in study.runs
    ]
    settings = [identity(record.config) for record in study.runs]
    scores = sorted({name for record in study.runs for name in record.scores})
    names = dict.fromkeys(name for values in settings for name in values)
    for row, record, values in zip(rows, study.runs, settings, strict=True):
        row.update({name: record.scores.get(name) for name in scores})
        row.update({name: values.get(name, NEUTRAL.get(name)) for name in names if name not in row})
    return pd.DataFrame(rows)


def history(run: str | Path | Run) -> pd.DataFrame:
    """Return the logged metrics of a run: one column per metric, indexed by training step.

    A metric is missing (NaN) at steps at which it was not logged: `history(run)["val/loss"].dropna()`.

    Raises:
        UserError: if there is no `metrics.csv`.
    """
    import pandas as pd

    path = (run if isinstance(run, Run) else Run(Path(run).expanduser())).metrics
    if not path.is_file():
        raise UserError(f"{path} does not exist: give a run directory that has been trained")
    series = {name: dict(points) for name, points in read_metrics(path).items()}
    return pd.DataFrame(series).sort_index().rename_axis("step")
