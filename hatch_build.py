"""The README for package indices, which show it without the files beside it."""

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface


class Readme(MetadataHookInterface):
    """Fills the field `readme` from README.md, with addresses in `project.urls.Source`."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add the field to the metadata."""
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        source = metadata.get("urls", {}).get("Source")
        text = replace_links(text, source, f"v{metadata['version']}")
        metadata["readme"] = {"content-type": "text/markdown", "text": text}


def replace_links(text: str, source: str | None, tag: str) -> str:
    """Return a Markdown text with links to files of the repository as addresses.

    Without an address of the repository, the text of a link and the description of a picture are left.
    """
    link, picture = r"\1", r"*\2*"
    if source is not None:
        link = rf"[\1]({source.rstrip('/')}/blob/{tag}/\2)"
        picture = rf'<img src="{source.rstrip("/")}/raw/{tag}/\1" alt="\2">'
    text = re.sub(r"\[([^][]+)\]\((?!https?:|#)([^)]+)\)", link, text)
    return re.sub(r'<img src="(?!https?:)([^"]+)"[^>]* alt="([^"]+)">', picture, text)
