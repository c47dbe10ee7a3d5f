"""What can be known of a run before it is started."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterable

import pytest
import torch
from omegaconf import DictConfig
from torch import nn

from attnlab.runs.directory import prepare
from attnlab.sweeps.preflight import find_error

Composed = Callable[..., DictConfig]

IMPOSSIBLE = {
    "sizes that do not fit": (
        ["attention=dot", "decoder.size=9"],
        "query of size 9 with a memory of size 256",
    ),
    "an argument nobody takes": (["+attention.sise=3"], "attnlab.nn.attention.Additive: .*'sise'"),
    "the same of the data": (["+data.sise=3"], "attnlab.data.datasets.synthetic.generate: .*'sise'"),
    "the same of the optimizer": (["+optimizer.rho=3"], "torch.optim.Adam.*: .*'rho'"),
    "the same of a callback": (
        ["+callbacks.attention_figures.often=3"],
        "attnlab.training.callbacks.AttentionFigures: .*'often'",
    ),
    "a value nobody can use": (["optimizer.lr=-1"], "Invalid learning rate: -1"),
    "settings at odds": (["embedding.shared=true"], "set shared_vocabulary=true"),
}


@pytest.mark.parametrize("case", IMPOSSIBLE)
def test_what_cannot_be_built_is_named(case: str, composed: Composed) -> None:
    words, reason = IMPOSSIBLE[case]
    told = find_error(composed(*words))
    assert told is not None
    assert re.search(reason, told), told


def test_nothing_is_read(composed: Composed) -> None:
    assert find_error(composed("experiment=conala", "data.path=nowhere")) is None


def test_a_part_that_cannot_be_built_without_its_numbers_is_left_for_the_run(composed: Composed) -> None:
    assert find_error(composed("optimizer._target_=test_preflight.by_first_weight")) is None


def by_first_weight(params: Iterable[nn.Parameter], **_: float) -> torch.optim.Optimizer:
    weights = list(params)
    return torch.optim.SGD(weights, lr=float(weights[0].flatten()[0].abs()))


@pytest.mark.slow
def test_the_command_tells_of_each_directory(composed: Composed) -> None:
    good, bad = prepare(composed()), prepare(composed("attention=dot", "decoder.size=9"))
    command = [sys.executable, "-m", "attnlab.sweeps.preflight", str(good.directory), str(bad.directory)]
    told = subprocess.run(command, capture_output=True, text=True, check=True)
    (reason,) = json.loads(told.stdout).items()
    assert reason[0] == str(bad.directory)
    assert "query of size 9" in reason[1]
