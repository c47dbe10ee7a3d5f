"""The built site, in a browser; `make html` runs these tests after the build."""

from pathlib import Path

import pytest

from browser import browser

SITE = Path(__file__).parents[2] / "docs" / "build" / "html"
WIDTHS = (1300, 400)

OVERFLOWING = """
const scrolls = e => e && (["auto", "scroll", "hidden"].includes(getComputedStyle(e).overflowX) || scrolls(e.parentElement));
document.documentElement.scrollWidth <= innerWidth ? [] : [...document.querySelectorAll("body *")]
  .filter(e => e.checkVisibility() && e.getBoundingClientRect().right > innerWidth + 1 && !scrolls(e.parentElement))
  .map(e => `${e.tagName.toLowerCase()}.${e.className}: ${e.textContent.trim().slice(0, 40)}`)
"""  # noqa: E501
"""Elements that make the page wider than the window, except those inside a part that scrolls."""


@pytest.mark.slow
@pytest.mark.site
def test_no_page_is_wider_than_its_window(tmp_path: Path) -> None:
    pages = sorted(SITE.rglob("*.html"))
    assert pages, "the site is not built: make html"
    wide = {}
    with browser(tmp_path) as page:
        for path in pages:
            page.open(path)
            for width in WIDTHS:
                size = {"width": width, "height": 900, "deviceScaleFactor": 1}
                page.call("Emulation.setDeviceMetricsOverride", **size, mobile=False)
                if found := page.run(f"{{ {OVERFLOWING} }}"):
                    wide[f"{path.relative_to(SITE)}, {width} px"] = found[:3]
    assert wide == {}
