"""Ctrl-C and SIGTERM end a command with one line and exit code 75, at any moment."""

import os
import pty
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from attnlab.cli import main
from attnlab.errors import INTERRUPTED, UsageError
from attnlab.files.run_directory import Run
from commands import ATTNLAB, TINY_REVERSE, clean_environment
from daemons import wait_for
from forked import ForkedProcess


def command(monkeypatch: pytest.MonkeyPatch, function: object) -> None:
    """Replace the module of `attnlab report` by one whose `main` is this function."""
    module = ModuleType("attnlab.cli.report", "`attnlab report`: another command")
    module.add_arguments = lambda parser: parser.add_argument("paths", nargs="*")
    module.main = function
    monkeypatch.setitem(sys.modules, "attnlab.cli.report", module)


class Finalised:
    def __del__(self) -> None:
        signal.raise_signal(signal.SIGINT)


def replace(_: object) -> None:
    """A library replaces the exception."""
    try:
        signal.raise_signal(signal.SIGINT)
    except KeyboardInterrupt:
        raise SystemExit(1) from None


def drop(_: object) -> None:
    """Python drops an exception inside a finaliser: the signal is sent again."""
    Finalised()
    time.sleep(10)


def swallow(_: object) -> None:
    """A library handles the exception: the signal is sent again."""
    with suppress(BaseException):
        signal.raise_signal(signal.SIGINT)
    time.sleep(10)


INTERRUPTED_BY = [lambda _: signal.raise_signal(signal.SIGINT), lambda _: signal.raise_signal(signal.SIGTERM)]


@pytest.mark.parametrize("function", [*INTERRUPTED_BY, replace, drop, swallow])
def test_signal_is_one_line(
    function: object, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command(monkeypatch, function)
    assert main.run(["report", "."]) == INTERRUPTED
    assert capsys.readouterr() == ("", "attnlab: interrupted\n")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_usage_errors_and_failures_have_different_exit_codes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    raised = [UsageError("use it otherwise"), PermissionError(13, "Permission denied", "x"), KeyError("bug")]

    def fail(_: object) -> None:
        raise raised.pop(0)

    command(monkeypatch, fail)
    assert [main.run(["report", "."]) for _ in range(3)] == [2, 1, 1]
    assert capsys.readouterr().err.splitlines() == [
        "attnlab: use it otherwise",
        "attnlab: x: Permission denied",
        "attnlab: KeyError: 'bug' (unexpected error; --traceback shows where)",
    ]


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [["predict", "none.ckpt"], ["bench", "--no-search"]], ids=str)
@pytest.mark.parametrize("library", ["_multiarray_umath", "libtorch_python"])
def test_signal_during_imports(arguments: list[str], library: str, tmp_path: Path) -> None:
    """The signal arrives as soon as a compiled library is mapped into memory."""
    process = subprocess.Popen(
        [ATTNLAB, *arguments],
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=clean_environment(),
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    while library not in Path(f"/proc/{process.pid}/maps").read_text():
        assert process.poll() is None
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGINT)
    assert process.communicate(timeout=60) == (b"", b"attnlab: interrupted\n")
    assert process.returncode == INTERRUPTED
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_scores_that_cannot_be_printed_are_a_warning() -> None:
    code = (
        "from pathlib import Path; from attnlab.files.run_directory import Run;"
        "from attnlab.jobs import worker;"
        "worker.replace_standard_streams(required=False);"
        "worker._print_scores(Run(Path('run')), {'val/loss': 1.0})"
    )
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([sys.executable, "-c", code], stdout=full, stderr=-1, text=True, check=True)
    assert "'standard output (/dev/full)': the scores are in run/result.json" in done.stderr


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_output_that_cannot_be_written(tmp_path: Path) -> None:
    """A closed terminal changes nothing in the state of a run; a full disk is one line with the file."""
    train = [ATTNLAB, "train", *TINY_REVERSE, "trainer.max_epochs=5000"]
    options: dict[str, Any] = {"cwd": tmp_path, "env": clean_environment()}

    def fails(*command: str) -> None:
        with Path("/dev/full").open("w") as full:
            done = ForkedProcess([*command], stdout=full, stdin=-1, stderr=-1, text=True, **options)
            _, errors = done.communicate("3 4\n")
        full_disk = "attnlab: standard output (/dev/full): No space left on device"
        assert [line for line in errors.splitlines() if line.startswith("attnlab:")] == [full_disk], errors
        assert "Traceback" not in errors
        assert done.returncode == 1

    fails(*train)
    assert not (tmp_path / "outputs").exists()

    terminal, other_end = pty.openpty()
    process = ForkedProcess(train, stdout=other_end, stderr=other_end, stdin=subprocess.DEVNULL, **options)
    os.close(other_end)
    # The terminal must be read: the worker would wait otherwise
    while not [*tmp_path.glob("outputs/*/*/checkpoints/last.ckpt")]:
        shown = os.read(terminal, 1 << 16)
        assert shown
    os.close(terminal)
    (run,) = (Run(path.parent) for path in tmp_path.glob("outputs/*/*/config.yaml"))
    length = run.metrics.stat().st_size
    wait_for(lambda: run.metrics.stat().st_size > length + 1000)
    process.terminate()
    assert process.wait(60) == INTERRUPTED
    assert run.read_result()["status"] == "interrupted"
    assert "Error" not in run.log.read_text()

    fails(ATTNLAB, "predict", str(run.directory))
    fails(ATTNLAB, "--version")
