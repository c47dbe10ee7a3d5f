"""Device slots for the jobs of a sweep: GPUs, or the CPU cores of this machine. Imports no torch.

A *device* is a GPU or a share of the cores. It runs a number of jobs at a time, and a job occupies
`trainer.devices` of them.
"""

import math
import os
import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise, takewhile
from pathlib import Path

from omegaconf import DictConfig

from attnlab.errors import UserError

CPU_LIMIT = Path("/sys/fs/cgroup/cpu.max")
"""File with the CPU time that a container may use, as microseconds per period."""


class Slots:
    """A pool of devices for jobs.

    Args:
        devices: GPUs, as named in `CUDA_VISIBLE_DEVICES`, or any names for shares of the cores.
        jobs_per_device: number of jobs that a device runs at a time.
        cores: CPU cores of each device, to which its processes are pinned; empty to leave them to the system.
    """

    def __init__(
        self,
        devices: Sequence[str],
        *,
        gpus: bool,
        jobs_per_device: int = 1,
        threads: int = 1,
        cores: Sequence[Sequence[int]] = (),
    ) -> None:
        self.gpus = gpus
        self.threads = threads
        self.cores = dict(zip(devices, cores, strict=False))
        self.count = len(devices)
        self._free = dict.fromkeys(devices, jobs_per_device)

    def take(self, count: int) -> list[str] | None:
        """Take `count` devices, those with the fewest jobs first; returns None if too few are free."""
        free = [device for device, jobs in self._free.items() if jobs > 0]
        if len(free) < count:
            return None
        taken = sorted(free, key=lambda device: -self._free[device])[:count]
        for device in taken:
            self._free[device] -= 1
        return taken

    def release(self, devices: Iterable[str]) -> None:
        """Free devices that `take` returned."""
        for device in devices:
            self._free[device] += 1

    def needed(self, trainer: DictConfig) -> int:
        """Return the number of devices that a job with these trainer settings needs."""
        devices = trainer.devices
        if devices in (-1, "-1") or (devices == "auto" and self.gpus):
            return self.count
        count = 1 if devices == "auto" else int(devices) if re.fullmatch(r"\d+", str(devices)) else 0
        if count == 0:
            raise UserError(
                f"trainer.devices={devices}: a sweep assigns devices itself; give their number per job"
            )
        if count > self.count:
            fix = "" if self.gpus else f"; set hydra.launcher.slots={count}"
            raise UserError(f"trainer.devices={devices}: this sweep has {self.count} devices{fix}")
        return count

    def pin(self, process: int, devices: Iterable[str]) -> None:
        """Restrict a process that has just started, and those that it will start, to the cores of devices."""
        cores = {core for device in devices for core in self.cores.get(device, ())}
        if cores:
            with suppress(OSError):  # it has ended, or the cores were taken away
                os.sched_setaffinity(process, cores)

    def environment(self, devices: Sequence[str]) -> dict[str, str]:
        """Return the environment variables that restrict a process to these devices and its threads.

        Waiting threads sleep (`OMP_WAIT_POLICY`): if more threads than cores spin, a step takes tens of times
        as long.
        """
        return {
            "CUDA_VISIBLE_DEVICES": ",".join(devices) if self.gpus else "",
            "OMP_NUM_THREADS": str(self.threads),
            "MKL_NUM_THREADS": str(self.threads),
            "OMP_WAIT_POLICY": "PASSIVE",
        }


def find_slots(
    trainers: Sequence[DictConfig], *, slots: int | None, jobs_per_gpu: int, threads: int | None
) -> Slots:
    """Return the slots of this machine: its GPUs if it has any and a job may use them, else its cores.

    If there are as many jobs as shares of the cores, the jobs of each share stay on it: see `divide`. The
    other arguments are settings of conf/hydra/launcher/slots.yaml.
    """
    for name, value in (("slots", slots), ("jobs_per_gpu", jobs_per_gpu), ("threads", threads)):
        if value is not None and (not isinstance(value, int) or value < 1):
            raise UserError(f"hydra.launcher.{name}={value}: must be a whole number ≥ 1")
    cores = _cores()
    gpus = find_gpus(os.environ) if any(t.accelerator in ("auto", "gpu", "cuda") for t in trainers) else []
    devices = gpus or [str(number) for number in range(slots or cores)]
    jobs_per_device = jobs_per_gpu if gpus else 1
    threads = threads or max(1, min(cores // (len(devices) * jobs_per_device), _thread_limit(cores)))
    # Fewer jobs are not pinned: two such sweeps at a time would share the first cores, with others idle.
    fill = len(trainers) >= len(devices)
    shares = divide(_affinity(), len(devices), threads) if fill and not gpus else []
    return Slots(devices, gpus=bool(gpus), jobs_per_device=jobs_per_device, threads=threads, cores=shares)


def divide(cores: Sequence[int], shares: int, threads: int) -> list[Sequence[int]]:
    """Divide cores into equal shares of neighbours; none if a share has fewer cores than threads."""
    if len(cores) // shares < threads:
        return []
    bounds = [number * len(cores) // shares for number in range(shares + 1)]
    return [cores[start:end] for start, end in pairwise(bounds)]


def find_gpus(environment: Mapping[str, str]) -> list[str]:
    """Return the visible GPUs: those of `CUDA_VISIBLE_DEVICES`, else all that `nvidia-smi` lists.

    As CUDA does, read the variable up to the first entry that is no device: `0,-1,1` is one GPU.
    """
    visible = environment.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return [uuid for uuids in _parse_gpus(_nvidia_smi()) for uuid in uuids]
    names = [name.strip() for name in visible.split(",")]
    gpus = list(takewhile(re.compile(r"\d+|(GPU|MIG)-\S+").fullmatch, names))
    cards = len(_parse_gpus(_nvidia_smi())) if any(gpu.isdigit() for gpu in gpus) else 0
    # Without nvidia-smi the number of cards is unknown
    return list(takewhile(lambda gpu: not gpu.isdigit() or cards == 0 or int(gpu) < cards, gpus))


def _nvidia_smi() -> str:
    """Return the output of `nvidia-smi -L`; empty if it does not work."""
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return listed.stdout


def _parse_gpus(listed: str) -> list[list[str]]:
    """Return the UUIDs of each card in the output of `nvidia-smi -L`: those of its MIG instances, if any."""
    cards = re.split(r"^GPU ", listed, flags=re.MULTILINE)[1:]
    identities = [re.findall(r"\(UUID: ([^)]+)\)", card) for card in cards]
    return [uuids[1:] or uuids for uuids in identities]


def _affinity() -> list[int]:
    """Return the cores that this process may use; empty where the system does not report them."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


def _cores() -> int:
    """Return the number of cores that this process may use, also by the limit of a container."""
    return int(min(len(_affinity()) or os.cpu_count() or 1, _quota()))


def _quota() -> float:
    """Return the number of cores of which the control group has the time; infinite without a limit."""
    try:
        quota, period = CPU_LIMIT.read_text(encoding="ascii").split()
    except (OSError, ValueError):
        return math.inf
    return math.inf if quota == "max" else max(1, int(quota) // int(period))


def _thread_limit(cores: int) -> int:
    """Return the number of threads that `OMP_NUM_THREADS` asks for; all cores if it is not set."""
    asked = os.environ.get("OMP_NUM_THREADS", "")
    return int(asked) if re.fullmatch(r"[1-9]\d*", asked) else cores
