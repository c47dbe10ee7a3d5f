"""Daemons of clusters and servers that tests start."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from attnlab.files.run_directory import Run


@contextmanager
def daemon(
    command: list[str], folder: Path, environment: dict[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command in a session of its own, with its output in output.txt; end the session at the end."""
    with (folder / "output.txt").open("ab") as output:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(20)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def kill_all(marker: str) -> None:
    """Kill every process with this text in its environment, as if its machine stopped."""
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if marker.encode() in (folder / "environ").read_bytes():
                os.kill(int(folder.name), signal.SIGKILL)


def processes(start: str) -> list[Path]:
    """Return the folders in /proc of the processes whose command line starts with this text."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (folder / "cmdline").read_bytes().startswith(start.encode()):
                found.append(folder)
    return found


def free_ports(count: int) -> list[int]:
    """Return ports that no process uses now."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def wait_for(condition: Callable[[], object], seconds: float = 240) -> None:
    """Wait until a condition is true."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.2)


HOLD = "import sys; from attnlab.files.run_directory import Run; from pathlib import Path\n"
HOLD += "with Run(Path(sys.argv[1])).lock(): print(flush=True); sys.stdin.readline()"


@contextmanager
def held(run: Run) -> Iterator[subprocess.Popen[bytes]]:
    """Let another process hold the lock of a run inside the block, or until its standard input ends."""
    with subprocess.Popen([sys.executable, "-c", HOLD, str(run.directory)], stdin=-1, stdout=-1) as holder:
        holder.stdout.readline()
        yield holder
