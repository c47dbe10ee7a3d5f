"""Commands and workers in forks of the test process, which has imported torch and Lightning already.

Starting `attnlab train` takes six seconds of processor time for imports, twice with its worker. A fork has
its own process id, session, signals, working folder, environment and file descriptors, as a started program
has, and executes the same code from its entry point on.
"""

import atexit
import gc
import json
import logging
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

TESTS = str(Path(__file__).parent)
ATTNLAB = str(Path(sys.executable).parent / "attnlab")


class ForkedProcess(subprocess.Popen[Any]):
    """A `Popen` that forks this process for programs of attnlab and its tests, and starts all else."""

    def _execute_child(self, args: Any, *more: Any) -> None:
        names = EXECUTE_CHILD.__code__.co_varnames[2 : EXECUTE_CHILD.__code__.co_argcount]
        options = dict(zip(names, more, strict=True))
        entry = (
            None if isinstance(args, (str, os.PathLike)) else entry_point([os.fspath(arg) for arg in args])
        )
        if entry is None:
            super()._execute_child(args, *more)
            return
        streams = [options["p2cread"], options["c2pwrite"], options["errwrite"]]
        self.pid = fork(
            entry,
            streams,
            options["cwd"],
            options["env"],
            session=options["start_new_session"],
            kept=options["pass_fds"],
        )
        self._child_created = True
        devnull = getattr(self, "_devnull", None)
        ours = (options["p2cwrite"], options["c2pread"], options["errread"])
        for stream, other in zip(streams, ours, strict=True):
            if stream != -1 and other != -1 and stream != devnull:  # the child's end of a pipe
                os.close(stream)
        if devnull is not None:
            os.close(devnull)
        self._closed_child_pipe_fds = True


EXECUTE_CHILD = subprocess.Popen._execute_child


def entry_point(command: Sequence[str]) -> Callable[[], object] | None:
    """Return what a new process of this command would execute, or None for other programs."""
    if command[0] == ATTNLAB:

        def run() -> object:
            from attnlab.cli.main import main

            sys.argv = [*command]
            return main()

        return run
    if command[0] == sys.executable and command[1].startswith(TESTS):

        def run_file() -> object:
            sys.argv = [*command[1:]]
            return runpy.run_path(command[1], run_name="__main__")

        return run_file
    if command[0] == sys.executable and command[1] == "-m" and command[2].startswith("attnlab."):

        def run_module() -> object:
            sys.argv = [command[2], *command[3:]]
            return runpy.run_module(command[2], run_name="__main__", alter_sys=True)

        return run_module
    return None


def fork(
    entry: Callable[[], object],
    streams: Sequence[int],
    folder: str | os.PathLike[str] | None,
    environment: Mapping[str, str] | None,
    *,
    session: bool,
    kept: Sequence[int],
) -> int:
    """Call `entry` in a child process with these streams, or this process's where -1; returns its id.

    All other file descriptors but those in `kept` are closed.
    """
    import_everything()
    sys.stdout.flush()
    sys.stderr.flush()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python 3.12 warns of threads; xdist's only reads messages
        child = os.fork()
    if child:
        return child
    code = 1
    try:
        if session:
            os.setsid()
        for number, stream in enumerate(streams):
            if stream not in (-1, number):
                os.dup2(stream, number)
        for kept_before, kept_next in pairwise([2, *sorted(kept), 1024]):
            os.closerange(kept_before + 1, kept_next)
        become_program(folder, environment)
        code = exit_code(entry)
    finally:
        os._exit(code)


CLIENT = """#!{python} -SE
import json, os, socket, sys
connection = socket.socket(socket.AF_UNIX)
connection.connect({path!r})
request = json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)])
socket.send_fds(connection, [request.encode()], [0, 1, 2])
connection.shutdown(socket.SHUT_WR)
sys.exit(int(connection.makefile().read() or 1))
"""


@contextmanager
def serve_program(program: Path, change: Callable[[list[str]], list[str]] = list) -> Iterator[None]:
    """Create a program for shell scripts that executes `attnlab` in forks of this process.

    Args:
        program: path of the new program, which exists also after the block, but fails then.
        change: returns the arguments that are used instead of the given ones, by default the same.
    """
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as listener:
        path = f"{folder}/socket"  # the paths of pytest's folders are too long for a socket
        listener.bind(path)
        listener.listen()
        program.write_text(CLIENT.format(python=sys.executable, path=path))
        program.chmod(0o755)
        server = fork(
            lambda: accept(listener, change), (), None, None, session=True, kept=(listener.fileno(),)
        )
        try:
            yield
        finally:
            os.kill(server, signal.SIGKILL)
            with suppress(ProcessLookupError):  # it has no group of its own yet
                os.killpg(server, signal.SIGKILL)
            os.waitpid(server, 0)


def accept(listener: socket.socket, change: Callable[[list[str]], list[str]]) -> None:
    """Execute every command in a process of its own."""
    while True:
        connection, _ = listener.accept()
        if os.fork() == 0:
            answer(connection, change)
            os._exit(0)
        connection.close()


def answer(connection: socket.socket, change: Callable[[list[str]], list[str]]) -> None:
    """Execute the command that a client sent, with its streams, and send it the exit code."""
    request, streams, _, _ = socket.recv_fds(connection, 1 << 20, 3)
    while more := connection.recv(1 << 20):
        request += more
    arguments, folder, environment = json.loads(request)
    entry = entry_point([ATTNLAB, *change(arguments)])
    assert entry is not None
    child = fork(entry, streams, folder, environment, session=False, kept=())
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    connection.sendall(str(code % 256).encode())


@cache
def import_everything() -> None:
    """Import in this process what commands and workers import later."""
    import matplotlib as mpl
    import pandas  # noqa: F401
    import wandb.sdk.launch  # noqa: F401

    import attnlab.training.recipe  # noqa: F401

    mpl.use("agg")
    gc.freeze()  # forks share the memory of imported modules


def become_program(folder: str | os.PathLike[str] | None, environment: Mapping[str, str] | None) -> None:
    """Undo what the test process changed since it was started."""
    if folder is not None:
        os.chdir(folder)
    if environment is not None:
        os.environ.clear()
        os.environ.update(environment)
    atexit._clear()
    for number in (signal.SIGTERM, signal.SIGALRM):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", closefd=False, buffering=1, errors="backslashreplace")  # noqa: SIM115
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr
    sys.excepthook = sys.__excepthook__
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:] = [*filter(None, given), *(folder for folder in sys.path if folder not in ("", TESTS))]
    for name in [name for name, module in sys.modules.items() if comes_from_tests(module)]:
        del sys.modules[name]
    warnings.resetwarnings()
    for category in (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning):
        warnings.simplefilter("ignore", category)
    if setup := sys.modules.get("wandb.sdk.wandb_setup"):
        setup._singleton = None  # that of the test process is not valid here
    root = logging.getLogger()
    for handler in [*root.handlers]:
        root.removeHandler(handler)
    root.setLevel(logging.WARNING)
    reset_hydra()
    leave_out_curves()
    subprocess.Popen = ForkedProcess


def leave_out_curves() -> None:
    """Draw no training curves unless `DRAW_CURVES` is set: they take longer than a tiny training."""
    if "DRAW_CURVES" not in os.environ:
        from attnlab.training import recipe

        recipe.save_training_curves = lambda *_: None


def comes_from_tests(module: Any) -> bool:
    path = getattr(module, "__file__", None)
    return path is not None and path.startswith(TESTS) and module.__name__ != __name__


def reset_hydra() -> None:
    from hydra.core.global_hydra import GlobalHydra
    from hydra.core.hydra_config import HydraConfig

    GlobalHydra.instance().clear()
    HydraConfig.instance().cfg = None


def exit_code(entry: Callable[[], object]) -> int:
    """Call `entry` and return the exit code that Python would end with."""
    code: object = 0
    try:
        entry()
    except SystemExit as exit_:
        code = exit_.code
    except KeyboardInterrupt:
        traceback.print_exc()
        sys.stderr.flush()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException:
        traceback.print_exc()
        code = 1
    if code is None:
        code = 0
    elif not isinstance(code, int):
        print(code, file=sys.stderr)
        code = 1
    threading._shutdown()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (BrokenPipeError, ValueError):
            code = 120
    return code & 0xFF
