"""Download of files into a local cache."""

import sys
from pathlib import Path

from attnlab.errors import UserError


def download(url: str, *, cache: str | Path) -> Path:
    """Return the local copy of a file and download it first if necessary.

    The file appears in `cache` only when the download is complete. Pooch logs its SHA256.
    """
    import pooch  # warns in notebooks without ipywidgets

    try:
        path: str = pooch.retrieve(url, None, path=Path(cache).expanduser(), progressbar=sys.stderr.isatty())
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise UserError(
            f"{url} cannot be downloaded to {cache} ({reason}). Download it yourself, unpack it if it is an "
            "archive, and set data.path=FILE"
        ) from error
    return Path(path)
