"""Outputs of the commands of the tutorials.

The commands of the tutorials are executed while Sphinx reads the other pages, and their outputs are written
below them in their blocks. They are kept in `docs/build/tutorials` and produced again if the commands, the
files that a page writes, or the settings that the commands use change.
"""

import hashlib
import json
import os
import re
import sys
import tempfile
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from textwrap import wrap

from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.errors import ExtensionError
from sphinx.util import logging

from attnlab import __version__
from configuration_reference import CONF, chosen
from examples import Block, executed, follow

CACHE = Path(__file__).parents[1] / "build" / "tutorials"
TUTORIAL = re.compile(r"tutorials/(?!index$)")
MACHINE = re.compile("other programs use the cores")
WIDTH = 100  # columns

logger = logging.getLogger(__name__)


pool = ThreadPoolExecutor(max_workers=len(os.sched_getaffinity(0)))
running: dict[Path, Future[None]] = {}
"""Executions by the files that they write."""


def start(app: Sphinx, env: BuildEnvironment, docnames: Iterable[str]) -> None:
    """Start to execute the tutorials that Sphinx will read, if their outputs are not kept."""
    if app.builder.format == "html":
        for docname in sorted(filter(TUTORIAL.match, docnames)):
            text = env.doc2path(docname).read_text(encoding="utf-8")
            path = cache_file(docname, executed(text))
            if not path.exists():
                running[path] = pool.submit(execute, docname, text, path)


def add_outputs(app: Sphinx, docname: str, source: list[str]) -> None:
    """Add the outputs to the console blocks of a tutorial."""
    if not TUTORIAL.match(docname) or app.builder.format != "html":
        return
    examples = executed(source[0])
    for path in settings_files(examples):
        app.env.note_dependency(str(path))
    path = cache_file(docname, examples)
    if path in running:
        logger.info("waiting for the commands of %s", docname)
        running[path].result()
    source[0] = with_outputs(source[0], json.loads(path.read_text(encoding="utf-8")))


def cancel(app: Sphinx, error: Exception | None) -> None:
    """Do not start more executions after an error."""
    pool.shutdown(wait=False, cancel_futures=True)


def cache_file(docname: str, examples: list[Block]) -> Path:
    """Return the file that keeps the outputs of these examples."""
    texts = [part for block in examples for part in (block.marker, block.text)]
    settings = [path.read_text(encoding="utf-8") for path in settings_files(examples)]
    digest = hashlib.sha256("\0".join([__version__, *texts, *settings]).encode()).hexdigest()
    return CACHE / f"{Path(docname).name}-{digest[:16]}.json"


def execute(docname: str, text: str, path: Path) -> None:
    """Execute the commands of a page and keep their outputs."""
    outputs = outputs_of(docname, text)
    CACHE.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(outputs, ensure_ascii=False, indent=1), encoding="utf-8")


def settings_files(examples: list[Block]) -> list[Path]:
    """Return `conf/train.yaml` and the files of the options that it or a command names."""
    commands = " ".join(command for block in examples for command in block.commands)
    files = [CONF / "train.yaml"]
    names = re.findall(r"[\w@/]+=[\w,]+", commands)
    for name in [*chosen(files[0].read_text(encoding="utf-8")), *names]:
        group, _, options = name.partition("=")
        paths = [CONF / group.partition("@")[0] / f"{option}.yaml" for option in options.split(",")]
        files += [path for path in paths if path.is_file() and path not in files]
    return files


def outputs_of(docname: str, text: str) -> list[str]:
    """Execute the commands of a page in an empty folder and return the output of each."""
    program = Path(sys.executable).parent
    environment = {
        **os.environ,
        "PATH": f"{program}:{os.environ['PATH']}",
        "WANDB_MODE": "offline",
        "OMP_NUM_THREADS": "1",  # pages run at the same time
    }
    outputs = []
    with tempfile.TemporaryDirectory() as folder:
        for done in follow(text, Path(folder), environment):
            if not done.expected:
                raise ExtensionError(f"{docname}:{done.block.line}: {done.command}\n{done.output}")
            if done.block.language == "console":
                outputs.append(done.output.replace(f"{os.path.realpath(folder)}/", ""))
    return outputs


def with_outputs(text: str, outputs: list[str]) -> str:
    """Return a page whose executed commands are followed by their outputs."""
    lines = text.splitlines()
    remaining = iter(outputs)
    places = {}  # line of the last line of a command: its output
    for block in executed(text):
        if block.language == "console":
            continued = False
            for number, line in enumerate(block.text.splitlines(), start=block.line):
                if line.startswith("$ ") or continued:
                    continued = line.endswith("\\")
                    if not continued:
                        places[number] = next(remaining)
    for number in sorted(places, reverse=True):
        lines[number + 1 : number + 1] = shortened(places[number].splitlines())
    return "\n".join(lines) + "\n"


def shortened(lines: list[str]) -> list[str]:
    """Return an output without what is about this machine, and with the first and the last epoch only."""
    lines = [line for line in lines if not MACHINE.match(line)]
    if len(epochs := [number for number, line in enumerate(lines) if line.startswith("epoch ")]) > 3:
        omitted = {number: "…" if number == epochs[1] else None for number in epochs[1:-1]}
        kept = [omitted.get(number, line) for number, line in enumerate(lines)]
        lines = [line for line in kept if line is not None]
    return [part for line in lines for part in wrapped(line)]


def wrapped(line: str) -> list[str]:
    """Return the lines that a terminal shows; tables are not wrapped."""
    return [line] if line.startswith(("┏", "┃", "┡", "│", "└", " ")) else wrap(line, WIDTH) or [line]


def setup(app: Sphinx) -> dict[str, bool]:
    """Start the commands before the pages are read, and add the outputs when a page is."""
    app.connect("env-before-read-docs", start)
    app.connect("source-read", add_outputs)
    app.connect("build-finished", cancel)
    return {"parallel_read_safe": True}
