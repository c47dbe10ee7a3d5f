"""Directive `{help} COMMAND`: the text that a command prints with `--help`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective


class Help(SphinxDirective):
    """The help text of a command, printed while the documentation is built."""

    required_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        """Return the help text as a literal block."""
        program = Path(sys.executable).with_name("attnlab")
        command = [str(program), *self.arguments[0].split()[1:], "--help"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise self.error(f"{' '.join(command)} failed: {done.stderr}")
        return [nodes.literal_block(done.stdout, done.stdout, language="text")]


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("help", Help)
    return {"parallel_read_safe": True}
