"""Errors of words: how the outputs of each variant differ from the references, as tables of a report."""

from collections.abc import Sequence

import pandas as pd

from attnlab.files.predictions import Prediction
from attnlab.metrics import registry
from attnlab.metrics.errors import Errors, find_errors
from attnlab.report.explorer import kept_attention, target_split
from attnlab.report.study import RunRecord, Study
from attnlab.report.tables import MISSING, Table

SHOWN = 10
"""Rows of a variant in the tables of confusions and of wrong outputs."""

COLUMNS = {
    "confusions": ("Most frequent confusions of target tokens", {"count": 0}),
    "wrong": ("Wrong outputs of which the model was most sure", {"confidence": 2}),
    "groups": ("Right outputs by feature", {"inputs": 0, "accuracy": 3}),
}
"""The caption of the table of each frame of `Errors`, and its numbers with their decimal places."""

NOTE = (
    "Outputs of all seeds together. ∅: a missing or an additional token; aligned: source tokens with the "
    "largest attention weight of the output token, where weights are stored."
)


def error_tables(study: Study) -> list[Table]:
    """Build the tables of the errors of all variants whose sources are words, which have errors."""
    found: dict[str, Errors] = {}
    for variant, runs in study.by_variant().items():
        split = target_split(runs[0])
        metrics = [registry.metric(name).split for name in study.metrics[:1]]
        outputs = [each for run in runs for name in metrics for each in run.predictions.get(name, [])]
        outputs = _with_attention(runs, [each for each in outputs if each.references])
        if split is not None and outputs:
            found[variant] = find_errors(outputs, split, {"feature": [each.features for each in outputs]})
    return [table for name in COLUMNS for table in _table(name, found)]


def _with_attention(runs: Sequence[RunRecord], outputs: Sequence[Prediction]) -> list[Prediction]:
    """Replace the outputs of which the weights are stored by their records with weights."""
    kept = {_key(each): each for _, stored in kept_attention(runs) for each in stored}
    return [kept.get(_key(each), each) for each in outputs]


def _key(output: Prediction) -> tuple[int, str, str]:
    return output.index, output.source, output.hypothesis


def _table(name: str, errors: dict[str, Errors]) -> list[Table]:
    """Return the table of one frame of each variant; an empty list if it has no rows."""
    title, numbers = COLUMNS[name]
    frames = {
        variant: getattr(each, name).head(None if name == "groups" else SHOWN)
        for variant, each in errors.items()
    }
    frames = {variant: frame for variant, frame in frames.items() if len(frame)}
    if not frames:
        return []
    rows = pd.concat(frames, names=["variant"]).reset_index("variant")
    rows = rows.drop(columns=["kind", "right"], errors="ignore")
    labels = [column for column in rows.columns if column not in numbers]
    tokens = [column for column in ("expected", "output") if name == "confusions"]
    rows[tokens] = rows[tokens].replace({"": "∅", " ": "␣"})
    values = rows.set_index(labels)
    text = pd.DataFrame(
        {
            column: [MISSING if pd.isna(value) else f"{value:.{digits}f}" for value in values[column]]
            for column, digits in numbers.items()
        },
        values.index,
    )
    return [
        Table(f"errors-{name}", title, text, values.astype(object), [NOTE] if name == "confusions" else [])
    ]
