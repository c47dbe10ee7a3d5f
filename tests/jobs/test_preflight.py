"""Checks of runs before a sweep starts."""

import re
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
import torch
from omegaconf import DictConfig
from torch import nn

from attnlab.errors import UsageError
from attnlab.jobs.ledger import Ledger
from attnlab.jobs.preflight import find_error
from forked import ForkedProcess

Composed = Callable[..., DictConfig]

IMPOSSIBLE = {
    "sizes that do not fit": (
        ["attention=dot", "decoder.size=9"],
        "query of size 9 with a memory of size 256",
    ),
    "an unknown argument": (["+attention.sise=3"], "Unknown setting 'attention.sise'"),
    "an unknown argument of the data": (["+data.sise=3"], "Unknown setting 'data.sise'"),
    "an unknown argument of the optimizer": (["+optimizer.rho=0.3"], "Unknown setting 'optimizer.rho'"),
    "an invalid value": (["+optimizer.betas=[2,2]"], "Invalid beta parameter at index 0: 2"),
    "contradictory settings": (["embedding.shared=true"], "set shared_vocabulary=true"),
}


@pytest.mark.parametrize("case", IMPOSSIBLE)
def test_run_that_cannot_be_built_is_named(case: str, composed: Composed) -> None:
    overrides, reason = IMPOSSIBLE[case]
    assert re.search(reason, find_error(composed(*overrides)))


def test_preflight_reads_no_data(composed: Composed) -> None:
    assert find_error(composed("experiment=conala", "data.path=nowhere")) is None
    inflection = ("experiment=inflection", "data.train=nowhere", "data.val=nowhere")
    for option in ("linear", "concatenated"):
        assert find_error(composed(*inflection, f"features={option}")) is None


@pytest.mark.parametrize("overrides", [["data=recall", "data.metrics=[wer]"], ["readout.tied=true"]])
def test_settings_that_no_constructor_takes_pass_preflight(overrides: list[str], composed: Composed) -> None:
    assert find_error(composed(*overrides)) is None


def test_class_without_meta_device_support_passes_preflight(composed: Composed) -> None:
    assert find_error(composed("optimizer._target_=test_preflight.by_first_weight")) is None


def by_first_weight(params: Iterable[nn.Parameter], **_: float) -> torch.optim.Optimizer:
    weights = list(params)
    return torch.optim.SGD(weights, lr=float(weights[0].flatten()[0].abs()))


ENDS = """
import os
from attnlab.nn.attention import Additive

class Ends(Additive):
    def __init__(self, **settings):
        os._exit(0)
"""


@pytest.mark.slow
def test_sweep_with_jobs_that_cannot_be_built_starts_none(
    composed: Composed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subprocess, "Popen", ForkedProcess)
    monkeypatch.chdir(tmp_path)
    fits = composed("variant=fits")
    bad = [composed("attention=dot", "decoder.size=9", f"variant=bad{n}") for n in range(5)]
    unknown = composed("+attention.sise=3", "name=another", "variant=bad0")
    with pytest.raises(UsageError) as raised:
        Ledger().expect([fits, *bad, unknown])
    message = str(raised.value)
    assert message.startswith("6 of 7 jobs cannot be built, and no job was started. bad0-seed0-")
    rest = "bad2-seed0-[0-9a-f]{8} and 2 more: .*query of size 9 with .*; bad0-seed0-.*sise'"
    assert re.search(rest, message)
    assert "fits" not in message
    assert list(tmp_path.iterdir()) == []

    Path("ends.py").write_text(ENDS)  # the check has no result, and the worker will report the error
    ledger = Ledger()
    ledger.expect([fits, composed("attention._target_=ends.Ends")])
    assert len(ledger.runs) == 2
