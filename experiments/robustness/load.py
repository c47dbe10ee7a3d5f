"""Train 200 runs on two slots under random kills, resumed by the same command each time.

    python experiments/robustness/load.py --work /tmp/load

Starts one sweep. At random moments it kills a job, the command, or all processes at once as the stop of a
machine does, or it stops the command by SIGTERM. After each stop of the command, no process may be left
after 15 seconds, and the same command starts again. At the end, all runs must be finished, and every run that
was started more than once must equal the same run trained without a disturbance: weights, optimizer, metrics
and predictions. `attnlab report` over all runs must take less than 20 seconds.

Writes load_events.csv, a row per disturbance; load_launcher.csv, memory and open files of the command every
ten seconds; and load_runs.csv, a row per disturbed run. Started again, the script continues.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from device_counts import digest
from kill_runs import all_processes, parent, working_folder
from rows import append_row, read_rows

from attnlab.config.compose import compose_run
from attnlab.files.run_directory import Run, prepare_run
from attnlab.jobs.worker_process import worker_environment

HERE = Path(__file__).parent
ATTNLAB = str(Path(sys.executable).with_name("attnlab"))
END_TIMEOUT = 15.0
"""Seconds in which all processes must have ended."""
POLL_INTERVAL = 1.0
"""Seconds between two checks of the runs."""
SAMPLE_INTERVAL = 10.0
"""Seconds between two samples of the command's memory and open files."""

SETTINGS = (
    "name=load",
    "data.symbols=5",
    "data.train_lengths=[2,4]",
    "data.val_lengths=[2,4]",
    "data.test_lengths=[2,4]",
    "data.train_size=96",
    "data.val_size=20",
    "data.test_size=21",
    "embedding.size=16",
    "embedding.dropout=0.2",
    "encoder.size=16",
    "decoder.size=32",
    "batching.batch_size=16",
    "search.max_length=8",
    "optimizer.lr=0.01",
    "trainer.accelerator=cpu",
    "trainer.log_every_n_steps=2",
    "checkpoint.every_minutes=0.01",
    "callbacks.attention_figures.count=0",
    "logger=none",
)
VARIANTS = ("none", "additive", "dot", "general")
SLOTS = ("hydra.launcher.slots=2", "hydra.launcher.threads=1")

STOPS = {"SIGKILL command": signal.SIGKILL, "SIGTERM command": signal.SIGTERM, "SIGKILL all": signal.SIGKILL}


@dataclass
class Load:
    """One sweep that is disturbed and resumed until all of its runs are finished."""

    work: Path
    results: Path
    runs: int
    epochs: int
    start: int = 0
    command: subprocess.Popen[Any] | None = None
    finished: set[Path] = field(default_factory=set)
    began: float = field(default_factory=time.monotonic)
    launched: float = 0.0  # time of the last start

    @property
    def settings(self) -> tuple[str, ...]:
        """Overrides of all runs."""
        return (*SETTINGS, f"trainer.max_epochs={self.epochs}")

    def launch(self) -> subprocess.Popen[Any]:
        """Start the sweep."""
        self.start, self.launched = self.start + 1, time.time()
        seeds = self.runs // len(VARIANTS)
        sweep = (f"attention={','.join(VARIANTS)}", f"seed=range({seeds})", *SLOTS)
        with (self.work / "output.txt").open("ab") as output:
            return subprocess.Popen(
                [ATTNLAB, "train", "-m", *self.settings, *sweep],
                cwd=self.work,
                env={**os.environ, "OMP_NUM_THREADS": "1", "XDG_CACHE_HOME": str(self.work / "cache")},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def directories(self) -> list[Run]:
        """Return the runs that exist."""
        return [Run(path) for path in sorted((self.work / "outputs" / "load").glob("*-seed*"))]

    def count_finished(self) -> int:
        """Return the number of finished runs."""
        for run in self.directories():
            if run.directory not in self.finished and run.read_result().get("status") == "finished":
                self.finished.add(run.directory)
        return len(self.finished)

    def processes(self) -> list[int]:
        """Return the processes that work in the folder."""
        return [pid for pid in all_processes() if working_folder(pid) == self.work]

    def workers(self) -> list[int]:
        """Return the processes that have trained steps of a run since the last start."""
        assert self.command is not None
        holders = []
        for run in self.directories():
            if run.directory in self.finished:
                continue
            with suppress(OSError, ValueError, IndexError):
                if run.metrics.stat().st_mtime > self.launched:
                    holders.append(int((run.directory / "lock").read_text().split()[1]))
        return sorted({pid for pid in holders if parent(pid) == self.command.pid})

    def train(self, plan: list[tuple[int, str]], draw: random.Random) -> None:
        """Start the sweep again and again until it succeeds, with a disturbance at each (finished, event)."""
        while True:
            self.command = self.launch()
            sampled = 0.0
            due: float | None = None
            while self.command.poll() is None:
                time.sleep(POLL_INTERVAL)
                finished = self.count_finished()
                if time.monotonic() - sampled > SAMPLE_INTERVAL:
                    sampled = time.monotonic()
                    self.sample(finished)
                if plan and finished >= plan[0][0]:
                    due = due or time.monotonic() + draw.uniform(0, 5)
                    if time.monotonic() > due and self.disturb(plan[0][1], draw):
                        plan.pop(0)
                        due = None
            if self.command.returncode == 0:
                return

    def disturb(self, event: str, draw: random.Random) -> bool:
        """Kill or stop processes, and record it; returns False if there is no process of this kind now."""
        assert self.command is not None
        workers = self.workers()
        if not workers:
            return False
        left = 0
        finished = self.count_finished()
        code: int | str = ""
        if event == "SIGKILL job":
            self.kill([draw.choice(workers)], signal.SIGKILL)
        else:
            self.kill(self.processes() if event == "SIGKILL all" else [self.command.pid], STOPS[event])
            code = self.command.wait(120)
            deadline = time.monotonic() + END_TIMEOUT
            while self.processes() and time.monotonic() < deadline:
                time.sleep(0.1)
            left = len(self.processes())
        row = {
            "seconds": round(time.monotonic() - self.began),
            "start": self.start,
            "event": event,
            "finished": finished,
            "exit_code": code,
            "processes_left": left,
        }
        append_row(self.results / "load_events.csv", row)
        return True

    @staticmethod
    def kill(processes: list[int], number: signal.Signals) -> None:
        """Send a signal to processes that may have ended."""
        for process in processes:
            with suppress(ProcessLookupError):
                os.kill(process, number)

    def sample(self, finished: int) -> None:
        """Record the memory and the open files of the command."""
        assert self.command is not None
        folder = Path(f"/proc/{self.command.pid}")
        with suppress(OSError):
            pages = int((folder / "statm").read_text().split()[1])
            files = sum(1 for _ in (folder / "fd").iterdir())
            row = {
                "start": self.start,
                "seconds": round(time.monotonic() - self.began),
                "finished": finished,
                "resident_mib": round(pages * os.sysconf("SC_PAGE_SIZE") / 2**20, 1),
                "open_files": files,
            }
            append_row(self.results / "load_launcher.csv", row)

    def compare(self) -> None:
        """Train every run that was started more than once again without a disturbance; record a row each."""
        done = {row["run"] for row in read_rows(self.results / "load_runs.csv")}
        for run in self.directories():
            starts = run.log.read_text().count("importing PyTorch")
            if starts < 2 or run.directory.name in done:
                continue
            settings = run.read_config()
            overrides = [f"attention={settings.variant}", f"seed={settings.seed}"]
            config = compose_run([*self.settings, *overrides, f"paths.output={self.work / 'undisturbed'}"])
            undisturbed = prepare_run(config)
            assert undisturbed.directory.name == run.directory.name
            worker = subprocess.Popen(
                [sys.executable, "-m", "attnlab.jobs.worker", str(undisturbed.directory)],
                cwd=self.work,
                env={**worker_environment(), "OMP_NUM_THREADS": "1"},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            worker.wait()
            equal = digest(run) == digest(undisturbed)
            row = {"run": run.directory.name, "starts": starts, "equal": equal}
            append_row(self.results / "load_runs.csv", row)

    def report(self) -> tuple[float, int]:
        """Run `attnlab report` over all runs; returns its seconds and its lines of progress."""
        started = time.monotonic()
        completed = subprocess.run(
            [ATTNLAB, "report", "outputs/load"], cwd=self.work, capture_output=True, text=True, check=True
        )
        lines = [line for line in completed.stderr.splitlines() if line.strip()]
        return time.monotonic() - started, len(lines)


def make_plan(options: argparse.Namespace, draw: random.Random) -> list[tuple[int, str]]:
    """Return (number of finished runs, event): the command is stopped in the first half only."""
    stops = [(draw.randrange(1, options.runs // 2), name) for name in [*STOPS] * options.stops]
    kills = [(draw.randrange(1, options.runs), "SIGKILL job") for _ in range(options.kills)]
    return sorted([*stops, *kills])


def growth(samples: list[Mapping[str, str]]) -> str:
    """Return how memory and open files of the longest start changed after its first quarter."""
    starts = [row["start"] for row in samples]
    longest = [row for row in samples if row["start"] == max(starts, key=starts.count)]
    later = longest[len(longest) // 4 :]
    parts = [f"{name} {later[0][name]} to {later[-1][name]}" for name in ("resident_mib", "open_files")]
    return f"command, {later[0]['finished']} to {later[-1]['finished']} finished runs: {', '.join(parts)}"


def main() -> int:
    """Disturb the sweep until all of its runs are finished, and compare; returns the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=200, help="number of runs, a multiple of 4")
    parser.add_argument("--kills", type=int, default=40, help="number of killed jobs")
    parser.add_argument("--stops", type=int, default=2, help="number of stops of each kind")
    parser.add_argument("--epochs", type=int, default=2, help="epochs of each run, of six steps")
    parser.add_argument("--results", type=Path, default=HERE, help="folder of the CSV files")
    parser.add_argument("--work", type=Path, default=Path("load"), help="folder of the runs")
    options = parser.parse_args()
    load = Load(options.work.resolve(), options.results, options.runs, options.epochs)
    load.work.mkdir(parents=True, exist_ok=True)
    draw = random.Random(options.runs)
    plan = make_plan(options, draw)[len(read_rows(options.results / "load_events.csv")) :]
    load.start = max(
        (int(row["start"]) for row in read_rows(options.results / "load_launcher.csv")), default=0
    )
    try:
        load.train(plan, draw)
    finally:
        load.kill(load.processes(), signal.SIGKILL)
    load.compare()

    seconds, lines = load.report()
    events = read_rows(options.results / "load_events.csv")
    runs = read_rows(options.results / "load_runs.csv")
    equal = sum(row["equal"] == "True" for row in runs)
    left = sum(int(row["processes_left"]) for row in events)
    print(f"{load.count_finished()} of {options.runs} runs finished after {len(events)} disturbances")
    print(f"{equal} of {len(runs)} disturbed runs equal the undisturbed ones; {left} processes left")
    print(growth(read_rows(options.results / "load_launcher.csv")))
    print(f"attnlab report: {seconds:.1f} s, {lines} lines of progress")
    complete = load.count_finished() == options.runs and equal == len(runs)
    return 0 if complete and left == 0 and seconds < 20 else 1


if __name__ == "__main__":
    sys.exit(main())
