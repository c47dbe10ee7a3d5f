"""Training curves of a run."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from attnlab.metrics.registry import METRICS, metric
from attnlab.report.curves import plot_curves
from attnlab.report.files import save_png_and_svg


def save_training_curves(series: Mapping[str, Sequence[tuple[int, float]]], folder: Path) -> None:
    """Plot curves of training, a PNG and an SVG for each group of metrics with one scale.

    The groups are loss, learning rate, accuracies, BLEU-like scores, error rates and attention metrics.
    """
    attention = [
        name
        for name, info in METRICS.items()
        if info.kind == "attention" and info.format in ("share", "fraction") and info.direction != "lower"
    ]
    decoded = {name: info for name, info in METRICS.items() if info.kind in ("token", "text")}
    by_format = {
        format: [f"val/{name}" for name, info in decoded.items() if info.format == format]
        for format in ("share", "points", "percent", "rate")
    }
    figures = {
        "loss": ("loss, in nats", ["train/loss_epoch", "val/loss"]),
        "learning_rate": ("learning rate", [name for name in series if name.startswith("lr-")]),
        "accuracy": ("accuracy, in %", by_format["share"]),
        "bleu": ("score, 0 to 100", by_format["points"]),
        "error_rate": ("error rate, in %", [*by_format["percent"], *by_format["rate"]]),
        "attention": ("attention", attention),
    }
    for title, (label, names) in figures.items():
        chosen = {name: series[name] for name in names if name in series}
        if label.endswith("%"):
            chosen = {
                name: [(step, metric(name).scale * value) for step, value in points]
                for name, points in chosen.items()
            }
        if chosen:
            save_png_and_svg(plot_curves(chosen, y_label=label), folder / title)
