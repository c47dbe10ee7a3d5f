"""The HTML page of a report: a single file with its style, scripts, figures and data.

The page makes no network requests. Texts of data and models are escaped: by jinja2 in the markup, and as JSON
in the data of the explorer, whose script only sets them as text. The content security policy of the page
allows no other scripts than those that are written here.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from attnlab import __version__
from attnlab.analysis.comparison import HEADINGS, Comparison
from attnlab.analysis.study import Study
from attnlab.plotting.style import VariantStyle, variant_styles
from attnlab.report import explorer, svg
from attnlab.report.explorer import Sentence
from attnlab.report.figure_parts import StudyFigure
from attnlab.report.table import Table
from attnlab.runs.files import write_atomically

FOLDER = Path(__file__).parent


def write(
    study: Study,
    comparisons: Sequence[Comparison],
    tables: Sequence[Table],
    figures: Sequence[StudyFigure],
    path: Path,
) -> None:
    """Write the report of a study.

    Args:
        study: the runs.
        comparisons: statistical comparisons; those in the first metric of the study come first.
        tables: tables in the order of the page.
        figures: figures in the order of the page, drawn with `variant_styles(study.variants)`.
        path: path of the HTML file.
    """
    styles = variant_styles(study.variants)
    runs, sentences = explorer.gather(study)
    main_metric = study.metrics[:1]
    _write(
        path,
        title=study.name,
        lead=_count_runs(study),
        unfinished=study.unfinished,
        findings=[comparison for comparison in comparisons if comparison.metric in main_metric],
        further=[comparison for comparison in comparisons if comparison.metric not in main_metric],
        tables=tables,
        key=[_describe(variant, style) for variant, style in styles.items()],
        figures=[
            {
                "title": figure.title,
                "caption": figure.caption,
                "svg": Markup(svg.embed(figure.figure, styles.values())),  # matplotlib escapes texts
            }
            for figure in figures
        ],
        sentences=explorer.to_json(
            [_describe(variant, styles[variant], f"seed {seed}") for variant, seed in runs], sentences, "chrF"
        ),
    )


def write_explorer(sentences: Sequence[Sentence], variants: Sequence[str], title: str, path: Path) -> None:
    """Write a page that contains only the attention explorer.

    Args:
        sentences: the sentences to show.
        variants: names of the outputs of each sentence, in their order.
        title: heading of the page.
        path: path of the HTML file.
    """
    columns = [_describe(variant, style) for variant, style in variant_styles(variants).items()]
    count = f"{len(sentences)} sentence{'s' * (len(sentences) != 1)}"
    _write(path, title=title, lead=count, sentences=explorer.to_json(columns, sentences, "score"))


def _write(path: Path, *, sentences: dict[str, Any], **parts: Any) -> None:
    scripts = [(FOLDER / name).read_text(encoding="utf-8") for name in ("tables.js", "explorer.js")]
    scripts = scripts if sentences["sentences"] else scripts[:1]
    left_out = sentences.pop("left_out")
    environment = Environment(
        loader=FileSystemLoader(FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.policies["json.dumps_kwargs"] = {"ensure_ascii": False, "separators": (",", ":")}
    empty = dict.fromkeys(("unfinished", "findings", "further", "tables", "key", "figures"), ())
    page = environment.get_template("page.html.j2").render(
        **{**empty, **parts},
        headings=HEADINGS,
        sentences=sentences if sentences["sentences"] else None,
        left_out=f"{left_out} sentences are omitted to limit the size of this page." if left_out else "",
        style=Markup((FOLDER / "page.css").read_text(encoding="utf-8")),
        scripts=[Markup(script) for script in scripts],
        script_hashes=Markup(" ".join(_csp_hash(script) for script in scripts)),
        version=__version__,
    )
    # Texts of damaged files may contain lone surrogates, which UTF-8 cannot encode
    write_atomically(path, page.encode(errors="replace").decode())


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
        "colour": svg.css_colour(style),
        "dash": svg.DASH_ARRAYS[style.dash],
        "mark": svg.MARKER_PATHS[style.marker],
    }


def _csp_hash(script: str) -> str:
    """Return the hash by which the content security policy allows an inline script."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
