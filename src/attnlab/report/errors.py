"""Tables of the errors of words, of a report and of `attnlab evaluate`."""

from collections.abc import Mapping
from pathlib import Path

import matplotlib as mpl
import pandas as pd

from attnlab.files.predictions import Prediction
from attnlab.files.table_file import format_csv
from attnlab.files.writing import write_atomically
from attnlab.metrics import registry
from attnlab.metrics.errors import VISIBLE, Errors, find_errors, groups_of
from attnlab.report.explorer import kept_attention, target_split
from attnlab.report.figures import ROW_HEIGHT, StudyFigure, Styles, label_ticks, new_figure
from attnlab.report.files import fix_layout
from attnlab.report.study import Study
from attnlab.report.style import STYLE_SHEET
from attnlab.report.tables import MISSING, Table

SHOWN = 10  # Rows of a variant in the tables of confusions and of wrong outputs

COLUMNS = {
    "confusions": ("Most frequent confusions of target tokens", {"count": 0}),
    "wrong": ("Wrong outputs of which the model was most sure", {"confidence": 2}),
    "groups": ("Right outputs by feature, and by known and unknown source", {"inputs": 0, "accuracy": 3}),
}
"""The caption of the table of each frame of `Errors`, and its numbers with their decimal places."""

NOTES = {
    "confusions": "Outputs of all seeds together. ∅: a missing or an additional token; aligned: source "
    "tokens with the largest attention weight of the output token, or for a missing one between those of its "
    "neighbours, or else of the token before it, where weights are stored. errors/*.csv have all rows.",
    "groups": "A known source is that of a training pair, with its features. errors/groups.csv also has "
    "lengths, and all features of a source together (cell).",
}


def errors_of_words(study: Study) -> dict[str, Errors]:
    """Return the errors of the variants with outputs whose sources are words, over all seeds together."""
    found: dict[str, Errors] = {}
    split = registry.split(study.metrics[0]) if study.metrics else ""
    for variant, runs in study.by_variant().items():
        if (tokenize := target_split(runs[0])) is None:
            continue
        outputs: list[Prediction] = []
        seen: list[bool | None] = []
        for run in runs:
            kept = {_key(each): each for _, stored in kept_attention([run]) for each in stored}
            decoded = [each for each in run.predictions.get(split, []) if each.references]
            outputs += [kept.get(_key(each), each) for each in decoded]
            seen += [each.index in run.seen[split] if split in run.seen else None for each in decoded]
        if outputs:
            lengths = (len(each.columns[0]) for each in outputs)
            found[variant] = find_errors(outputs, tokenize, groups_of(outputs, lengths, seen))
    return found


def _key(output: Prediction) -> tuple[int, str, str]:
    return output.index, output.source, output.hypothesis


def write_errors(errors: Mapping[str, Errors], folder: Path) -> None:
    """Write a CSV file for each table of `Errors`, with the rows of all variants."""
    for name in Errors._fields if errors else ():
        table = pd.concat(
            {variant: getattr(each, name) for variant, each in errors.items()}, names=["variant"]
        )
        write_atomically(folder / f"{name}.csv", format_csv(table.reset_index("variant")))


def error_tables(errors: Mapping[str, Errors]) -> list[Table]:
    """Build the tables of the errors of each variant; a table without rows is left out.

    The only evaluation of a table has the name "", which is not shown.
    """
    tables = []
    for name, (title, numbers) in COLUMNS.items():
        frames = {variant: getattr(each, name) for variant, each in errors.items()}
        if name == "groups":
            frames = {variant: _few(frame) for variant, frame in frames.items()}
        else:
            frames = {variant: frame.head(SHOWN) for variant, frame in frames.items()}
        frames = {variant: frame for variant, frame in frames.items() if len(frame)}
        if not frames:
            continue
        rows = pd.concat(frames, names=["variant"]).reset_index("variant")
        rows = rows.drop(columns=["right", *([] if any(frames) else ["variant"])], errors="ignore")
        if name == "confusions":
            tokens = ["expected", "output"]
            rows[tokens] = rows[tokens].replace(VISIBLE)
        values = rows.set_index([column for column in rows.columns if column not in numbers])
        text = pd.DataFrame(
            {
                column: [MISSING if pd.isna(value) else f"{value:.{digits}f}" for value in values[column]]
                for column, digits in numbers.items()
            },
            values.index,
        )
        notes = [NOTES[name]] if name in NOTES else []
        tables.append(Table(f"errors-{name}", title, text, values.astype(object), notes))
    return tables


def _few(groups: pd.DataFrame) -> pd.DataFrame:
    """Return the groups without cells, which are many, and lengths, which have a figure of their own."""
    return groups[~groups["kind"].isin(["cell", "length"])]


def error_figures(
    errors: Mapping[str, Errors], styles: Styles, study: Study | None = None
) -> list[StudyFigure]:
    """Draw the most frequent confusions of variants, and the accuracy of the most frequent groups.

    `study` are the runs of the variants, which have the same data.
    """
    confusions, groups, sizes = {}, {}, {}
    for variant, each in errors.items():
        edits = each.confusions.replace({"expected": VISIBLE, "output": VISIBLE})
        counts = edits.groupby(edits["expected"] + " > " + edits["output"])["count"].sum()
        confusions[variant] = 100 * counts / len(each.found)  # variants can have different numbers of seeds
        few = _few(each.groups)
        found = few.set_index(few["kind"] + " " + few["value"])
        groups[variant], sizes[variant] = 100 * found["accuracy"], found["inputs"]
    drawn = []
    for name, label, values, order in (
        ("confusions", "edits per 100 outputs", confusions, confusions),
        ("groups", "right outputs, in %", groups, sizes),
    ):
        rows = pd.DataFrame(order).sum(axis=1).nlargest(SHOWN).index
        if rows.empty:
            continue
        with mpl.rc_context(fname=STYLE_SHEET):
            figure, axes = new_figure(height=0.75 + ROW_HEIGHT * len(rows))
            for variant, column in pd.DataFrame(values).reindex(rows).items():
                style = styles[str(variant)]
                axes.plot(column, range(len(rows)), style.marker, color=style.colour, clip_on=False)
            label_ticks(axes.yaxis, rows)
            axes.set_ylim(len(rows) - 0.4, -0.6)
            axes.set_xlim(0, 100 if name == "groups" else None)
            axes.set_xlabel(label)
            fix_layout(figure)
        title, stem = COLUMNS[name][0], f"errors-{name}"
        if study is not None:
            title, stem = study.titled(title), stem + study.suffix
        caption = f"The {len(rows)} most frequent, of all seeds."
        drawn.append(StudyFigure(stem, title, caption, figure, [*values]))
    return drawn
