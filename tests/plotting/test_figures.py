from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, get_font
from matplotlib.patches import Rectangle
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from attnlab.plotting import figures


def row_labels(figure: Figure) -> list[Text]:
    return figure.axes[0].get_yticklabels()


def column_labels(figure: Figure) -> list[Text]:
    return figure.axes[0].get_xticklabels()


def words(texts: Sequence[Text]) -> list[str]:
    return [text.get_text() for text in texts]


def pixels(figure: Figure) -> np.ndarray:
    """[height, width, 4], 0 to 1; drawing raises whatever matplotlib would warn of."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba()) / 255


def drawn_label(token: str) -> Text:
    """The label of the only row, its picture drawn."""
    figure = figures.heatmap([[0.5]], ["x"], [token], title=token)
    pixels(figure)
    return row_labels(figure)[0]


def test_rows_are_targets_and_columns_are_sources() -> None:
    weights = [[0.0, 0.004, 1.0], [0.25, 0.75, 0.0]]
    figure = figures.heatmap(weights, ["a", "b", "c"], ["x", "y"], title="two by three")
    axes = figure.axes[0]
    assert words(row_labels(figure)) == ["x", "y"]
    assert words(column_labels(figure)) == ["a", "b", "c"]
    assert axes.get_title("left") == "two by three"
    # (column, row) of each value; what would read 0.00 is left out
    printed = {text.get_position(): text.get_text() for text in axes.texts}
    assert printed == {(2, 0): "1.00", (0, 1): "0.25", (1, 1): "0.75"}


def test_darker_is_more_on_a_scale_that_is_always_the_same() -> None:
    figure = figures.heatmap([[0.0, 0.2], [0.4, 0.3]], ["a", "b"], ["x", "y"])
    picture, axes = pixels(figure), figure.axes[0]

    def lightness(row: int, column: int) -> float:
        x, y = axes.transData.transform((column - 0.4, row - 0.4))
        return float(picture[picture.shape[0] - round(y), round(x), :3].mean())

    assert lightness(0, 0) > lightness(0, 1) > lightness(1, 1) > lightness(1, 0) > 0.5
    assert axes.images[0].get_clim() == (0, 1)


def test_the_colours_keep_their_order_in_grey() -> None:
    image = figures.heatmap([[0.0]], ["a"], ["x"]).axes[0].images[0]
    grey = image.get_cmap()(np.linspace(0, 1, 101))[:, :3] @ [0.2126, 0.7152, 0.0722]
    assert (np.diff(grey) < 0).all()


def test_values_give_way_to_a_colour_bar_where_cells_are_small() -> None:
    small = figures.heatmap(np.eye(9), list("abcdefghi"), list("abcdefghi"))
    large = figures.heatmap(np.eye(30, 50), ["s"] * 50, ["t"] * 30)
    assert len(small.axes[0].texts) == 9
    assert small.axes[0].child_axes == []
    assert len(large.axes[0].texts) == 0
    assert len(large.axes[0].child_axes) == 1


@pytest.mark.parametrize("shape", [(1, 1), (9, 9), (30, 50), (300, 200), (2, 500)])
def test_everything_lies_within_a_picture_of_bounded_size(shape: tuple[int, int]) -> None:
    source, target = [f"source{i}" for i in range(shape[1])], [f"target{i}" for i in range(shape[0])]
    figure = figures.heatmap(np.zeros(shape), source, target)
    width, height = figure.get_size_inches()
    assert width < 14
    assert height < 11
    content = figure.get_tightbbox()
    # Half a pixel of rounding aside
    assert Bbox([[0, 0], [width, height]]).padded(0.01).contains(content.x0, content.y0)
    assert Bbox([[0, 0], [width, height]]).padded(0.01).contains(content.x1, content.y1)


def test_labels_are_thinned_where_they_would_touch() -> None:
    figure = figures.heatmap(np.zeros((300, 40)), [str(i) for i in range(40)], [str(i) for i in range(300)])
    labels = words(row_labels(figure))
    assert words(column_labels(figure)) == [str(i) for i in range(40)]
    # 8 inches hold 38 labels 0.21 inches apart: every 8th of 300
    assert labels == [str(i) for i in range(0, 300, 8)]
    extents = [label.get_window_extent() for label in row_labels(figure)]
    assert all(upper.y0 >= lower.y1 for upper, lower in pairwise(extents))


def test_only_wide_labels_slant() -> None:
    upright = figures.heatmap(np.zeros((1, 3)), ["11", "3", "42"], ["x"])
    slanting = figures.heatmap(np.zeros((1, 3)), ["11", "3", "internationally"], ["x"])
    assert [label.get_rotation() for label in column_labels(upright)] == [0, 0, 0]
    assert [label.get_rotation() for label in column_labels(slanting)] == [45, 45, 45]


@pytest.mark.parametrize(
    ("token", "label"),
    [
        ("$x_1^2$", "$x_1^2$"),
        ("$", "$"),
        ("<s>", "<s>"),
        ("glücklich", "glücklich"),
        ("a b", "a␣b"),
        ("\n\t", "↵⇥"),
        ("", ""),
        ("a\u200bb", "aU+200Bb"),
        ("\x00", "U+0000"),
        ("\ud800", "U+D800"),
        ("\U0010fffe", "U+10FFFE"),
        ("a" * 18, "a" * 18),
        ("a" * 19, "a" * 17 + "…"),
        ("a" * 16 + "e\u0301" * 5, "a" * 16 + "…"),
    ],
)
def test_tokens_show_as_themselves(token: str, label: str) -> None:
    text = drawn_label(token)
    assert text.get_text() == label
    assert not text.get_parse_math()


@settings(max_examples=15, deadline=None)
@given(st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=8))
@example("क्ष्म\u200dी")
@example("مرحبا")
@example("日本語中文한국어")
@example("Straße")
def test_every_letter_has_a_font(token: str) -> None:
    text = drawn_label(token)
    fonts = [get_font(findfont(FontProperties(family=name))) for name in text.get_fontfamily()]
    for letter in text.get_text():
        assert any(font.get_char_index(ord(letter)) for font in fonts)


def test_a_word_is_not_torn_between_fonts() -> None:
    # The default font holds the joiner, but the cluster around it is shaped in the font that holds it whole
    label = drawn_label("क्ष\u200dी")
    if "U+" in label.get_text():
        pytest.skip("no font with Devanagari is installed")
    font = get_font(findfont(FontProperties(family=label.get_fontfamily()[0])))
    assert all(font.get_char_index(ord(letter)) for letter in "क्ष\u200dी")


def test_gold_alignment_is_framed() -> None:
    figure = figures.heatmap(np.zeros((2, 3)), list("abc"), list("xy"), alignment=[[0, 0, 1], [1, 0, 0]])
    frames = [patch.get_xy() for patch in figure.axes[0].patches if isinstance(patch, Rectangle)]
    assert frames == [(1.5, -0.5), (-0.5, 0.5)]


@pytest.mark.parametrize("shape", [(3, 2), (6,), (2, 4)])
def test_arrays_must_fit_the_tokens(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"weights have shape .* but there are 2 target and 3 source"):
        figures.heatmap(np.zeros(shape), list("abc"), list("xy"))
    with pytest.raises(ValueError, match="alignment have shape"):
        figures.heatmap(np.zeros((2, 3)), list("abc"), list("xy"), alignment=np.zeros(shape))


def test_no_cell_is_no_picture() -> None:
    with pytest.raises(ValueError, match="neither may be 0"):
        figures.heatmap(np.zeros((0, 3)), list("abc"), [])


def test_curves_are_drawn_through_their_points() -> None:
    series = {"$a_1$": [(0, 2.0), (10, 1.5), (20, 1.0)], "_b": [(10, 0.5)], "none": []}
    figure = figures.curves(series, title="loss", y_label="nats per token")
    pixels(figure)
    axes = figure.axes[0]
    assert [line.get_xydata().tolist() for line in axes.lines] == [
        [list(point) for point in points] for points in series.values()
    ]
    assert [line.get_marker() for line in axes.lines] == ["", "o", ""]
    assert words(figure.legends[0].get_texts()) == ["$a_1$", "_b", "none"]
    assert (axes.get_title("left"), axes.get_xlabel(), axes.get_ylabel()) == (
        "loss",
        "step",
        "nats per token",
    )


def test_no_two_curves_look_the_same() -> None:
    figure = figures.curves({str(i): [(0, i), (1, i)] for i in range(20)})
    looks = {(to_rgba(line.get_color()), line.get_linestyle()) for line in figure.axes[0].lines}
    assert len(looks) == 20


def test_no_curves_is_an_empty_frame(tmp_path: Path) -> None:
    figures.save(figures.curves({}), tmp_path / "empty.png")


def test_save_makes_folders_and_leaves_only_the_picture(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "one.png"
    for weight in (0.0, 1.0):
        figures.save(figures.heatmap([[weight]], ["ä"], ["$"]), path)
    assert path.read_bytes().startswith(b"\x89PNG")
    assert list(path.parent.iterdir()) == [path]


def test_both_kinds_lie_side_by_side_and_are_the_same_files_again(tmp_path: Path) -> None:
    found = []
    for name in ("first", "second"):
        written = figures.save_both(
            figures.heatmap([[0.5, 1.0]], ["ä", "$"], ["<b>"]), tmp_path / name / "v1.2"
        )
        assert written == tmp_path / name / "v1.2.png"
        assert written.read_bytes().startswith(b"\x89PNG")
        assert sorted(path.name for path in written.parent.iterdir()) == ["v1.2.png", "v1.2.svg"]
        found.append((written.parent / "v1.2.svg").read_bytes())
    assert found[0] == found[1]
    assert ElementTree.fromstring(found[0]).tag.endswith("svg")


def test_a_failed_save_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "taken.png").mkdir()
    with pytest.raises(OSError, match="taken"):
        figures.save(figures.heatmap([[1.0]], ["a"], ["b"]), tmp_path / "taken.png")
    assert [path.name for path in tmp_path.iterdir()] == ["taken.png"]


def test_drawing_needs_neither_pyplot_nor_torch() -> None:
    heavy = "{'torch', 'matplotlib.pyplot'}"
    code = f"import sys, attnlab.plotting.figures; sys.exit(bool({heavy} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
