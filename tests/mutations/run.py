"""Mutation testing: change one line of the code, run tests that call it, record whether one fails.

python tests/mutations/run.py: draw mutations, run those that results.csv lacks, and append a line for each.

Libraries are imported once. Each mutation is a forked process that imports attnlab with the changed line and
runs the quick tests of a few files until one fails. No file changes. It survives if all pass. The limits are
of processor time, so that other programs do not change a result.
"""

import argparse
import csv
import importlib
import os
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType

from draw import ROOT, Mutation, draw, tests_of

RESULTS = Path(__file__).with_name("results.csv")
COLUMNS = ("file", "line", "old", "new", "result", "test", "seconds")
QUICK, ALL = (f"not clusters and not examples and not experiments{end}" for end in (" and not slow", ""))
LIMIT = 120
"""Processor time in seconds after which a mutation has no result; an endless loop reaches it."""
WAIT = 1200
"""Seconds of the clock after which a mutation has no result; a process that waits reaches them."""
LIBRARIES = (
    *("torch", "lightning", "hydra", "omegaconf", "torchmetrics", "sacrebleu", "tokenizers", "scipy.stats"),
    *("matplotlib.figure", "pytest", "hypothesis", "rich.progress", "torch.optim", "torch.distributed"),
    *("pandas", "torch._dynamo", "wandb.sdk.launch", "jinja2"),
)


def main() -> None:
    """Run the mutations that have no result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=60, help="number of mutations")
    parser.add_argument("--seed", type=int, default=1, help="seed of the draw")
    parser.add_argument(
        "--slow",
        action="store_true",
        help="run survivors again, with more files and slow tests",
    )
    options = parser.parse_args()
    os.chdir(ROOT)
    for library in LIBRARIES:
        importlib.import_module(library)
    if not RESULTS.exists():
        RESULTS.write_text(",".join(COLUMNS) + "\n")
    rows = csv.DictReader(RESULTS.read_text(encoding="utf-8").splitlines())
    results = {(row["file"], row["old"], row["new"]): row["result"] for row in rows}
    with RESULTS.open("a", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        for mutation in draw(options.count, options.seed):
            result = results.get((mutation.file, mutation.old, mutation.new))
            if result == "killed" or (result and not options.slow):
                continue
            start = time.monotonic()
            tests = tests_of(ROOT / mutation.file, 12 if options.slow else 4)
            result, failed = run_tests(tests, ALL if options.slow else QUICK, mutation)
            test = failed[0] if failed else ""
            writer.writerow((*mutation, result, test, f"{time.monotonic() - start:.0f}"))
            file.flush()
            print(mutation.file, mutation.line, result, test, flush=True)


def run_tests(tests: Sequence[str], marker: str, mutation: Mutation) -> tuple[str, list[str]]:
    """Run tests in a forked process until one fails; return "killed", "survived" or "no result in time".

    Args:
        tests: files or names of tests.
        marker: expression that selects some of them.
        mutation: the changed line.
    """
    with tempfile.TemporaryDirectory() as folder:
        failures = Path(folder) / "failures"
        child = os.fork()
        if child == 0:
            os.setsid()
            resource.setrlimit(resource.RLIMIT_CPU, (LIMIT, LIMIT))
            replace_source(mutation)
            output = os.open(os.devnull, os.O_WRONLY)
            os.dup2(output, 1)
            os.dup2(output, 2)
            os._exit(call_pytest(tests, marker, failures))
        deadline = time.monotonic() + WAIT
        status = None
        while status is None and time.monotonic() < deadline:
            done, code = os.waitpid(child, os.WNOHANG)
            status = code if done else None
            time.sleep(0.05)
        if status is None:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
        failed = failures.read_text(encoding="utf-8").splitlines() if failures.exists() else []
    if status is None or os.WIFSIGNALED(status):
        return "no result in time", failed
    return "survived" if os.waitstatus_to_exitcode(status) in (0, 5) else "killed", failed


def call_pytest(tests: Sequence[str], marker: str, failures: Path) -> int:
    """Run tests in this process, write the names of those that fail, and return pytest's exit code."""
    pytest = importlib.import_module("pytest")

    class Failures:
        def pytest_runtest_logreport(self, report: object) -> None:
            if getattr(report, "failed", False):
                with failures.open("a", encoding="utf-8") as file:
                    file.write(f"{report.nodeid}\n")  # type: ignore[attr-defined]

    options = ["-q", "-n", "0", "-m", marker, "-p", "no:cacheprovider", "-x"]
    options += [f"--basetemp={failures.parent}/tests"]
    options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # plugins are imported already
    return int(pytest.main([*options, *tests], plugins=[Failures()]))


def replace_source(mutation: Mutation) -> None:
    """Let the import system compile the changed source of a module."""
    path = ROOT / mutation.file
    lines = path.read_text(encoding="utf-8").splitlines()
    lines[mutation.line - 1] = lines[mutation.line - 1].replace(mutation.old, mutation.new)
    source = "\n".join(lines) + "\n"
    original = SourceFileLoader.get_code

    def get_code(loader: SourceFileLoader, name: str) -> CodeType | None:
        if os.path.realpath(loader.path) == os.path.realpath(path):
            return compile(source, str(path), "exec", dont_inherit=True)
        return original(loader, name)

    SourceFileLoader.get_code = get_code


if __name__ == "__main__":
    sys.exit(main())
