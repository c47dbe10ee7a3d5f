"""Attention heat maps as figures."""

import subprocess
import sys
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from figure_checks import pixels, texts
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.text import Text
from matplotlib.transforms import Bbox
from numpy.typing import ArrayLike

from attnlab.errors import UserError
from attnlab.files.predictions import Prediction
from attnlab.report.files import InlineFigure
from predictions import attention_of


def plot_heatmap(
    weights: ArrayLike, source: Sequence[str], target: Sequence[str], title: str = ""
) -> InlineFigure:
    return attention_of(weights, source, target).plot(title)


def row_labels(figure: Figure) -> Sequence[Text]:
    return figure.axes[0].get_yticklabels()


def column_labels(figure: Figure) -> Sequence[Text]:
    return figure.axes[0].get_xticklabels()


def test_rows_are_targets_and_columns_are_sources() -> None:
    weights = [[0.0, 0.004, 1.0], [0.25, 0.75, 0.0]]
    figure = plot_heatmap(weights, ["a", "b", "c"], ["x", "y"], title="two by three")
    axes = figure.axes[0]
    assert texts(row_labels(figure)) == ["x", "y"]
    assert texts(column_labels(figure)) == ["a", "b", "c"]
    assert axes.get_title("left") == "two by three"
    # (column, row) of each value; values that round to 0.00 are omitted
    printed = {text.get_position(): text.get_text() for text in axes.texts}
    assert printed == {(2, 0): "1.00", (0, 1): "0.25", (1, 1): "0.75"}


def test_larger_weights_are_darker_on_a_fixed_scale() -> None:
    figure = plot_heatmap([[0.0, 0.2], [0.4, 0.3]], ["a", "b"], ["x", "y"])
    image, axes = pixels(figure), figure.axes[0]

    def lightness(row: int, column: int) -> float:
        x, y = axes.transData.transform((column - 0.4, row - 0.4))
        return float(image[image.shape[0] - round(y), round(x), :3].mean())

    assert lightness(0, 0) > lightness(0, 1) > lightness(1, 1) > lightness(1, 0) > 0.5
    assert axes.images[0].get_clim() == (0, 1)


def test_small_cells_have_a_colour_bar_instead_of_values() -> None:
    few = plot_heatmap(np.eye(9), list("abcdefghi"), list("abcdefghi"))
    many = plot_heatmap(np.eye(30, 50), ["s"] * 50, ["t"] * 30)
    assert len(few.axes[0].texts) == 9
    assert few.axes[0].child_axes == []
    assert len(many.axes[0].texts) == 0
    assert len(many.axes[0].child_axes) == 1


@pytest.mark.parametrize("shape", [(1, 1), (9, 9), (30, 50), (300, 200), (2, 500)])
def test_content_fits_into_a_figure_of_bounded_size(shape: tuple[int, int]) -> None:
    source, target = [f"source{i}" for i in range(shape[1])], [f"target{i}" for i in range(shape[0])]
    figure = plot_heatmap(np.zeros(shape), source, target)
    width, height = figure.get_size_inches()
    assert width < 14
    assert height < 11
    content = figure.get_tightbbox()
    # Up to half a pixel of rounding
    assert Bbox([[0, 0], [width, height]]).padded(0.01).contains(content.x0, content.y0)
    assert Bbox([[0, 0], [width, height]]).padded(0.01).contains(content.x1, content.y1)


def test_overlapping_labels_are_thinned_out() -> None:
    figure = plot_heatmap(np.zeros((300, 40)), [str(i) for i in range(40)], [str(i) for i in range(300)])
    assert texts(column_labels(figure)) == [str(i) for i in range(40)]
    # 38 labels, 0.21 inches apart, fit into 8 inches: every 8th of 300
    assert texts(row_labels(figure)) == [str(i) for i in range(0, 300, 8)]
    extents = [label.get_window_extent() for label in row_labels(figure)]
    assert all(upper.y0 >= lower.y1 for upper, lower in pairwise(extents))


def test_only_wide_labels_are_rotated() -> None:
    narrow = plot_heatmap(np.zeros((1, 3)), ["11", "3", "42"], ["x"])
    wide = plot_heatmap(np.zeros((1, 3)), ["11", "3", "internationally"], ["x"])
    assert [label.get_rotation() for label in column_labels(narrow)] == [0, 0, 0]
    assert [label.get_rotation() for label in column_labels(wide)] == [45, 45, 45]


@pytest.mark.parametrize(
    ("token", "label"),
    [
        ("$x_1^2$", "$x_1^2$"),
        ("$", "$"),
        ("<s>", "<s>"),
        ("glücklich", "glücklich"),
        ("a b", "a␣b"),
        ("\n\t", "↵⇥"),
        ("", "∅"),
        ("a\u200bb", "aU+200Bb"),
        ("\u200c", "U+200C"),  # alone, joiners and selectors select no glyph
        ("\u200d\ufe0f", "U+200DU+FE0F"),
        ("\u3164", "U+3164"),
        ("\x00", "U+0000"),
        ("\ud800", "U+D800"),
        ("\U0010fffe", "U+10FFFE"),
        ("a" * 18, "a" * 18),
        ("a" * 19, "a" * 17 + "…"),
        ("a" * 16 + "e\u0301" * 5, "a" * 16 + "…"),
    ],
)
def test_token_labels(token: str, label: str) -> None:
    figure = plot_heatmap([[0.5]], ["x"], [token], title=token)
    pixels(figure)
    text = row_labels(figure)[0]
    assert text.get_text() == label
    assert not text.get_parse_math()


def test_prediction_has_axis_titles_and_its_texts() -> None:
    prediction = Prediction(
        index=0,
        source="ä $b",
        references=("x",),
        hypothesis="y " * 60,
        source_tokens=["ä", "$b"],
        tokens=["y", "<eos>", "z"],
        weights=np.array([[0.0, 0.9], [0.3, 0.2], [0.1, 0.4]]),
        probabilities=[0.97, 0.5, 0.004],
        alignment=[[0, 1], [2, 0]],
    )
    figure = prediction.plot("one")
    (axes,) = figure.axes
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("source tokens", "output tokens")
    printed = [text.get_text() for text in axes.texts]
    start = printed.index("p")
    assert printed[start : start + 4] == ["p", "0.97", "0.50", "0.00"]
    assert [text.xy[1] for text in axes.texts[start + 1 : start + 4]] == [0, 1, 2]
    lowest = axes.get_window_extent().y0
    assert all(text.get_window_extent().y1 < lowest for text in axes.texts[start + 4 :])
    first, second = (text.get_position()[1] for text in axes.texts[start + 4 : start + 6])
    assert first == second - first  # the first line is one line below the cells
    below = printed[start + 4 :]
    assert below[0] == "source: ä $b"
    assert below[-1] == "reference: x"
    assert " ".join(below[1:-1]) == f"prediction: {'y ' * 60}".strip()  # in lines
    frames = [patch.get_xy() for patch in axes.patches if isinstance(patch, Rectangle)]
    assert frames == [(0.5, -0.5), (-0.5, 1.5)]  # of the gold alignment
    width, height = figure.get_size_inches()
    content = figure.get_tightbbox()
    assert content.x0 > 0 <= content.y0
    assert content.x1 < width
    assert content.y1 < height


def test_prediction_without_weights_is_an_error() -> None:
    prediction = Prediction(index=0, source="a", hypothesis="b")
    with pytest.raises(UserError, match="has no attention weights to plot"):
        prediction.plot()


def test_figures_of_training_import_neither_pyplot_nor_statistics() -> None:
    names = ("curves", "files", "heat_map", "heat_map_figure", "style", "terminal", "text")
    modules = ", ".join(f"attnlab.report.{name}" for name in names)
    heavy = "{'torch', 'matplotlib.pyplot', 'pandas', 'scipy', 'attnlab.report.statistics'}"
    code = f"import sys, {modules}; sys.exit(bool({heavy} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
