"""Examples of a page: its console and Python blocks, followed from top to bottom in an empty folder.

- A ```` ```console ```` block holds commands after `$ `; the other lines are output and are not compared.
- A ```` ```python ```` block is executed, or saved if its first line is a comment with a file name.
- `<!-- not run: REASON -->` above a block: the commands need a GPU, a cluster, an account, a download or much
  time.
- `<!-- fails: REASON -->` above a block: its last command must end with exit code 1 or 2.

`tutorial_outputs.py` follows the tutorials as they are; `tests/docs/test_documentation.py` follows the other
pages with short trainings.
"""

import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from markdown_it import MarkdownIt

TIMEOUT = 1800  # seconds of one command


class Block(NamedTuple):
    """One fenced block of a page."""

    line: int  # of its opening fence, from 1
    language: str
    marker: str  # "not run", "fails" or ""
    text: str

    @property
    def file(self) -> str:
        """The name of the file as which a Python block is saved, or "" if it is executed."""
        name = re.match(r"# ([\w./-]+\.\w+)\n", self.text)
        return name[1] if name and self.language == "python" else ""

    @property
    def commands(self) -> list[str]:
        """The commands of a console block; a line that ends in a backslash continues."""
        joined = self.text.replace("\\\n", " ")
        return [line.removeprefix("$ ") for line in joined.splitlines() if line.startswith("$ ")]


class Done(NamedTuple):
    """A command of a console block, or the source of Python blocks, and how it ended."""

    block: Block
    command: str
    code: int
    output: str  # standard output and errors, in the order in which a terminal shows them

    @property
    def expected(self) -> bool:
        """True if the command succeeded, or failed where the page says that it fails."""
        fails = self.block.marker == "fails" and self.command == self.block.commands[-1]
        return self.code in ((1, 2) if fails else (0,))


def blocks(text: str) -> list[Block]:
    """Return the console and Python blocks of a page, each with the marker right above it."""
    blocks = []
    marker = ""
    for token in MarkdownIt().parse(text):
        if token.type == "fence" and token.info.strip() in ("console", "python"):
            assert token.map is not None
            blocks.append(Block(token.map[0] + 1, token.info.strip(), marker, token.content))
        comment = re.match(r"<!-- (not run|fails): .+ -->", token.content)
        marker = comment[1] if token.type == "html_block" and comment else ""
    return blocks


def executed(text: str) -> list[Block]:
    """Return the blocks that are not marked as not run."""
    return [block for block in blocks(text) if block.marker != "not run"]


def follow(text: str, folder: Path, environment: Mapping[str, str]) -> Iterator[Done]:
    """Execute the blocks of a page in a folder; yield every command when it has ended."""
    session = ""  # the Python blocks so far: later blocks use their names
    for block, following in pairwise([*executed(text), None]):
        assert block is not None
        if block.file:
            (folder / block.file).parent.mkdir(parents=True, exist_ok=True)
            (folder / block.file).write_text(block.text, encoding="utf-8")
        elif block.language == "python":
            session += block.text
            if following is None or following.language != "python" or following.file:
                command = [sys.executable, "-W", "error::DeprecationWarning:__main__", "-c", session]
                yield Done(block, session, *_run(command, folder, {**environment, "PYTHONPATH": str(folder)}))
        else:
            for line in block.commands:
                command = ["bash", "-o", "pipefail", "-c", line]
                yield Done(block, line, *_run(command, folder, environment))


def _run(command: list[str], folder: Path, environment: Mapping[str, str]) -> tuple[int, str]:
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    return done.returncode, done.stdout
