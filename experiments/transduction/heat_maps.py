"""Draw the attention of every mechanism to three words of each language into heat_maps/LANGUAGE.svg.

A row is an output symbol, a column a letter or a feature, and a dot the end. Below a map stands `wrong` if
its output is.

python heat_maps.py RUNS: the folder of the run directories of `study=transduction`. The words are the first
three of the test file, or else of the development file, with five to eight letters.
"""

import sys
from collections import defaultdict
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from attnlab.files.predictions import Prediction, read_predictions
from attnlab.report.collect import collect
from attnlab.report.files import fix_layout, save
from attnlab.report.record import RunRecord
from attnlab.report.style import COLOUR_MAP
from attnlab.report.text import LabelFonts

WORDS = 3
LETTERS = range(5, 9)
INCHES = 0.13
"""Room for the label of a symbol."""
HEAT_MAPS = Path(__file__).with_name("heat_maps")


def draw(axes: Axes, prediction: Prediction, fonts: LabelFonts) -> None:
    """Draw one heat map, with a word below it if the output is wrong."""
    assert prediction.weights is not None
    axes.imshow(prediction.weights, cmap=COLOUR_MAP, vmin=0, vmax=1, aspect="auto")
    for axis, tokens in ((axes.xaxis, prediction.source_tokens), (axes.yaxis, prediction.tokens)):
        axis.set_ticks(range(len(tokens)), [fonts.drawable(token.replace("<eos>", "·")) for token in tokens])
        fonts.apply(*axis.get_ticklabels())
    axes.tick_params(labelsize=7)
    if any("⟨" in token for token in prediction.source_tokens):
        axes.tick_params(axis="x", rotation=90)  # features are longer than letters
    axes.grid(visible=False)
    if prediction.hypothesis not in prediction.references:
        axes.set_xlabel("wrong", color="tab:red", labelpad=1)


def plot(language: str, runs: dict[str, RunRecord]) -> Figure:
    """Return the figure of a language: one row for each word, one column for each mechanism."""
    predictions = {
        model: read_predictions(run.directory / "predictions/attention.jsonl") for model, run in runs.items()
    }
    first = next(iter(predictions.values()))
    letters = [sum("⟨" not in token for token in each.source_tokens) - 1 for each in first]
    chosen = [place for place, count in enumerate(letters) if count in LETTERS][:WORDS]
    outputs = [max(len(own[place].tokens) for own in predictions.values()) for place in chosen]
    sources = max(len(first[place].source_tokens) for place in chosen)
    heights = [1.2 + INCHES * count for count in outputs]
    figure = Figure(figsize=(len(runs) * (0.7 + INCHES * sources), sum(heights)), layout="constrained")
    grid = figure.subplots(len(chosen), len(runs), squeeze=False, height_ratios=heights)
    tokens = [
        token
        for each in predictions.values()
        for place in chosen
        for token in (*each[place].source_tokens, *each[place].tokens)
    ]
    fonts = LabelFonts([*tokens, "·"])
    for column, (model, own) in enumerate(predictions.items()):
        grid[0, column].set_title(model)
        for row, place in enumerate(chosen):
            draw(grid[row, column], own[place], fonts)
    figure.suptitle(language)
    return figure


def main(folder: str) -> None:
    """Write one figure for each language that has a run of seed 0."""
    languages: defaultdict[str, dict[str, RunRecord]] = defaultdict(dict)
    for run in collect([Path(folder)]).finished:
        language, _, model = run.variant.rpartition("-")
        if run.seed == 0:
            languages[language][model] = run
    HEAT_MAPS.mkdir(exist_ok=True)
    for language, runs in sorted(languages.items()):
        figure = plot(language, dict(sorted(runs.items())))
        fix_layout(figure)
        save(figure, HEAT_MAPS / f"{language}.svg")


if __name__ == "__main__":
    main(*sys.argv[1:])
