"""Files from the network, kept in the cache."""

from __future__ import annotations

import sys
from pathlib import Path

import pooch

from attnlab.errors import UserError


def fetch(url: str, *, known_hash: str | None, cache: str | Path) -> Path:
    """The local copy of a file, downloaded at the first call.

    `known_hash` is `sha256:…` or `md5:…`; None trusts what arrives, and pooch then prints its SHA256. The
    copy appears in `cache` whole or not at all. Raises `UserError` where it cannot be had.
    """
    try:
        path: str = pooch.retrieve(
            url, known_hash, path=Path(cache).expanduser(), progressbar=sys.stderr.isatty()
        )
    except (OSError, ValueError) as error:  # the network's errors are OSErrors; a wrong hash is a ValueError
        reason = " ".join(str(error).split())
        raise UserError(
            f"{url} cannot be downloaded into {cache} ({reason}): download it by hand, unpack it if it is an "
            "archive, and set data.path=FILE"
        ) from error
    return Path(path)
