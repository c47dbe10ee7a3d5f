"""Scores and tests of a study as short Markdown tables, shared by summary.py files; see conditions.md."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd

from attnlab.metrics import registry
from attnlab.report import study_tables, tables
from attnlab.report.collect import collect
from attnlab.report.comparison import Comparison, compare
from attnlab.report.results_file import format_results, read_results
from attnlab.report.study import Study


def summarise(
    results: Path,
    runs: str | None,
    *,
    shown: Sequence[str],
    tested: Sequence[str],
    reference: str,
    parameters: bool = False,
) -> None:
    """Print the scores of all variants, and tests of each against the reference, from results.csv.

    With the folder of the run directories, results.csv is written first.
    """
    if runs is not None:
        results.write_text(format_results(collect([Path(runs)])))
    study = read_results(results)
    print(scores(replace(study, selected_metrics=shown), parameters=parameters))
    print(tests(compare(replace(study, selected_metrics=tested), reference=reference)), end="")


def scores(
    study: Study, *, parameters: bool = False, comparisons: Sequence[Comparison] = (), than: str = ""
) -> str:
    """Return Markdown with the scores of each variant over seeds, and its number of parameters if asked.

    Intervals over sentences and the notes that conditions.md has are left out. Differences of the variants
    to one other each, described by `than`, are columns of the table.
    """
    table = study_tables.scores_table(study)
    if parameters:
        table = with_parameters(table, study)
    over = f" over {study.noun}"
    columns = [name for name in table.text.columns if not name.endswith(over)]
    explained = (study_tables.INTERVALS, study_tables.OVER_SENTENCES.format(noun=study.noun))
    text, note = with_differences(table.text[columns], comparisons, than)
    return tables.markdown(text, [*(each for each in table.notes if each not in explained), *note])


def with_parameters(table: tables.Table, study: Study) -> tables.Table:
    """Append the number of parameters to a table with one row for each variant of the study."""
    counts = [runs[0].parameters for runs in study.by_variant().values()]
    counts += [None] * (len(table.text) - len(counts))  # macro averages
    texts = ["" if count is None else f"{count:,}" for count in counts]
    values = table.values.assign(parameters=pd.Series(counts, table.values.index, dtype=object))
    return replace(table, text=table.text.assign(parameters=texts), values=values)


def with_differences(
    text: pd.DataFrame, comparisons: Sequence[Comparison], than: str
) -> tuple[pd.DataFrame, list[str]]:
    """Add a column of differences for each metric to a table of variants, and return its note."""
    columns: dict[str, dict[str, str]] = {}
    for each in comparisons:
        column = columns.setdefault(f"{registry.metric(each.metric).heading}, minus {than}", {})
        column[each.variant] = difference(each)
    variants = text.index.get_level_values("variant")
    cells = {name: [column.get(variant, "") for variant in variants] for name, column in columns.items()}
    note = f"In brackets: 95 % intervals; after differences p{family(comparisons)}."
    return text.assign(**cells), [note] * bool(comparisons)


def tests(comparisons: Sequence[Comparison]) -> str:
    """Return Markdown with the differences of pairs of variants, a column for each metric."""
    if not comparisons:
        return ""
    references = {each.reference for each in comparisons}
    name = f"minus {references.pop()}" if len(references) == 1 else "difference"
    cells: dict[str, dict[str, str]] = {}
    for each in comparisons:
        pair = each.variant if name.startswith("minus") else f"{each.variant} minus {each.reference}"
        if each.over != "seeds":
            pair += f", over {each.over}"
        cells.setdefault(pair, {})[registry.metric(each.metric).heading] = difference(each)
    seeds = " or ".join(map(str, sorted({each.seeds for each in comparisons})))
    caption = f"Differences over {seeds} seeds, 95 % intervals, and p{family(comparisons)}:\n\n"
    text = pd.DataFrame.from_dict(cells, orient="index").fillna("").rename_axis(name)
    return caption + tables.markdown(text)


def family(comparisons: Sequence[Comparison]) -> str:
    """Describe the correction of p, if there are several tests."""
    size = max((each.family_size for each in comparisons), default=1)
    return f" (Holm, {size} tests)" if size > 1 else ""


def difference(comparison: Comparison) -> str:
    """Format a difference with its interval and p, such as "4.7 [3.1, 6.2] (0.021)"."""
    metric, p = registry.metric(comparison.metric), comparison.p_corrected
    numbers = (comparison.difference, comparison.low, comparison.high)
    mean, *ends = ("" if number is None else metric.number(number) for number in numbers)
    if p is None:
        return f"{mean} (no test)"
    return f"{mean} [{', '.join(ends)}] ({f'{p:.3f}' if p >= 0.001 else '< 0.001'})"
