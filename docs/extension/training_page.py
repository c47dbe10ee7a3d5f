"""Writes the page that trains a network in the browser to `lessons/train.html`."""

from pathlib import Path

from sphinx.application import Sphinx

from attnlab.lesson import training_page


def write(app: Sphinx, error: Exception | None) -> None:
    """Write the page into the folder of the HTML pages."""
    if error is None and app.builder.format == "html":
        folder = Path(app.outdir) / "lessons"
        folder.mkdir(exist_ok=True)
        training_page.write(folder / "train.html")


def setup(app: Sphinx) -> dict[str, bool]:
    """Write the page when the other pages are built."""
    app.connect("build-finished", write)
    return {"parallel_read_safe": True}
