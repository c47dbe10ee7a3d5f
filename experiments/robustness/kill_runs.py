"""Kill training runs at random moments, resume them, and compare them with undisturbed runs.

    python experiments/robustness/kill_runs.py --kills 100 --work /tmp/kills

For every setting, one run is trained without disturbance. Then runs with the same setting are disturbed
three times each at random moments and resumed by the same command. A disturbance is a SIGKILL to the command,
to its worker, to the second rank or to all of them, a full disk, or read-only outputs. Afterwards no process
and no temporary file may be left, and the finished run must equal the undisturbed one: weights, optimizer,
metrics and predictions.

Every finished run appends a row to kills.csv beside this script. The script continues after the rows that
exist; delete the file to start again. Disk-full and read-only cases need the permission to mount a tmpfs.
"""

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rows import append_row, read_rows

from attnlab.files.run_directory import Run

ATTNLAB = str(Path(sys.executable).with_name("attnlab"))
RESULTS = Path(__file__).with_name("kills.csv")
DISTURBANCES = 3
"""Disturbances per run."""
END_TIMEOUT = 15.0
"""Seconds in which all processes must have ended."""
TMPFS_SIZE = 20 * 2**20

COMMON = (
    "data.symbols=5",
    "data.train_lengths=[2,4]",
    "data.val_lengths=[2,4]",
    "data.test_lengths=[2,4]",
    "data.train_size=400",
    "data.val_size=20",
    "data.test_size=21",
    "embedding.size=16",
    "encoder.size=16",
    "decoder.size=32",
    "batching.batch_size=16",
    "search.max_length=8",
    "optimizer.lr=0.01",
    "embedding.dropout=0.2",
    "trainer.accelerator=cpu",
    "trainer.max_epochs=6",
    "trainer.log_every_n_steps=2",
    "checkpoint.every_minutes=0",
    "callbacks.attention_figures.count=1",
    "logger=none",
)
PLATEAU = ("scheduler=plateau", "scheduler.schedule.patience=0", "optimizer.lr=0.3")
SETTINGS = {
    "plain": (),
    "averaging": ("callbacks.averaging.decay=0.9",),
    "plateau": PLATEAU,
    "early stopping": (
        "callbacks.early_stopping.patience=2",
        *PLATEAU,
        "trainer.max_epochs=20",
    ),
    "accumulation": ("trainer.accumulate_grad_batches=3", "trainer.val_check_interval=6"),
    "scheduled sampling": ("teacher_forcing.start=0.5", "attention=monotonic"),
    "loader workers": ("batching.workers=2", "batching.batch_type=tokens", "batching.batch_size=150"),
    "two ranks": ("trainer.devices=2", "teacher_forcing.start=0.5"),
    "disk full": (),
    "read-only outputs": (),
}
ON_TMPFS = ("disk full", "read-only outputs")


@dataclass
class Case:
    """One run that is disturbed several times."""

    setting: str
    folder: Path
    seconds: float  # of an undisturbed run
    exit_codes: list[int] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    processes_left: int = 0

    def start(self) -> subprocess.Popen[bytes]:
        """Start `attnlab train` in the folder of the case."""
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "XDG_CACHE_HOME": str(self.folder / "cache")}
        with (self.folder / "output.txt").open("ab") as output:
            return subprocess.Popen(
                [ATTNLAB, "train", *COMMON, *SETTINGS[self.setting]],
                cwd=self.folder,
                stdout=output,
                stderr=output,
                env=environment,
            )

    @property
    def run(self) -> Path | None:
        """The run directory, once it exists."""
        return next(iter(self.folder.glob("outputs/*/*-seed*")), None)

    def status(self) -> str | None:
        """Return the status in result.json."""
        try:
            status: str = json.loads((self.run / "result.json").read_text())["status"]  # type: ignore[operator]
        except (OSError, TypeError, ValueError):
            return None
        return status

    def processes(self) -> list[int]:
        """Return the processes that work in the folder."""
        return [pid for pid in all_processes() if working_folder(pid) == self.folder]

    def wait_for_end(self, command: subprocess.Popen[bytes]) -> None:
        """Wait until the command and all processes have ended; count and kill those that are left."""
        deadline = time.monotonic() + END_TIMEOUT
        while self.processes() and time.monotonic() < deadline:
            command.poll()
            time.sleep(0.05)
        left = self.processes()
        self.processes_left += len(left)
        for process in left:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        self.exit_codes.append(command.wait())
        if "Traceback" in (self.folder / "output.txt").read_text():
            self.problems.append("stack trace")


def all_processes() -> Iterator[int]:
    """Yield the ids of all processes."""
    return (int(path.name) for path in Path("/proc").glob("[0-9]*"))


def working_folder(process: int) -> Path | None:
    """Return the current folder of a process that has not ended."""
    with suppress(OSError):
        return Path(f"/proc/{process}/cwd").readlink()
    return None


def has(process: int, file: str, text: bytes) -> bool:
    """Return whether a file in /proc about a process contains a text."""
    with suppress(OSError):
        return text in Path(f"/proc/{process}/{file}").read_bytes()
    return False


def parent(process: int) -> int:
    """Return the id of the parent of a process; 0 if it has ended."""
    with suppress(OSError):
        return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
    return 0


def sigkill(case: Case, command: subprocess.Popen[bytes], draw: random.Random) -> str:
    """Kill the command, its worker, its second rank, or all; return which."""
    processes = case.processes()
    targets = {
        "command": [command.pid],
        "worker": [p for p in processes if parent(p) == command.pid and has(p, "cmdline", b"jobs.worker")],
        "rank 1": [p for p in processes if has(p, "environ", b"\0LOCAL_RANK=1\0")],
        "all": processes,
    }
    name = draw.choice([name for name, pids in targets.items() if pids])
    for process in targets[name]:
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    return f"SIGKILL {name}"


def fill_disk(case: Case, draw: random.Random) -> Path:
    """Fill the file system of the outputs up to a random number of bytes; return the file that fills it."""
    filler = case.folder / "outputs" / "filler"
    with suppress(OSError), filler.open("wb", buffering=0) as file:
        while file.write(bytes(4096)):
            pass
    with filler.open("rb+") as file:
        file.truncate(max(0, filler.stat().st_size - 4096 * draw.choice((0, 0, 1, 3, 10, 30))))
    return filler


def disturb(case: Case, draw: random.Random) -> str:
    """Start the command, disturb it at a random moment, and wait until all its processes have ended."""
    if case.setting == "read-only outputs" and draw.random() < 0.5:
        subprocess.run(["mount", "-o", "remount,ro", str(case.folder / "outputs")], check=True)
        command = case.start()
        command.wait(120)
        case.wait_for_end(command)
        subprocess.run(["mount", "-o", "remount,rw", str(case.folder / "outputs")], check=True)
        if case.exit_codes[-1] == 0 and case.status() != "finished":
            case.problems.append("exit code 0 with read-only outputs")
        return "read-only"
    command = case.start()
    with suppress(subprocess.TimeoutExpired):
        command.wait(draw.uniform(0, case.seconds))
    if command.poll() is not None:
        name = "none, it had finished"
    elif case.setting == "disk full":
        filler = fill_disk(case, draw)
        with suppress(subprocess.TimeoutExpired):
            command.wait(180)
        filler.unlink()
        name = "disk full"
        if command.poll() not in (0, 1):
            case.problems.append(f"disk full: exit code {command.poll()}")
        elif command.poll() == 1 and case.status() != "failed" and case.run is not None:
            case.problems.append(f"disk full: status {case.status()}")
        if list((case.folder / "outputs").rglob(".*.tmp")):
            case.problems.append("disk full: temporary files")
    else:
        name = sigkill(case, command, draw)
    case.wait_for_end(command)
    return name


def outputs_of(run: Path) -> dict[str, str]:
    """Return a digest of everything that must not depend on disturbances, by file."""
    from attnlab.jobs.verification import digests, read_outputs

    return digests(read_outputs(Run(run)))


@contextmanager
def case_folder(path: Path, *, tmpfs: bool) -> Iterator[Path]:
    """Create an empty folder, with `outputs` on a small tmpfs if needed; remove it at the end."""
    shutil.rmtree(path, ignore_errors=True)
    outputs = path / "outputs"
    outputs.mkdir(parents=True)
    if tmpfs:
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={TMPFS_SIZE}", "tmpfs", outputs], check=True)
    try:
        yield path
    finally:
        if tmpfs:
            subprocess.run(["umount", outputs], check=True)
        shutil.rmtree(path)


def undisturbed(setting: str, work: Path) -> tuple[dict[str, str], float]:
    """Train the undisturbed run of a setting once; return its digests and its seconds."""
    cache = work / f"undisturbed {setting}.json"
    if not cache.exists():
        with case_folder(work / "undisturbed", tmpfs=False) as folder:
            case = Case(setting, folder, 0.0)
            started = time.monotonic()
            code = case.start().wait()
            seconds = time.monotonic() - started
            if code != 0 or case.run is None:
                raise SystemExit((folder / "output.txt").read_text())
            cache.write_text(json.dumps([outputs_of(case.run), seconds]))
    digests, seconds = json.loads(cache.read_text())
    return digests, seconds


def run_case(setting: str, number: int, work: Path) -> dict[str, Any]:
    """Disturb a run, finish it, and compare it with the undisturbed run."""
    expected, seconds = undisturbed(setting, work)
    draw = random.Random(f"{setting} {number}")
    with case_folder(work / "disturbed", tmpfs=setting in ON_TMPFS) as folder:
        case = Case(setting, folder, seconds)
        disturbances = [disturb(case, draw) for _ in range(DISTURBANCES)]
        command = case.start()
        command.wait()
        case.wait_for_end(command)
        equal = case.run is not None and case.status() == "finished" and outputs_of(case.run) == expected
        if list((folder / "outputs").rglob(".*.tmp")):
            case.problems.append("temporary files")
        if not equal:
            kept = work / f"different {setting} {number}"
            shutil.rmtree(kept, ignore_errors=True)
            shutil.copytree(folder, kept)
    return {
        "setting": setting,
        "run": number,
        "disturbances": "; ".join(disturbances),
        "exit_codes": " ".join(map(str, case.exit_codes)),
        "equal": equal,
        "processes_left": case.processes_left,
        "problems": "; ".join(dict.fromkeys(case.problems)),
    }


def count(rows: list[dict[str, str]]) -> int:
    """Count the disturbances of some rows that hit a running command."""
    names = [name for row in rows for name in row["disturbances"].split("; ")]
    return sum(not name.startswith("none") for name in names)


def summary(rows: list[dict[str, str]]) -> str:
    """Return a Markdown table with one row per setting."""
    lines = [
        "| setting | runs | disturbances | equal runs | processes left | problems |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for setting in [*dict.fromkeys(row["setting"] for row in rows), "all"]:
        of_setting = [row for row in rows if setting in (row["setting"], "all")]
        equal = sum(row["equal"] == "True" for row in of_setting)
        left = sum(int(row["processes_left"]) for row in of_setting)
        problems = sum(bool(row["problems"]) for row in of_setting)
        lines.append(
            f"| {setting} | {len(of_setting)} | {count(of_setting)} | {equal} | {left} | {problems} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Disturb runs of all settings in turn until there are enough disturbances."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=100, help="number of disturbances")
    parser.add_argument("--work", type=Path, default=Path("kills"), help="folder of the runs")
    parser.add_argument("--settings", nargs="+", choices=SETTINGS, default=list(SETTINGS))
    options = parser.parse_args()
    work = options.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    settings = list(options.settings)
    if os.geteuid() != 0:
        print("not root: the settings on a tmpfs are left out", file=sys.stderr)
        settings = [setting for setting in settings if setting not in ON_TMPFS]
    while count(rows := read_rows(RESULTS)) < options.kills:
        done = {setting: sum(row["setting"] == setting for row in rows) for setting in settings}
        setting = min(settings, key=lambda setting: done[setting])
        started = time.monotonic()
        row = run_case(setting, done[setting], work)
        append_row(RESULTS, row)
        line = f"{count(read_rows(RESULTS))}/{options.kills} {time.monotonic() - started:.0f} s  {row}"
        print(line, file=sys.stderr, flush=True)
    print(summary(rows))
    failed = [row for row in rows if row["equal"] != "True" or row["problems"]]
    sys.exit(bool(failed or any(row["processes_left"] != "0" for row in rows)))


if __name__ == "__main__":
    main()
