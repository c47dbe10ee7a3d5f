"""What the jobs of a sweep run on: GPUs, or the cores of this machine. Imports no torch.

A *device* is a GPU or one share of the cores. It serves a number of jobs at a time, and a job takes as many
devices as its `trainer.devices` asks for.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from omegaconf import DictConfig

from attnlab.errors import UserError


class Slots:
    """Devices that are handed out to jobs and come back.

    Args:
        devices: GPUs by what `CUDA_VISIBLE_DEVICES` calls them, or any names for shares of the cores.
        gpus: whether the devices are GPUs.
        jobs_per_device: how many jobs a device serves at a time.
        threads: of each process.
    """

    def __init__(
        self, devices: Sequence[str], *, gpus: bool, jobs_per_device: int = 1, threads: int = 1
    ) -> None:
        self.gpus = gpus
        self.threads = threads
        self.count = len(devices)
        self._free = dict.fromkeys(devices, jobs_per_device)

    def take(self, count: int) -> list[str] | None:
        """`count` different devices, those that serve the fewest jobs first; None where they are not free."""
        free = [device for device, jobs in self._free.items() if jobs > 0]
        if len(free) < count:
            return None
        taken = sorted(free, key=lambda device: -self._free[device])[:count]
        for device in taken:
            self._free[device] -= 1
        return taken

    def give_back(self, devices: Iterable[str]) -> None:
        """What `take` gave."""
        for device in devices:
            self._free[device] += 1

    def needed(self, trainer: DictConfig) -> int:
        """How many devices a job with these trainer settings takes.

        Raises:
            UserError: if there are not as many, or the settings name GPUs.
        """
        devices = trainer.devices
        if devices in (-1, "-1") or (devices == "auto" and self.gpus):
            return self.count
        count = 1 if devices == "auto" else int(devices) if re.fullmatch(r"\d+", str(devices)) else 0
        if count == 0:
            raise UserError(
                f"trainer.devices={devices}: a sweep hands out the devices itself, say how many the job needs"
            )
        if count > self.count:
            more = "" if self.gpus else f"; hydra.launcher.slots={count} makes as many"
            raise UserError(f"trainer.devices={devices}: this sweep has {self.count}{more}")
        return count

    def environment(self, devices: Sequence[str]) -> dict[str, str]:
        """What tells a process to use these devices alone, and how many threads.

        Threads wait asleep: where more of them than cores spin, a step takes tens of times as long.
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
    """The slots of this machine for jobs with these trainer settings: GPUs, where there are any to be used.

    Args:
        trainers: the trainer settings of all jobs.
        slots: how many shares to make of the cores; None for one a core.
        jobs_per_gpu: how many jobs a GPU serves at a time.
        threads: of each process; None for an equal part of the cores.

    Raises:
        UserError: at a number below one.
    """
    for name, value in (("slots", slots), ("jobs_per_gpu", jobs_per_gpu), ("threads", threads)):
        if value is not None and (not isinstance(value, int) or value < 1):
            raise UserError(f"hydra.launcher.{name}={value}: give a whole number from 1 on")
    cores = _cores()
    gpus = find_gpus(os.environ) if any(t.accelerator in ("auto", "gpu", "cuda") for t in trainers) else []
    devices = gpus or [str(number) for number in range(slots or cores)]
    jobs_per_device = jobs_per_gpu if gpus else 1
    return Slots(
        devices,
        gpus=bool(gpus),
        jobs_per_device=jobs_per_device,
        threads=threads or max(1, cores // (len(devices) * jobs_per_device)),
    )


def find_gpus(environment: Mapping[str, str]) -> list[str]:
    """The GPUs this process may use: those of `CUDA_VISIBLE_DEVICES`, else all that `nvidia-smi` knows."""
    visible = environment.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return [name.strip() for name in visible.split(",") if name.strip() not in ("", "-1")]
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return parse_gpus(listed.stdout)


def parse_gpus(listed: str) -> list[str]:
    """The UUIDs in what `nvidia-smi -L` prints; a GPU that is cut into MIG instances gives theirs instead."""
    cards = re.split(r"^GPU ", listed, flags=re.MULTILINE)[1:]
    identities: list[list[Any]] = [re.findall(r"\(UUID: ([^)]+)\)", card) for card in cards]
    return [identity for found in identities for identity in (found[1:] or found)]


def _cores() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
