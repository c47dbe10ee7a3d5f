"""Directive `{metrics}`: the table of all metrics, generated from `attnlab.metrics.registry`."""

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from attnlab.metrics.registry import METRICS, Metric
from configuration_reference import note_code

RANGES = {
    "share": "0 to 1, shown in %",
    "rate": "≥ 0, shown in %",
    "percent": "0 to 100, in %",
    "points": "0 to 100",
    "fraction": "0 to 1",
    "signed": "-1 to 1",
    "nats": "nats",
    "positive": "≥ 0",
    "number": "",
}
KINDS = {
    "text": "decoded text",
    "token": "predicted distribution",
    "attention": "attention weights",
    "training": "training",
}


class Metrics(SphinxDirective):
    """One row for each metric of the registry."""

    def run(self) -> list[nodes.Node]:
        """Return the table."""
        note_code(self.env)
        head = ("name", "computed from", "range, unit", "better", "default", "definition")
        lines = [f"| {' | '.join(head)} |", "|" + " --- |" * len(head)]
        for name, metric in METRICS.items():
            default = "" if metric.kind == "text" and not metric.default else "yes"
            cells = (
                f"`{name}`",
                KINDS[metric.kind],
                RANGES[metric.format],
                metric.direction,
                default,
                definition(metric),
            )
            lines.append(f"| {' | '.join(cell or '–' for cell in cells)} |")
        return self.parse_text_to_nodes("\n".join(lines))


def definition(metric: Metric) -> str:
    """Return the first sentence of the function of a text metric, without its verb; other metrics: below."""
    summary, _, _ = (getattr(metric.function, "__doc__", None) or "").partition("\n")
    return summary.removeprefix("Return ").rstrip(".").replace("|", "\\|")


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("metrics", Metrics)
    return {"parallel_read_safe": True}
