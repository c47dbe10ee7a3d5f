"""Products by oneDNN in the tests of fused loops, whose weights are small."""

from __future__ import annotations

from importlib import import_module

import pytest


@pytest.fixture(autouse=True)
def products_by_onednn(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use oneDNN and pad rows at any size, as for large weights, except in tests of the default limits."""
    if "default_limits" not in request.fixturenames:
        linear = import_module("attnlab.nn.fused.linear")
        for limit in ("MIN_WEIGHT", "MIN_GRADIENT", "MIN_ROWS_TO_PAD"):
            monkeypatch.setattr(linear, limit, 1)


@pytest.fixture
def default_limits() -> None:
    """Keep the limits of size that choose between MKL and oneDNN."""
