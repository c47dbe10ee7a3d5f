"""Line plots of series."""

import re
from pathlib import Path

from figure_checks import pixels, texts
from matplotlib.colors import to_rgba

from attnlab.report.curves import plot_curves, save_training_curves


def test_lines_pass_through_their_points() -> None:
    series = {"$a_1$": [(0, 2.0), (10, 1.5), (20, 1.0)], "_b": [(10, 0.5)], "none": []}
    figure = plot_curves(series, y_label="nats per token")
    pixels(figure)
    axes = figure.axes[0]
    assert [line.get_xydata().tolist() for line in axes.lines] == [
        [list(point) for point in points] for points in series.values()
    ]
    assert [line.get_marker() for line in axes.lines] == ["", "o", ""]
    assert texts(figure.legends[0].get_texts()) == ["$a_1$", "_b", "none"]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("step", "nats per token")


def test_attention_metrics_with_one_scale_are_one_figure(tmp_path: Path) -> None:
    names = ("coverage", "alignment_accuracy", "alignment_error", "entropy")
    save_training_curves({f"attention/{name}": [(1, 0.5)] for name in names}, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"attention.png", "attention.svg"}
    labels = re.findall(r"<!-- attention/(\w+) -->", (tmp_path / "attention.svg").read_text())
    assert labels == ["coverage", "alignment_accuracy"]


def test_curves_with_different_units_are_different_figures(tmp_path: Path) -> None:
    stored = {"bleu": 50.0, "chrf": 50.0, "wer": 50.0, "ser": 0.5, "loss": 50.0, "exact_match": 0.5}
    save_training_curves({f"val/{name}": [(1, value)] for name, value in stored.items()}, tmp_path)
    texts = {path.stem: path.read_text() for path in tmp_path.glob("*.svg")}
    assert {name: re.findall(r"<!-- val/(\w+) -->", text) for name, text in texts.items()} == {
        "bleu": ["bleu", "chrf"],
        "error_rate": ["wer", "ser"],
        "loss": ["loss"],
        "accuracy": ["exact_match"],
    }
    labels = {
        "bleu": "score, 0 to 100",
        "error_rate": "error rate, in %",
        "accuracy": "accuracy, in %",
        "loss": "loss, in nats",
    }
    for name, label in labels.items():
        assert f"<!-- {label} -->" in texts[name]


def test_twenty_curves_have_distinct_styles() -> None:
    figure = plot_curves({str(i): [(0, i), (1, i)] for i in range(20)})
    styles = {(to_rgba(line.get_color()), line.get_linestyle()) for line in figure.axes[0].lines}
    assert len(styles) == 20
