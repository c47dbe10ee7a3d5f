"""Attention heat maps in a terminal."""

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from attnlab.report.terminal import heatmap_lines
from predictions import attention_of

TOKENS = st.lists(
    st.sampled_from(["a", "longer", "क्षितिज", "कि", "猫猫", "e\u0301", "\u202e", "", " ", "x" * 40]),
    min_size=1,
)


def lines(weights: list[list[float]], source: list[str], target: list[str], width: int = 80) -> list[str]:
    axes, *map_lines = heatmap_lines(attention_of(weights, source, target), width)
    assert axes.plain == "rows: output tokens, columns: source tokens"
    return [line.plain for line in map_lines]


def test_shades_increase_with_weights() -> None:
    assert lines([[0.04, 0.05, 0.25], [0.5, 0.75, 1.0]], ["a", "bb", "ccc"], ["x", "yy"]) == [
        "    a  bb ccc",
        " x     ░░ ▒▒▒",
        "yy  ▓▓ ██ ███",
        "",
    ]


def test_probabilities_are_the_last_column() -> None:
    prediction = attention_of([[1, 0], [0, 1]], ["a", "b"], ["x", "yy"], probabilities=[0.996, 0.25])
    axes, *drawn = heatmap_lines(prediction, 80)
    assert axes.plain == "rows: output tokens, columns: source tokens, p: probability"
    assert [line.plain for line in drawn] == ["    a  b  p   ", " x  ██    1.00", "yy     ██ 0.25", ""]


def test_columns_wrap_in_a_narrow_terminal() -> None:
    assert lines([[1, 0, 1]], ["aaa", "bbb", "ccc"], ["x"], width=10) == [
        "   aaa bbb",
        "x  ███    ",
        "",
        "   ccc",
        "x  ███",
        "",
    ]


@given(TOKENS, TOKENS, st.integers(1, 60))
def test_rows_are_as_wide_as_the_column_header(source: list[str], target: list[str], width: int) -> None:
    drawn = lines([[1.0] * len(source)] * len(target), source, target, width)
    panels = [drawn[start : start + len(target) + 2] for start in range(0, len(drawn), len(target) + 2)]
    for head, *rows, end in panels:
        assert {cell_len(row) for row in rows} == {cell_len(head)}
        assert end == ""
    assert sum("█" in panel[1] for panel in panels) == len(panels)


def test_control_characters_are_shown_as_code_points() -> None:
    head, row, _ = lines([[1.0]], ["\x1b[31m"], ["\u202e"])
    assert "U+001B[31m" in head
    assert row.startswith("U+202E")
