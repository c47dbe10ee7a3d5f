"""Device slots of a sweep."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import DictConfig, OmegaConf

from attnlab.errors import UserError
from attnlab.jobs import slots as slots_module
from attnlab.jobs.slots import Slots, divide, find_gpus, find_slots

LISTED = """\
GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-aaaa)
GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-bbbb)
  MIG 3g.20gb     Device  0: (UUID: MIG-b0)
  MIG 3g.20gb     Device  1: (UUID: MIG-b1)
GPU 2: NVIDIA A100-SXM4-40GB (UUID: GPU-cccc)
"""


def trainer(devices: object = 1, accelerator: str = "auto") -> DictConfig:
    return OmegaConf.create({"devices": devices, "accelerator": accelerator})


def test_taken_devices_are_not_shared() -> None:
    slots = Slots(["a", "b", "c"], gpus=True)
    assert slots.take(2) == ["a", "b"]
    assert slots.take(2) is None
    assert slots.take(1) == ["c"]
    assert slots.take(1) is None
    slots.release(["b"])
    slots.release(["c"])
    assert slots.take(2) == ["b", "c"]


def test_idle_devices_are_taken_first() -> None:
    slots = Slots(["a", "b"], gpus=True, jobs_per_device=2)
    assert [slots.take(1) for _ in range(5)] == [["a"], ["b"], ["a"], ["b"], None]


@pytest.mark.slow
@given(
    devices=st.integers(1, 4),
    jobs_per_device=st.integers(1, 3),
    counts=st.lists(st.integers(1, 4), max_size=30),
    keep=st.integers(0, 5),
)
def test_device_never_exceeds_its_number_of_jobs(
    devices: int, jobs_per_device: int, counts: list[int], keep: int
) -> None:
    slots = Slots([str(n) for n in range(devices)], gpus=True, jobs_per_device=jobs_per_device)
    held: list[list[str]] = []
    for count in counts:
        taken = slots.take(count)
        used = [device for job in held for device in job]
        free = sum(used.count(str(n)) < jobs_per_device for n in range(devices))
        assert (taken is None) == (free < count)
        if taken is not None:
            assert len(set(taken)) == count
            held.append(taken)
        assert all(used.count(device) < jobs_per_device for device in taken or [])
        while len(held) > keep:
            slots.release(held.pop(0))


@pytest.mark.parametrize(
    ("devices", "gpus", "needed"),
    [(1, True, 1), (3, True, 3), ("2", False, 2), ("auto", True, 3), ("auto", False, 1), (-1, True, 3)],
)
def test_job_needs_the_devices_of_its_trainer(devices: object, gpus: bool, needed: int) -> None:
    assert Slots(["a", "b", "c"], gpus=gpus).needed(trainer(devices)) == needed


@pytest.mark.parametrize(
    ("devices", "gpus", "reason"),
    [
        ([0, 2], True, "give their number per job"),
        ("0,2", True, "give their number per job"),
        (0, True, "give their number per job"),
        (4, True, "trainer.devices=4: this sweep has 3 devices$"),
        (4, False, "this sweep has 3 devices; set hydra.launcher.slots=4"),
    ],
)
def test_unavailable_devices_are_errors(devices: object, gpus: bool, reason: str) -> None:
    with pytest.raises(UserError, match=reason):
        Slots(["a", "b", "c"], gpus=gpus).needed(trainer(devices))


VISIBLE = {
    "2, GPU-aaaa,MIG-b0": ["2", "GPU-aaaa", "MIG-b0"],
    "": [],
    "-1": [],
    "0,-1,1": ["0"],
    "1,,0": ["1"],
    "0,3,1": ["0"],  # of three cards
    "NoDevFiles": [],
    "junk": [],
    "1,junk,0": ["1"],
    "GPU-": [],
    "0x1": [],
}


@pytest.mark.parametrize("visible", VISIBLE)
def test_gpus_are_the_visible_ones(visible: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attnlab.jobs.slots._nvidia_smi", lambda: LISTED)
    assert find_gpus({"CUDA_VISIBLE_DEVICES": visible}) == VISIBLE[visible]
    assert find_gpus({}) == ["GPU-aaaa", "MIG-b0", "MIG-b1", "GPU-cccc"]


def test_sweep_uses_gpus_if_any_job_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7")
    cores = len(os.sched_getaffinity(0))
    slots = find_slots([trainer(accelerator="cpu"), trainer()], slots=None, jobs_per_gpu=2, threads=None)
    assert [slots.take(2), slots.take(2), slots.take(1)] == [["4", "7"], ["4", "7"], None]
    assert slots.environment(["7", "4"])["CUDA_VISIBLE_DEVICES"] == "7,4"
    assert slots.threads == max(1, cores // 4)

    slots = find_slots([trainer(accelerator="cpu")], slots=3, jobs_per_gpu=2, threads=5)
    assert (slots.count, slots.threads) == (3, 5)
    assert slots.environment(slots.take(2) or [])["CUDA_VISIBLE_DEVICES"] == ""

    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert find_slots([trainer()], slots=None, jobs_per_gpu=1, threads=None).count == cores


@pytest.mark.parametrize("setting", ["slots", "jobs_per_gpu", "threads"])
@pytest.mark.parametrize("value", [0, "two"])
def test_invalid_launcher_settings_are_named(setting: str, value: object) -> None:
    settings = {"slots": None, "jobs_per_gpu": 1, "threads": None, setting: value}
    with pytest.raises(UserError, match=rf"hydra\.launcher\.{setting}={value}: must be a whole number"):
        find_slots([], **settings)


def test_cores_are_divided_into_neighbours() -> None:
    assert divide([2, 3, 5, 7, 11], shares=2, threads=2) == [[2, 3], [5, 7, 11]]
    assert divide([2, 3, 5, 7, 11], shares=2, threads=3) == []  # two threads would share a core
    assert divide([2, 3], shares=3, threads=1) == []
    assert divide([], shares=1, threads=1) == []  # the system does not tell


def test_fewer_jobs_than_shares_are_not_pinned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two sweeps of one job each would run on the first core, and leave the others idle."""
    monkeypatch.setattr(slots_module, "_affinity", lambda: [4, 6, 7])
    pinned = [
        find_slots([trainer(accelerator="cpu")] * jobs, slots=3, jobs_per_gpu=1, threads=1).cores
        for jobs in (1, 2, 3)
    ]
    assert pinned == [{}, {}, {"0": [4], "1": [6], "2": [7]}]


def test_number_of_cores_respects_the_limit_of_a_container(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = tmp_path / "cpu.max"
    monkeypatch.setattr(slots_module, "CPU_LIMIT", limit)
    monkeypatch.setattr(slots_module, "_affinity", lambda: [*range(8)])
    counts = []
    for content in ("max 100000\n", "300000 100000\n", "50000 100000\n", "1600000 100000\n"):
        limit.write_text(content)
        slots = find_slots([trainer(accelerator="cpu")], slots=None, jobs_per_gpu=1, threads=None)
        counts.append(slots.count)
    assert counts == [8, 3, 1, 8]


@pytest.mark.slow
def test_torch_uses_the_threads_of_its_slot() -> None:
    environment = Slots(["0"], gpus=False, threads=1).environment(["0"])
    code = "import torch; print(torch.get_num_threads(), torch.cuda.device_count())"
    output = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "OMP_NUM_THREADS": "7", **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    assert output.stdout.split() == ["1", "0"]


@pytest.mark.parametrize(("asked", "threads"), [("1", 1), ("3", 3), ("999", 6), ("", 6), ("2,1", 6)])
def test_processes_of_a_sweep_have_no_more_threads_than_the_user_allows(
    monkeypatch: pytest.MonkeyPatch, asked: str, threads: int
) -> None:
    monkeypatch.setattr("attnlab.jobs.slots._cores", lambda: 12)
    monkeypatch.setenv("OMP_NUM_THREADS", asked)
    assert find_slots([trainer(accelerator="cpu")], slots=2, jobs_per_gpu=1, threads=None).threads == threads
