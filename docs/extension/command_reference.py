"""Directive `{commands}`: a section for every command, with the text that it prints with `--help`."""

import subprocess
import sys
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from attnlab.cli.main import commands
from configuration_reference import note_code


class Commands(SphinxDirective):
    """The help texts, printed while the documentation is built."""

    def run(self) -> list[nodes.Node]:
        """Return one section per command."""
        note_code(self.env)
        return [self._section(command) for command in commands()]

    def _section(self, command: str) -> nodes.section:
        program = Path(sys.executable).with_name("attnlab")
        done = subprocess.run([program, command, "--help"], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise self.error(f"attnlab {command} --help failed: {done.stderr}")
        section = nodes.section("", ids=[f"attnlab-{command}"], names=[f"attnlab {command}"])
        section += nodes.title("", "", nodes.literal("", f"attnlab {command}"))
        section += nodes.literal_block(done.stdout, done.stdout, language="text")
        return section


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("commands", Commands)
    return {"parallel_read_safe": True}
