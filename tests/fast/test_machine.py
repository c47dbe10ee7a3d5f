"""Choices by timings: the library of products and the number of threads."""

import os
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F

from attnlab.errors import UserError
from attnlab.fast import machine
from attnlab.fast.linear import Products, outer
from attnlab.fast.machine import LIBRARY, trains_by_onednn


def test_library_is_timed_once_and_inherited(monkeypatch: pytest.MonkeyPatch, default_limits: None) -> None:
    monkeypatch.setenv(LIBRARY, "mkl")
    assert not trains_by_onednn()
    monkeypatch.delenv(LIBRARY)
    share = machine.onednn_share()
    assert 0.1 < share < 10
    monkeypatch.setattr(machine, "ONEDNN_SHARE", 10)
    assert trains_by_onednn()
    monkeypatch.setattr(machine, "ONEDNN_SHARE", 0.1)
    assert trains_by_onednn()  # not timed again
    assert os.environ[LIBRARY] == "onednn"  # for child processes
    monkeypatch.setenv(LIBRARY, "cublas")
    with pytest.raises(UserError, match=f"{LIBRARY}=cublas: set it to onednn or mkl"):
        trains_by_onednn()


@pytest.mark.parametrize("library", ["mkl", "onednn"])
def test_results_do_not_depend_on_the_library(
    library: str, monkeypatch: pytest.MonkeyPatch, default_limits: None
) -> None:
    monkeypatch.setenv(LIBRARY, library)
    torch.manual_seed(0)
    x, weight = torch.randn(70, 600), torch.randn(900, 600, requires_grad=True)
    output = Products().linear(x, weight)
    torch.testing.assert_close(output, F.linear(x, weight), rtol=1e-5, atol=1e-4)
    torch.testing.assert_close(outer(output, x), output.T @ x, rtol=1e-5, atol=1e-2)


TWO_THREADS_ON_ONE_CORE = """
import os, torch
from attnlab.fast.machine import use_faster_threads
os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
for recorded in (2, 3, None):
    torch.set_num_threads(2)
    use_faster_threads(128, recorded)
    print(torch.get_num_threads())
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="needs os.sched_setaffinity")
@pytest.mark.parametrize(("variable", "threads"), [({}, [2, 1, 1]), ({"OMP_NUM_THREADS": "2"}, [2, 2, 2])])
def test_one_thread_is_used_where_two_share_a_core(variable: dict[str, str], threads: list[int]) -> None:
    inherited = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    command = [sys.executable, "-c", TWO_THREADS_ON_ONE_CORE]
    done = subprocess.run(command, env={**inherited, **variable}, capture_output=True, text=True, check=True)
    assert [int(number) for number in done.stdout.split()] == threads
