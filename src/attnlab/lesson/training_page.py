"""The page that trains a network in a browser: one HTML file without data or network requests.

Its network is in network.js, written with plain arrays: forward pass, backward pass and Adam.
"""

from pathlib import Path

from attnlab.files.writing import write_atomically
from attnlab.report import html as page

FOLDER = Path(__file__).parent


def write(path: Path) -> None:
    """Write the page to an HTML file."""
    scripts = [page.HEAT_MAP, FOLDER / "network.js", FOLDER / "page.js"]
    write_atomically(path, page.render(FOLDER, "lesson.html.j2", title="Train attention", scripts=scripts))
