"""Take the screenshot of a report for the tutorial: comparisons, a table, two figures and the explorer.

python docs/screenshot.py REPORT.html report.png. Needs tests/ on the Python path for `browser`.
"""

import sys
import tempfile
from pathlib import Path

from PIL import Image

from browser import browser

WIDTH = 600  # readable on a telephone
FIGURES = ("Exact match by variant.", "Exact match by source length.")
KEEP = """(titles) => {
    const all = (selector) => [...document.querySelectorAll(selector)];
    all("details, .note, .hint, footer, section > .scroll:nth-of-type(n + 2)").forEach(e => e.remove());
    all("figure").filter(e => !titles.includes(e.querySelector("b").textContent)).forEach(e => e.remove());
    all("section").forEach(e => { e.style.marginTop = "2rem"; });
    order.value = "score";
    order.dispatchEvent(new Event("change"));
    sentences.firstChild.click();
    sentences.style.maxHeight = "11rem";
}"""


def main(report: str, picture: str) -> None:
    """Open the report in a browser, hide most of its parts and write a PNG."""
    with tempfile.TemporaryDirectory() as folder, browser(Path(folder)) as tab:
        tab.open(Path(report).resolve(), width=WIDTH, height=1600)
        tab.run(f"({KEEP})({list(FIGURES)})")
        tab.point_at(".output .token", 3)
        tab.draw()
        tab.screenshot(Path(picture))
    with Image.open(picture) as taken:
        taken.convert("RGB").save(picture, optimize=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
