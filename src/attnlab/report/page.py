"""The HTML page of a report: tables, figures and the attention explorer in one file."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from attnlab.files.writing import write_atomically
from attnlab.report import html as page
from attnlab.report.comparison import Comparison, by_question
from attnlab.report.explorer import Sentence, explorer_json, gather_sentences
from attnlab.report.figures import DASH_ARRAYS, MARKER_PATHS, StudyFigure, css_colour, styles_of, to_svg
from attnlab.report.study import Study, noun_of, unfinished_lines
from attnlab.report.style import VariantStyle, variant_styles
from attnlab.report.tables import Table

FOLDER = Path(__file__).parent


def write_page(
    study: Study,
    comparisons: Sequence[Comparison],
    tables: Sequence[Table],
    figures: Sequence[StudyFigure],
    path: Path,
    dashboards: Sequence[str] = (),
    errors: Sequence[Table] = (),
) -> None:
    """Write the report of a study as an HTML file, with links to its dashboards and tables of errors."""
    styles = styles_of(study)
    runs, sentences = gather_sentences(study)
    main_metrics = {part.metrics[0] for part in study.parts if part.metrics}
    of_models = {variant for variants in study.models.values() for variant in variants.values()}
    write_sections(
        path,
        title=study.name,
        lead=_count_runs(study),
        dashboards=dashboards,
        noun=study.noun,
        unfinished=unfinished_lines(study),
        findings=by_question(each for each in comparisons if each.metric in main_metrics),
        further=by_question(each for each in comparisons if each.metric not in main_metrics),
        tables=[table_section(table) for table in tables if len(table.text)],
        errors=[table_section(table) for table in errors],
        key=[_describe(name, style) for name, style in styles.items() if name and name not in of_models],
        figures=[figure_section(figure, styles.values()) for figure in figures],
        sentences=explorer_json(
            [_describe(variant, styles[variant], f"seed {seed}") for variant, seed in runs], sentences, "chrF"
        ),
    )


def write_explorer(sentences: Sequence[Sentence], variants: Sequence[str], title: str, path: Path) -> None:
    """Write a page with only the attention explorer; `variants` names the outputs of each sentence."""
    noun = noun_of(sentence.source for sentence in sentences)
    count = f"{len(sentences)} {noun if len(sentences) != 1 else noun.removesuffix('s')}"
    write_sections(path, title=title, lead=count, noun=noun, sentences=explorer(sentences, variants))


def explorer(sentences: Sequence[Sentence], variants: Sequence[str]) -> dict[str, Any]:
    """Return the data of the attention explorer for `write_sections`."""
    columns = [_describe(variant, style) for variant, style in variant_styles(variants).items()]
    return explorer_json(columns, sentences, "score")


def write_sections(
    path: Path, *, title: str, noun: str, sentences: dict[str, Any] | None = None, **sections: Any
) -> None:
    """Write a page with those of its sections that are given: see `report.html.j2`."""
    scripts = [FOLDER / "tables.js"]
    sentences = sentences or {"sentences": [], "left_out": 0}
    if sentences["sentences"]:
        scripts += [page.HEAT_MAP, FOLDER / "explorer.js"]
    left_out = sentences.pop("left_out")
    empty = dict.fromkeys(
        ("dashboards", "unfinished", "findings", "further", "tables", "errors", "key", "figures"), ()
    )
    values = {
        **empty,
        **sections,
        "noun": noun,
        "sentences": sentences if sentences["sentences"] else None,
        "left_out": f"{left_out} {noun} are omitted to limit the size of this page." if left_out else "",
    }
    write_atomically(path, page.render(FOLDER, "report.html.j2", title=title, scripts=scripts, **values))


def figure_section(figure: StudyFigure, styles: Iterable[VariantStyle] = ()) -> dict[str, str]:
    """Return the figure for the template."""
    svg = Markup(to_svg(figure.figure, styles))  # matplotlib escapes texts
    return {"title": figure.title, "caption": figure.caption, "svg": svg}


def table_section(table: Table) -> dict[str, Any]:
    """Return the table for the template: rows of (text, unrounded value or None), the labels first."""
    labels, text = table.text.index.nlevels, table.text.reset_index()
    columns = [
        zip(text[name], [None] * len(text) if place < labels else table.values[name], strict=True)
        for place, name in enumerate(text.columns)
    ]
    return {
        "title": table.title,
        "notes": table.notes,
        "labels": labels,
        "columns": list(text.columns),
        "rows": [*zip(*columns, strict=True)],
    }


def _count_runs(study: Study) -> str:
    """Return the numbers of variants, seeds and runs as one line."""
    counts = (
        (len(study.variants), "variant"),
        (len(study.seeds), "seed"),
        (len(study.finished), "finished run"),
        (len(study.unfinished), "unfinished run"),
    )
    return " · ".join(f"{count} {noun}{'s' * (count != 1)}" for count, noun in counts if count)


def _describe(variant: str, style: VariantStyle, facts: str = "") -> dict[str, str]:
    """Return the name and the SVG style of a variant, for the template and the explorer."""
    return {
        "name": variant,
        "facts": facts,
        "colour": css_colour(style),
        "dash": DASH_ARRAYS[style.dash],
        "mark": MARKER_PATHS[style.marker],
    }
