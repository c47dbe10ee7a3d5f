"""Importing large packages with few garbage collections."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

THRESHOLD = (100_000, 50, 1000)
"""Thresholds of `gc.set_threshold` during imports."""


@contextmanager
def few_collections() -> Iterator[None]:
    """Run Python's garbage collector rarely inside the block, which imports large packages.

    PyTorch and Lightning create 400,000 objects that stay, and by default Python looks for garbage among them
    a thousand times.
    """
    before = gc.get_threshold()
    gc.set_threshold(*THRESHOLD)
    try:
        yield
    finally:
        gc.set_threshold(*before)
