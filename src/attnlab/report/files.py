"""Writing figures to PNG, SVG and PDF files, and showing them in notebooks."""

import io
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from attnlab.files.writing import open_atomically


class InlineFigure(Figure):
    """Figure that a notebook shows as a picture, also without pyplot.

    :meta private:
    """

    def _repr_png_(self) -> bytes:
        """Return the picture; IPython calls this."""
        picture = io.BytesIO()
        self.savefig(picture, format="png")
        return picture.getvalue()


def save(figure: Figure, path: Path, **options: Any) -> None:
    """Write a figure atomically as PNG, SVG or PDF, by its suffix; equal figures give equal files.

    The options are those of `Figure.savefig`.
    """
    metadata = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(path.suffix, {})
    with mpl.rc_context({"svg.hashsalt": "attnlab", "pdf.fonttype": 42}), open_atomically(path) as file:
        figure.savefig(file, format=path.suffix[1:], dpi=150, metadata=metadata, **options)


def fix_layout(figure: Figure) -> None:
    """Lay out the figure now and not again: with a layout engine, a figure is drawn twice for each file."""
    if layout := figure.get_layout_engine():
        layout.execute(figure)
        figure.set_layout_engine(None)  # "none" would be an engine that does nothing


def save_png_and_svg(figure: Figure, stem: Path) -> Path:
    """Write `stem`.png and `stem`.svg; return the path of the PNG."""
    fix_layout(figure)
    for suffix in (".svg", ".png"):
        save(figure, path := stem.with_name(stem.name + suffix))
    return path
