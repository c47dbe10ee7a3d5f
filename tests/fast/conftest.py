"""Products by oneDNN in the tests of fused loops, whose weights are small."""

from importlib import import_module

import pytest

from attnlab.fast.machine import LIBRARY


@pytest.fixture(autouse=True)
def products_by_onednn(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use fused operators at any size, as for large weights and many rows; not in tests of the limits."""
    limits = {
        "linear": ("MIN_WEIGHT", "MIN_GRADIENT", "MIN_ROWS_TO_PAD", "MIN_ROWS"),
        "parts": ("MIN_SENTENCES",),
    }
    if "default_limits" not in request.fixturenames:
        for name, names in limits.items():
            for limit in names:
                monkeypatch.setattr(import_module(f"attnlab.fast.{name}"), limit, 1)
        monkeypatch.setenv(LIBRARY, "onednn")


@pytest.fixture
def default_limits() -> None:
    """Keep the limits of size that choose between MKL and oneDNN."""
