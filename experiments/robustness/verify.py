"""Verify one run of each setting of kill_runs.py with many kills.

    python experiments/robustness/verify.py --kills 1000 --work /tmp/verify

Trains a run of each setting once, and passes it to `attnlab verify`, which trains it again and again, each
worker killed at a random moment, until there were enough kills. Appends a row per verification to verify.csv;
a second start continues with another seed after the rows that exist. Ends at the first run that differs, and
keeps its folder.
"""

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from kill_runs import ATTNLAB, COMMON, ON_TMPFS, SETTINGS
from rows import append_row, read_rows

RESULTS = Path(__file__).with_suffix(".csv")
KILLS = 10
"""Kills per verification."""


def attnlab(*arguments: str, folder: Path, **environment: str) -> str:
    """Run a command and return its output."""
    return subprocess.run(
        [ATTNLAB, *arguments],
        cwd=folder,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    ).stdout


def verify(setting: str, seed: int, work: Path) -> dict[str, object]:
    """Verify the run of a setting; returns the row."""
    folder = work / setting.replace(" ", "_")
    folder.mkdir(parents=True, exist_ok=True)
    attnlab("train", *COMMON, *SETTINGS[setting], folder=folder)  # does nothing if it is finished
    (run,) = folder.glob("outputs/*/*-seed*")
    scratch = folder / f"again{seed}"
    shutil.rmtree(scratch, ignore_errors=True)  # of a verification that did not end
    scratch.mkdir()
    options = ("--kills", str(KILLS), "--seed", str(seed))
    output = attnlab("verify", str(run), *options, folder=folder, TMPDIR=str(scratch))
    match = re.search(r"^(PASS|FAIL) .*?kills: (\d+), trainings: (\d+)", output, re.MULTILINE | re.DOTALL)
    if match is None:
        raise SystemExit(output)
    if match[1] == "FAIL":
        print(output, file=sys.stderr)
    else:
        scratch.rmdir()
    return {
        "setting": setting,
        "seed": seed,
        "kills": int(match[2]),
        "trainings": int(match[3]),
        "result": match[1],
    }


def count(rows: list[dict[str, str]]) -> int:
    """Return the number of kills."""
    return sum(int(row["kills"]) for row in rows)


def summary(rows: list[dict[str, str]]) -> str:
    """Return a Markdown table with one row per setting."""
    lines = ["| setting | kills | trainings | equal |", "| --- | ---: | ---: | --- |"]
    for setting in [*dict.fromkeys(row["setting"] for row in rows), "all"]:
        of_setting = [row for row in rows if setting in (row["setting"], "all")]
        trainings = sum(int(row["trainings"]) for row in of_setting)
        passed = "all" if all(row["result"] == "PASS" for row in of_setting) else "no"
        lines.append(f"| {setting} | {count(of_setting)} | {trainings} | {passed} |")
    return "\n".join(lines)


def main() -> None:
    """Verify the settings in turn until there were enough kills."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--work", type=Path, default=Path("verify"), help="folder of the runs")
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    settings = [setting for setting in SETTINGS if setting not in ON_TMPFS]
    while count(rows := read_rows(RESULTS)) < options.kills:
        setting = settings[len(rows) % len(settings)]
        row = verify(setting, len(rows) // len(settings), options.work.resolve())
        append_row(RESULTS, row)
        done = count(rows) + int(str(row["kills"]))
        print(f"{done} of {options.kills} kills: {row}", file=sys.stderr, flush=True)
        if row["result"] == "FAIL":
            sys.exit(1)
    print(summary(rows))


if __name__ == "__main__":
    main()
