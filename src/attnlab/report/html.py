"""Self-contained HTML pages: one file with its style, scripts and data.

A page makes no network requests. Texts are escaped: by jinja2 in the markup, and as JSON in the data, which
the scripts only set as text. The content security policy of a page allows no other scripts than its own.
"""

import base64
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from attnlab import __version__

FOLDER = Path(__file__).parent
HEAT_MAP = FOLDER / "heat_map.js"  # Script that draws heat maps; it precedes the scripts that use it


def render(folder: Path, template: str, *, title: str, scripts: Sequence[Path], **values: Any) -> str:
    """Return the page of a template that extends `page.html.j2`.

    Args:
        folder: the folder of the template and of its style sheet `page.css`, which follows the common one.
    """
    environment = Environment(
        loader=FileSystemLoader([folder, FOLDER]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    styles = (FOLDER / "base.css", folder / "page.css")
    environment.policies["json.dumps_kwargs"] = {"ensure_ascii": False, "separators": (",", ":")}
    page = environment.get_template(template).render(
        title=title,
        style=Markup("".join(style.read_text(encoding="utf-8") for style in styles)),
        scripts=[Markup(script.read_text(encoding="utf-8")) for script in scripts],
        policy=Markup(policy(scripts)),
        version=__version__,
        **values,
    )
    # Texts of damaged files may contain lone surrogates, which UTF-8 cannot encode
    return page.encode(errors="replace").decode()


def policy(scripts: Sequence[Path], *, images: str = "data:") -> str:
    """Return a content security policy that allows only these scripts, and images of these schemes."""
    hashes = [hashlib.sha256(script.read_bytes()).digest() for script in scripts]
    allowed = " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in hashes)
    return (
        f"default-src 'none'; img-src {images}; style-src 'unsafe-inline'; script-src {allowed}; "
        "base-uri 'none'; form-action 'none'"
    )
