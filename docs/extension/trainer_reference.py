"""Directive `{trainer-flags}`: the tables of the parts of Lightning that work, from `trainer_rows`."""

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from configuration_reference import note_code
from trainer_rows import ROWS


class TrainerFlags(SphinxDirective):
    """One table for each group of rows."""

    def run(self) -> list[nodes.Node]:
        """Return the tables."""
        note_code(self.env)
        parsed = []
        for title, rows in ROWS.items():
            lines = [f"**{title}**", "", "| code | verdict |", "| --- | --- |"]
            for row in rows:
                given = f" (with `{row.settings}`)" if row.settings else ""
                verdict = f"refused: “{row.refused} …”" if row.refused else "works"
                lines.append(f"| `{row.code}`{given} | {verdict} |")
            parsed += self.parse_text_to_nodes("\n".join(lines))
        return parsed


def setup(app: Sphinx) -> None:
    """Register the directive."""
    app.add_directive("trainer-flags", TrainerFlags)
