"""Mutation testing: apply one change of the list to the code, run narrow tests, and record whether they fail.

python tests/mutations/run.py [--list drawn] [--quick] [--only TEXT]: run mutations.csv or drawn.csv, one line
after the other, and append to results.csv or drawn-results.csv; those that it already contains are left out.

Libraries are imported once. Each mutation is a forked process that imports attnlab with the changed line and
runs its tests, so that no file changes. A mutation is killed if a test fails or the limit of time is reached,
and survives if all tests pass, slow ones last (with --quick, they are not run, and reaching the limit is no
result). Tests that do not pass on the unchanged code are reported instead.
"""

from __future__ import annotations

import argparse
import csv
import importlib
import os
import signal
import sys
import time
from functools import cache
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
LIMIT = 240  # seconds
QUICK_LIMIT = 600  # for machines with load, since a mutation then is not killed by time
PASSED = (0, 5)  # exit codes of pytest: all tests passed, no test was selected
LIBRARIES = (
    *("torch", "lightning", "hydra", "omegaconf", "torchmetrics", "sacrebleu", "tokenizers", "scipy.stats"),
    *("matplotlib.figure", "pytest", "rich.progress", "torch.optim", "torch.distributed"),
)


def main() -> None:
    """Run the selected mutations and write one line of results each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", metavar="TEXT", default="", help="files whose path contains this text")
    parser.add_argument(
        "--list", choices=("mutations", "drawn"), default="mutations", help="list of mutations"
    )
    parser.add_argument("--quick", action="store_true", help="leave out slow tests")
    options = parser.parse_args()
    os.chdir(ROOT)
    for library in LIBRARIES:
        importlib.import_module(library)
    with (HERE / f"{options.list}.csv").open(newline="") as file:
        mutations = list(csv.DictReader(file))
    results = HERE / ("results.csv" if options.list == "mutations" else "drawn-results.csv")
    if not results.exists():
        results.write_text("number,file,line,result,seconds\n")
    done = {row["number"] for row in csv.DictReader(results.read_text().splitlines())}
    with results.open("a", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        for number, mutation in enumerate(mutations):
            if str(number) in done or options.only not in mutation["file"]:
                continue
            start = time.monotonic()
            result = run(mutation, quick=options.quick)
            row = (number, mutation["file"], mutation["line"], result, f"{time.monotonic() - start:.0f}")
            writer.writerow(row)
            file.flush()
            print(*row, flush=True)


def mutate(mutation: dict[str, str]) -> str | None:
    """Return the changed source; None if the old line no longer exists. The nearest equal line is changed."""
    lines = (ROOT / mutation["file"]).read_text(encoding="utf-8").splitlines()
    hits = [number for number, line in enumerate(lines) if line.strip() == mutation["old"]]
    if not hits:
        return None
    place = min(hits, key=lambda number: abs(number + 1 - int(mutation["line"])))
    lines[place] = lines[place].replace(mutation["old"], mutation["new"])
    return "\n".join(lines) + "\n"


def run(mutation: dict[str, str], *, quick: bool) -> str:
    """Run the tests on the mutated code; return "killed", "killed by time", "survived" or an obstacle."""
    source = mutate(mutation)
    if source is None:
        return "stale"
    if not mutation["tests"]:
        return "no test"
    for marker in ("not slow",) if quick else ("not slow", "slow"):
        limit = QUICK_LIMIT if quick else LIMIT
        status = run_tests(mutation["tests"], marker, str(ROOT / mutation["file"]), source, limit=limit)
        if status not in PASSED:
            if not passes_unchanged(mutation["tests"], marker):
                return "tests fail without it"
            if status is None:
                return "no result in time" if quick else "killed by time"
            return "killed"
    return "survived"


@cache
def passes_unchanged(tests: str, marker: str) -> bool:
    """Return whether the tests pass without a mutation."""
    return run_tests(tests, marker) in PASSED


def run_tests(
    tests: str, marker: str, path: str = "", source: str = "", *, limit: float = LIMIT
) -> int | None:
    """Run tests in a forked process; return pytest's exit code, None if the limit of time is reached.

    Args:
        tests: files and names of tests, separated by spaces.
        marker: expression that selects some of them.
        path: a module whose source is replaced; empty for none.
        source: its new source.
        limit: limit of time in seconds.
    """
    child = os.fork()
    if child == 0:
        os.setsid()
        if path:
            replace_source(path, source)
        output = os.open(os.devnull, os.O_WRONLY)
        os.dup2(output, 1)
        os.dup2(output, 2)
        pytest = importlib.import_module("pytest")
        options = ["-x", "-q", "-n", "0", "-m", marker, "-p", "no:cacheprovider"]
        options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # plugins are imported already
        os._exit(int(pytest.main([*options, *tests.split()])))
    deadline = time.monotonic() + limit
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.1)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def replace_source(path: str, source: str) -> None:
    """Let the import system compile `source` for the module at `path`."""
    original = SourceFileLoader.get_code

    def get_code(loader: SourceFileLoader, name: str) -> CodeType | None:
        if os.path.realpath(loader.path) == os.path.realpath(path):
            return compile(source, path, "exec", dont_inherit=True)
        return original(loader, name)

    SourceFileLoader.get_code = get_code


if __name__ == "__main__":
    sys.exit(main())
