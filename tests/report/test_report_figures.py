"""The figures of a study."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.colors import to_hex

from attnlab.analysis.collect import collect
from attnlab.analysis.study import Study
from attnlab.plotting.style import COLOURS, INK, MUTED, RULE, variant_styles
from attnlab.report import figures, svg
from attnlab.report.figures import Drawing
from studies import make_run

# Of one and of three words
TEXTS = [("a", "x y"), ("b", "x y"), ("a b c", "x y"), ("c b a", "x y")]


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    folder = tmp_path_factory.mktemp("study") / "study"
    for seed, right in ((0, ["x y", "q", "x y", "x y"]), (1, ["x y", "q", "q", "q"])):
        make_run(folder, "dot", seed, TEXTS, hypotheses=right)
        make_run(folder, "a $b$ <c>", seed, TEXTS, hypotheses=["x y"] * 4)
    read = collect([folder])
    for run in read.runs:
        del run.scores["test/bleu"]
    return read


@pytest.fixture(scope="module")
def drawings(study: Study) -> dict[str, Drawing]:
    return {drawing.name: drawing for drawing in figures.draw(study, variant_styles(study.variants))}


def test_every_figure_is_there(drawings: dict[str, Drawing]) -> None:
    assert set(drawings) == {
        "scores-exact_match",
        "by-length",
        "cost-time",
        "cost-parameters",
        "train-loss_epoch",
        "val-loss",
        "attention-entropy",
        "lr",
    }


def test_scores_by_source_length(drawings: dict[str, Drawing], study: Study) -> None:
    axes = drawings["by-length"].figure.axes[0]
    assert axes.get_xlabel() == "source length, in words"
    assert axes.get_ylabel() == "exact match, in %"
    perfect, dot = (line.get_xydata().tolist() for line in axes.lines)
    assert perfect == [[1, 100], [3, 100]]
    # Of one word: a half in both seeds. Of three: all of them in one seed, and none in the other
    assert dot == [[1, 50], [3, 50]]
    (band,) = axes.collections
    assert band.get_datalim(axes.transData).bounds == pytest.approx((1, 0, 2, 100))


def test_bleu_says_nothing_of_references_without_four_words(tmp_path: Path) -> None:
    texts = [("a", "x y z"), ("a b", "x y z"), ("a b c", "v x y z"), ("a b c d", "v w x y z")]
    make_run(tmp_path / "study", "dot", 0, texts, hypotheses=[reference for _, reference in texts])
    study = collect([tmp_path])
    drawn = {drawing.name: drawing for drawing in figures.draw(study, variant_styles(study.variants))}
    (line,) = drawn["by-length"].figure.axes[0].lines
    assert line.get_xydata() == pytest.approx(np.array([[3, 100], [4, 100]]))


def test_a_variant_has_one_colour_in_every_figure(drawings: dict[str, Drawing], study: Study) -> None:
    expected = [style.colour.lower() for style in variant_styles(study.variants).values()]
    for name in ("by-length", "val-loss", "attention-entropy"):
        lines = drawings[name].figure.axes[0].lines
        assert [to_hex(line.get_color()) for line in lines] == expected, name


def test_what_is_the_same_for_all_is_drawn_once(drawings: dict[str, Drawing]) -> None:
    assert len(drawings["lr"].figure.axes[0].lines) == 1
    assert "the same for all variants" in drawings["lr"].caption


def test_in_a_page_texts_are_texts_and_colours_are_names(drawings: dict[str, Drawing], study: Study) -> None:
    element = svg.embed(drawings["scores-exact_match"].figure, variant_styles(study.variants).values())
    root = ElementTree.fromstring(element)
    texts = {text.text for text in root.iter("{http://www.w3.org/2000/svg}text")}
    assert {"dot", "a $b$ <c>", "exact match, in %"} <= texts
    for colour in (INK, MUTED, RULE, *COLOURS[:2]):
        assert colour.lower() not in element
    assert "var(--c0)" in element
    assert "currentColor" in element


def test_as_files_they_name_their_variants(study: Study, tmp_path: Path) -> None:
    looks = variant_styles(study.variants)
    drawings = {drawing.name: drawing for drawing in figures.draw(study, looks)}
    sizes = {name: drawing.figure.get_size_inches().tolist() for name, drawing in drawings.items()}
    figures.write(list(drawings.values()), looks, tmp_path)
    assert sorted(path.stem for path in tmp_path.iterdir()) == sorted(drawings)
    assert ElementTree.parse(tmp_path / "val-loss.svg").getroot().tag.endswith("svg")
    for name, drawing in drawings.items():
        named = [text.get_text() for legend in drawing.figure.legends for text in legend.get_texts()]
        # The learning rate, and here the training loss too, are the same for all
        by_itself = name in ("scores-exact_match", "lr", "train-loss_epoch")
        assert named == ([] if by_itself else ["a $b$ <c>", "dot"]), name
        assert (drawing.figure.get_size_inches().tolist() == sizes[name]) == by_itself
