"""Faster imports of PyTorch and Lightning, which take most of the time until the first step."""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType


@contextmanager
def faster_imports() -> Iterator[None]:
    """Import heavy modules in this block without what takes time and has no use.

    - Garbage collections go through all objects of the imported modules again and again. None run in the
      block, and later ones leave out what exists at its end.
    - torchmetrics imports `scipy.signal` only to add an old name for metrics of audio. It gets an empty
      module instead, and a later import of `scipy.signal` the real one.
    """
    gc.disable()
    name = "scipy.signal"
    empty = None if name in sys.modules else ModuleType(name)
    if empty is not None:
        empty.hamming = None  # type: ignore[attr-defined]  # the name that torchmetrics looks for
        sys.modules[name] = empty
    try:
        yield
    finally:
        if empty is not None:
            del sys.modules[name]
        gc.freeze()
        gc.enable()
