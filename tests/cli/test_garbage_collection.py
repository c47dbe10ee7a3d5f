"""Garbage collections while large packages are imported."""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib.abc import MetaPathFinder
from types import ModuleType
from typing import Any

import pytest

from attnlab.cli import main
from attnlab.cli.imports import THRESHOLD, few_collections


def test_thresholds_are_restored_after_an_error() -> None:
    before = gc.get_threshold()
    with suppress(ImportError), few_collections():
        assert gc.get_threshold() == THRESHOLD
        raise ImportError
    assert gc.get_threshold() == before


def test_commands_are_imported_with_few_collections(monkeypatch: pytest.MonkeyPatch) -> None:
    thresholds: list[Any] = []

    class Finder(MetaPathFinder):
        """Records the thresholds when the module of a command is looked for."""

        def find_spec(
            self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
        ) -> None:
            if fullname == "attnlab.cli.report":
                thresholds.append(gc.get_threshold())
                raise KeyboardInterrupt

    monkeypatch.delitem(sys.modules, "attnlab.cli.report", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Finder(), *sys.meta_path])
    before = gc.get_threshold()
    with pytest.raises(KeyboardInterrupt):
        main.run(["report", "outputs"])
    assert thresholds == [THRESHOLD]
    assert gc.get_threshold() == before
