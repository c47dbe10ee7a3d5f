"""One HTML page that holds all it shows: style, script, figures and data. It asks nothing of a network.

Texts of data and models are escaped: by jinja2 in what is written out, and in the data of the explorer, which
its script only ever sets as text. The page's own policy lets no script run but those written here.
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
from attnlab.analysis.collect import Study
from attnlab.analysis.statistics import Comparison
from attnlab.plotting.style import VariantStyle, variant_styles
from attnlab.report import explorer, svg
from attnlab.report.explorer import Sentence
from attnlab.report.figures import Drawing
from attnlab.report.tables import Table
from attnlab.runs.files import write_atomically

FOLDER = Path(__file__).parent


def write(
    study: Study,
    comparisons: Sequence[Comparison],
    tables: Sequence[Table],
    drawings: Sequence[Drawing],
    path: Path,
) -> None:
    """Write the report of a study.

    Args:
        study: its runs.
        comparisons: the findings; those by the first of the study's metrics stand in front.
        tables: in their order.
        drawings: in their order, drawn in the styles of the study's variants.
        path: of the page.
    """
    chosen = variant_styles(study.variants)
    runs, sentences = explorer.gather(study)
    _write(
        path,
        title=study.name,
        lead=_lead(study),
        unfinished=study.unfinished,
        findings=[comparison for comparison in comparisons if comparison.metric in study.metrics[:1]],
        further=[comparison for comparison in comparisons if comparison.metric not in study.metrics[:1]],
        tables=tables,
        key=[_plain(variant, style) for variant, style in chosen.items()],
        figures=[
            {
                "title": drawing.title,
                "caption": drawing.caption,
                "svg": Markup(svg.embed(drawing.figure, chosen.values())),  # matplotlib escapes texts
            }
            for drawing in drawings
        ],
        sentences=explorer.as_plain(
            [_plain(variant, chosen[variant], f"seed {seed}") for variant, seed in runs], sentences, "chrF"
        ),
    )


def write_sentences(sentences: Sequence[Sentence], variants: Sequence[str], title: str, path: Path) -> None:
    """Write a page of the explorer alone.

    Args:
        sentences: what to look at.
        variants: what to call the outputs of each, in their order.
        title: stands above.
        path: of the page.
    """
    chosen = variant_styles(variants)
    plain = [_plain(variant, style) for variant, style in chosen.items()]
    count = f"{len(sentences)} sentence{'s' * (len(sentences) != 1)}"
    _write(path, title=title, lead=count, sentences=explorer.as_plain(plain, sentences, "score"))


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
    parts_of_a_study = ("unfinished", "findings", "further", "tables", "key", "figures")
    empty: dict[str, Any] = {part: [] for part in parts_of_a_study}
    page = environment.get_template("page.html.j2").render(
        **{**empty, **parts},
        sentences=sentences if sentences["sentences"] else None,
        left_out=f"Of the sentences, {left_out} are left out to keep this page small." if left_out else "",
        style=Markup((FOLDER / "page.css").read_text(encoding="utf-8")),
        scripts=[Markup(script) for script in scripts],
        script_hashes=Markup(" ".join(_hash(script) for script in scripts)),
        version=__version__,
    )
    # A text from a broken file may hold half a character, which no encoding can write
    write_atomically(path, page.encode(errors="replace").decode())


def _lead(study: Study) -> str:
    """How much there is."""
    counts = (
        (len(study.variants), "variant"),
        (len(study.seeds), "seed"),
        (len(study.finished), "finished run"),
        (len(study.unfinished), "unfinished run"),
    )
    return " · ".join(f"{count} {noun}{'s' * (count != 1)}" for count, noun in counts if count)


def _plain(variant: str, style: VariantStyle, facts: str = "") -> dict[str, str]:
    """A variant as the page draws it."""
    return {
        "name": variant,
        "facts": facts,
        "colour": svg.css_colour(style),
        "dash": svg.DASH_ARRAYS[style.dash],
        "mark": svg.MARKER_PATHS[style.marker],
    }


def _hash(script: str) -> str:
    """What the page's policy knows a script by."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
