"""Figure files."""

from pathlib import Path
from xml.etree import ElementTree

import pytest
from matplotlib.axes import Axes

from attnlab.report.curves import plot_curves
from attnlab.report.files import save, save_png_and_svg
from predictions import attention_of


def test_save_creates_folders_and_leaves_no_temporary_file(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "one.png"
    for weight in (0.0, 1.0):
        save(attention_of([[weight]], ["ä"], ["$"]).plot(), path)
    assert path.read_bytes().startswith(b"\x89PNG")
    assert list(path.parent.iterdir()) == [path]


def test_png_and_svg_of_equal_figures_are_equal(tmp_path: Path) -> None:
    contents = []
    for name in ("first", "second"):
        figure = attention_of([[0.5, 1.0]], ["ä", "$"], ["<b>"]).plot()
        path = save_png_and_svg(figure, tmp_path / name / "v1.2")
        assert path == tmp_path / name / "v1.2.png"
        assert path.read_bytes().startswith(b"\x89PNG")
        assert sorted(path.name for path in path.parent.iterdir()) == ["v1.2.png", "v1.2.svg"]
        contents.append((path.parent / "v1.2.svg").read_bytes())
    assert contents[0] == contents[1]
    assert ElementTree.fromstring(contents[0]).tag.endswith("svg")


def test_figure_is_drawn_once_for_each_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = []
    draw = Axes.draw
    monkeypatch.setattr(Axes, "draw", lambda self, renderer: drawn.append(self) or draw(self, renderer))
    figure = plot_curves({"loss": [(0, 1), (1, 0.5)]})
    save_png_and_svg(figure, tmp_path / "loss")
    assert len(drawn) == 2
    (axes,) = figure.axes
    assert axes.get_tightbbox().x0 == pytest.approx(figure.dpi * 0.04167, abs=1)  # as by the layout engine
