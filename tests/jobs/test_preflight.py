"""Checks of runs before a sweep starts."""

import re
import subprocess
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from omegaconf import DictConfig
from torch import nn

from attnlab.files.run_directory import prepare_run
from attnlab.jobs.preflight import find_error
from attnlab.jobs.scheduler import find_build_errors
from attnlab.jobs.worker_process import Worker, start_supervised
from forked import ForkedProcess

Composed = Callable[..., DictConfig]

IMPOSSIBLE = {
    "sizes that do not fit": (
        ["attention=dot", "decoder.size=9"],
        "query of size 9 with a memory of size 256",
    ),
    "an unknown argument": (["+attention.sise=3"], "attnlab.nn.attention.Additive: .*'sise'"),
    "an unknown argument of the data": (
        ["+data.sise=3"],
        "attnlab.data.datasets.synthetic.generate_task: .*'sise'",
    ),
    "an unknown argument of the optimizer": (["+optimizer.rho=0.3"], "torch.optim.Adam.*: .*'rho'"),
    "an invalid value": (["+optimizer.betas=[2,2]"], "Invalid beta parameter at index 0: 2"),
    "contradictory settings": (["embedding.shared=true"], "set shared_vocabulary=true"),
}


@pytest.mark.parametrize("case", IMPOSSIBLE)
def test_run_that_cannot_be_built_is_named(case: str, composed: Composed) -> None:
    overrides, reason = IMPOSSIBLE[case]
    message = find_error(composed(*overrides))
    assert message is not None
    assert re.search(reason, message), message


def test_preflight_reads_no_data(composed: Composed) -> None:
    assert find_error(composed("experiment=conala", "data.path=nowhere")) is None
    inflection = ("experiment=inflection", "data.train=nowhere", "data.val=nowhere")
    for option in ("linear", "encoder"):
        assert find_error(composed(*inflection, f"features={option}")) is None


@pytest.mark.parametrize("overrides", [["data=recall", "data.metrics=[wer]"], ["readout.tied=true"]])
def test_settings_that_no_constructor_takes_pass_preflight(overrides: list[str], composed: Composed) -> None:
    assert find_error(composed(*overrides)) is None


def test_class_without_meta_device_support_passes_preflight(composed: Composed) -> None:
    assert find_error(composed("optimizer._target_=test_preflight.by_first_weight")) is None


def by_first_weight(params: Iterable[nn.Parameter], **_: float) -> torch.optim.Optimizer:
    weights = list(params)
    return torch.optim.SGD(weights, lr=float(weights[0].flatten()[0].abs()))


@pytest.mark.slow
def test_errors_are_read_if_the_check_ends_right_after_a_timeout(
    composed: Composed, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(*arguments: Any, **options: Any) -> Worker:
        check = start_supervised(*arguments, **options)
        communicate = check.communicate

        def time_out(**_: float) -> tuple[bytes, bytes]:
            monkeypatch.setattr(check, "communicate", communicate)
            check.wait()
            raise subprocess.TimeoutExpired(check.args, 0)

        monkeypatch.setattr(check, "communicate", time_out)
        return check

    monkeypatch.setattr("attnlab.jobs.scheduler.start_supervised", start)
    monkeypatch.setattr(subprocess, "Popen", ForkedProcess)
    good, bad = prepare_run(composed()), prepare_run(composed("attention=dot", "decoder.size=9"))
    ((directory, reason),) = find_build_errors([good, bad], stopped=lambda: False).items()
    assert directory == str(bad.directory)
    assert "query of size 9" in reason
