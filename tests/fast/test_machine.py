"""Choices by timings: the library of products and the number of threads."""

import os
import subprocess
import sys
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

from attnlab.errors import UserError
from attnlab.fast import machine
from attnlab.fast.linear import Products, outer


@pytest.mark.parametrize(
    ("variable", "chooses_onednn", "share", "limit"),
    [
        (machine.LIBRARY, machine.trains_by_onednn, machine.onednn_share, "ONEDNN_SHARE"),
        (machine.SEARCH_LIBRARY, machine.searches_by_onednn, machine.search_share, "SEARCH_SHARE"),
    ],
)
def test_library_is_timed_once_and_inherited(
    variable: str,
    chooses_onednn: Callable[[], bool],
    share: Callable[[], float],
    limit: str,
    monkeypatch: pytest.MonkeyPatch,
    default_limits: None,
) -> None:
    monkeypatch.setenv(variable, "mkl")
    assert not chooses_onednn()
    monkeypatch.delenv(variable)
    assert 0.1 < share() < 10
    monkeypatch.setattr(machine, limit, 10)
    assert chooses_onednn()
    monkeypatch.setattr(machine, limit, 0.1)
    assert chooses_onednn()  # not timed again
    assert os.environ[variable] == "onednn"  # for child processes
    monkeypatch.setenv(variable, "cublas")
    with pytest.raises(UserError, match=f"{variable}=cublas: set it to onednn or mkl"):
        chooses_onednn()


@pytest.mark.parametrize("library", ["mkl", "onednn"])
def test_results_do_not_depend_on_the_library(
    library: str, monkeypatch: pytest.MonkeyPatch, default_limits: None
) -> None:
    for variable in (machine.LIBRARY, machine.SEARCH_LIBRARY):
        monkeypatch.setenv(variable, library)
    torch.manual_seed(0)
    x, weight, products = torch.randn(70, 600), torch.randn(900, 600, requires_grad=True), Products()
    output = products.linear(x, weight)
    with torch.no_grad():
        for _ in range(2):  # then with a stored weight
            torch.testing.assert_close(products.linear(x, weight), output, rtol=1e-5, atol=1e-4)
    torch.testing.assert_close(output, F.linear(x, weight), rtol=1e-5, atol=1e-4)
    torch.testing.assert_close(outer(output, x), output.T @ x, rtol=1e-5, atol=1e-2)


TWO_THREADS_ON_ONE_CORE = """
import os, torch
from attnlab.fast.machine import use_faster_threads
os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
for variable in ({}, {"OMP_NUM_THREADS": "2"}):
    os.environ.update(variable)
    for recorded in (2, 3, None):
        torch.set_num_threads(2)
        use_faster_threads(128, recorded)
        print(torch.get_num_threads())
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="needs os.sched_setaffinity")
def test_one_thread_is_used_where_two_share_a_core() -> None:
    inherited = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    command = [sys.executable, "-c", TWO_THREADS_ON_ONE_CORE]
    done = subprocess.run(command, env=inherited, capture_output=True, text=True, check=True)
    assert [int(number) for number in done.stdout.split()] == [2, 1, 1, 2, 2, 2]
