"""Figures of a study."""

import json
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from figure_checks import texts
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from attnlab.report import figures
from attnlab.report.collect import collect
from attnlab.report.figures import StudyFigure, draw_figures, short_names, styles_of, to_svg, write_figures
from attnlab.report.study import Study
from attnlab.report.style import COLOURS, INK, MUTED, RULE, variant_styles
from run_files import study as runs_of
from run_files import with_data, write_run
from studies import make_run

# Sources of one and of three words
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


def draw(study: Study, *metrics: str) -> dict[str, StudyFigure]:
    """Draw the figures of a study, with these metrics if there are any."""
    study = replace(study, selected_metrics=metrics or study.selected_metrics)
    return {figure.name: figure for figure in draw_figures(study, variant_styles(study.variants))}


@pytest.fixture(scope="module")
def drawn(study: Study) -> dict[str, StudyFigure]:
    return draw(study)


def test_all_figures_are_drawn(drawn: dict[str, StudyFigure]) -> None:
    assert set(drawn) == {
        "scores-exact_match",
        "by-length",
        "train-loss_epoch",
        "val-loss",
        "attention-entropy",
    }


def test_axis_of_error_rates_is_in_percent() -> None:
    drawn = draw(runs_of({"dot": [31.0, 33.0]}, "test/wer"))
    axes = drawn["scores-wer"].figure.axes[0]
    assert axes.get_xlabel() == "WER, in %"
    assert axes.lines[0].get_xdata().tolist() == [31, 33]


def test_scores_by_source_length(drawn: dict[str, StudyFigure], study: Study) -> None:
    axes = drawn["by-length"].figure.axes[0]
    assert axes.get_xlabel() == "source length, in tokens"
    assert all(tick == int(tick) for tick in axes.get_xticks())
    assert axes.get_ylabel() == "exact match, in %"
    perfect, dot = (line.get_xydata().tolist() for line in axes.lines)
    assert perfect == [[1, 100], [3, 100]]
    # One word: half are right in both seeds. Three words: all in one seed, none in the other
    assert dot == [[1, 50], [3, 50]]
    (band,) = axes.collections
    assert band.get_datalim(axes.transData).bounds == pytest.approx((1, 0, 2, 100))


def test_long_variant_names_are_truncated(tmp_path: Path) -> None:
    name = "x" * 200
    for variant in (name, "dot"):
        make_run(tmp_path / "study", variant, 0, TEXTS)
    study = collect([tmp_path])
    styles = variant_styles(study.variants)
    drawn = draw_figures(study, styles)
    # Warns if the labels leave no space for the axes
    write_figures(drawn, styles, tmp_path / "figures")
    labels = drawn[0].figure.axes[0].get_yticklabels()
    assert sorted(label.get_text() for label in labels) == ["dot", f"{'x' * 29}…"]


@pytest.mark.parametrize(
    ("metric", "references", "lengths"),
    [
        # BLEU is not defined for references of fewer than four words
        ("test/bleu", ["x y z", "x y z", "v x y z", "v w x y z"], [3, 4]),
        # lengths are counted in the tokens of the metric
        ("test/conala_bleu", ["os.listdir(path)", "x", "f(x, y)"], [1, 3]),
    ],
)
def test_lengths_without_long_references_are_omitted(
    tmp_path: Path, metric: str, references: list[str], lengths: list[int]
) -> None:
    texts = [(" ".join("abcd"[: n + 1]), reference) for n, reference in enumerate(references)]
    make_run(tmp_path / "study", "dot", 0, texts, hypotheses=references)
    study = collect([tmp_path])
    runs = [replace(run, scores=run.scores | {metric: 100.0}) for run in study.runs]
    (line,) = draw(replace(study, runs=runs), metric)["by-length"].figure.axes[0].lines
    assert line.get_xdata().tolist() == lengths
    assert line.get_ydata() == pytest.approx(np.full(2, 100))


def test_variants_have_the_same_colour_in_all_figures(drawn: dict[str, StudyFigure], study: Study) -> None:
    expected = [style.colour.lower() for style in variant_styles(study.variants).values()]
    for name in ("by-length", "val-loss", "attention-entropy"):
        lines = drawn[name].figure.axes[0].lines
        assert [to_hex(line.get_color()) for line in lines] == expected, name


def test_long_curves_have_few_markers(tmp_path: Path) -> None:
    for variant, scale in (("dot", 0.05), ("none", 0.04)):
        run = make_run(tmp_path / "study", variant, 0, TEXTS)
        lines = (f"{step},{step},val/exact_match,{step * scale}\n" for step in range(13))
        run.metrics.write_text("epoch,step,metric,value\n" + "".join(lines))
    drawn = draw(collect([tmp_path / "study"]), "test/exact_match")
    line = drawn["val-exact_match"].figure.axes[0].lines[0]
    assert line.get_markevery() == 2
    assert line.get_ydata()[2] == 10  # in percent


def test_scores_by_source_length_are_those_of_the_test_set_of_the_metric(tmp_path: Path) -> None:
    texts = [("a", "x"), ("a b c", "x y")]
    right, wrong = ([(*text, output) for text in texts] for output in ("x", "z"))
    scores = {"test/a/exact_match": 0.5, "test/b/exact_match": 0.0}
    run = write_run(tmp_path, scores=scores, sentences=right, split="test-a", name="study")
    lines = [
        {"index": i, "source": s, "references": [r], "hypothesis": h} for i, (s, r, h) in enumerate(wrong)
    ]
    (run.predictions / "test-b.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    study = collect([tmp_path / "study"])
    for name, exact in (("a", [100, 0]), ("b", [0, 0])):
        drawn = draw(study, f"test/{name}/exact_match")
        (line,) = drawn["by-length"].figure.axes[0].lines
        assert line.get_ydata().tolist() == exact
        assert drawn["by-length"].title == f"Exact match ({name}) by source length"


def test_length_of_a_word_is_in_characters_without_its_features(tmp_path: Path) -> None:
    texts = [("ab ⟨N⟩ ⟨PL⟩", "x"), ("abc ⟨N⟩", "x"), ("abcd", "x"), ("a b", "x")]
    make_run(tmp_path / "study", "dot", 0, texts, hypotheses=["x", "x", "x", "q"])
    axes = draw(collect([tmp_path]), "test/exact_match")["by-length"].figure.axes[0]
    assert axes.get_xlabel() == "source length, in characters"
    assert axes.lines[0].get_xdata().tolist() == [2, 3, 4]
    assert axes.lines[0].get_ydata().tolist() == [100, 50, 100]


def test_scores_on_test_and_validation_are_told_apart(tmp_path: Path) -> None:
    study = runs_of({"dot": [10.0, 20.0, 30.0]}, "test/bleu")
    runs = [replace(run, scores=run.scores | {"val/bleu": 50.0}) for run in study.runs]
    drawn = draw(replace(study, runs=runs), "test/bleu", "val/bleu")
    assert drawn["scores-bleu"].title == "BLEU by variant"
    assert drawn["scores-val-bleu"].title == "BLEU (val) by variant"
    assert drawn["scores-val-bleu"].figure.axes[0].get_xlabel() == "BLEU (val)"


def test_embedded_svg_has_text_elements_and_css_variables(
    drawn: dict[str, StudyFigure], study: Study
) -> None:
    element = to_svg(drawn["scores-exact_match"].figure, variant_styles(study.variants).values())
    root = ElementTree.fromstring(element)
    texts = {text.text for text in root.iter("{http://www.w3.org/2000/svg}text")}
    assert {"dot", "a $b$ <c>", "exact match, in %"} <= texts
    for colour in (INK, MUTED, RULE, *COLOURS[:2]):
        assert colour.lower() not in element
    assert "var(--c0)" in element
    assert "currentColor" in element


def test_figure_files_have_a_legend_of_variants(study: Study, tmp_path: Path) -> None:
    styles = variant_styles(study.variants)
    drawn = {figure.name: figure for figure in draw_figures(study, styles)}
    write_figures(list(drawn.values()), styles, tmp_path)
    files = sorted(path.name for path in tmp_path.iterdir())
    assert files == sorted(f"{name}.{suffix}" for name in drawn for suffix in ("svg", "pdf"))
    for name, figure in drawn.items():
        named = [text.get_text() for legend in figure.figure.legends for text in legend.get_texts()]
        self_explanatory = name == "scores-exact_match"
        assert named == ([] if self_explanatory else ["a $b$ <c>", "dot"]), name
        picture = ElementTree.parse(tmp_path / f"{name}.svg").getroot()
        height = float(picture.get("height", "").removesuffix("pt"))
        assert height >= 72 * figure.figure.get_tightbbox().height  # with the legend


@pytest.mark.parametrize(("length", "rows"), [(1, 1), (20, 3)])
def test_rows_of_a_legend_follow_the_lengths_of_its_names(length: int, rows: int) -> None:
    figure = Figure(figsize=figures.SIZE, dpi=72)
    figures._add_legend(figure, variant_styles([letter * length for letter in "abcde"]), dashed=True)
    figure.draw_without_rendering()
    (legend,) = figure.legends
    assert len({round(text.get_window_extent().y0) for text in legend.get_texts()}) == rows


def test_figures_of_scores_stay_inside_the_bounds() -> None:
    result = runs_of({"dot": [1.0, 0.3, 1.0], "none": [0.0, 0.0, 0.5]}, "test/exact_match")
    drawn = draw(result)
    (axes,) = drawn["scores-exact_match"].figure.axes
    low, high = axes.get_xlim()
    assert 0 <= low < high <= 100
    ends = [x for bars in axes.collections for segment in bars.get_segments() for x, _ in segment]
    assert ends
    assert 0 <= min(ends) < max(ends) <= 100


def test_models_are_drawn_over_data_sets_in_their_order(tmp_path: Path) -> None:
    for length in (5, 10, 20):
        for model, scores in (("none", (0.25, 0.5)), ("dot", (0.75, 1.0))):
            for seed, score in enumerate(scores):
                run = write_run(
                    *(tmp_path, f"{model}-length{length}", seed),
                    scores={"test/exact_match": score / length},
                    attention={"_target_": model},
                    data={"train_lengths": [length, length]},
                )
                with_data(run, test=str(length))
    study = collect([tmp_path])
    drawn = {figure.name: figure for figure in draw_figures(study, styles_of(study))}
    figure = drawn.pop("by-data-exact_match")
    assert drawn == {}
    (axes,) = figure.figure.axes
    assert axes.get_xlabel() == "data.train_lengths"
    assert texts(axes.get_xticklabels()) == ["[5, 5]", "[10, 10]", "[20, 20]"]
    assert figure.names == ["dot", "none"]
    curves = {line.get_color(): line.get_ydata() for line in axes.lines if line.get_linestyle() != "None"}
    dot, none = (styles_of(study)[name].colour for name in ("dot", "none"))
    assert curves[dot].tolist() == pytest.approx([17.5, 8.75, 4.375])
    assert curves[none].tolist() == pytest.approx([7.5, 3.75, 1.875])
    assert styles_of(study)["dot-length5"] == styles_of(study)["dot-length20"]


def test_names_that_begin_alike_are_not_shortened_to_one() -> None:
    names = ["location_sensitive · decoder.size=64", "location_sensitive · decoder.size=128", "x" * 40]
    assert short_names(names) == [*names[:2], f"{'x' * 29}…"]
