"""Draw the error rates of six mechanisms over seeds, from study.csv into seeds.svg."""

from pathlib import Path
from statistics import fmean

import matplotlib as mpl
from matplotlib.figure import Figure
from summary import BASELINE, CORPORA, INFLECTION, seed_means, study_runs

from attnlab.report.files import save
from attnlab.report.style import STYLE_SHEET, variant_styles

PANELS = (
    ("Pronunciation", BASELINE, "test", "languages, test files"),
    ("Inflection", INFLECTION, "val", "languages, development files"),
    ("Normalisation", CORPORA, "val", "corpora, development files"),
)
"""Title, corpora and split of each panel, and what stands behind the number of corpora."""


def draw() -> Figure:
    """Return a panel for each task: a row for each mechanism, a dot for each seed, a marker for the mean."""
    runs = study_runs()
    figure = Figure(figsize=(9, 2.6), layout="constrained")
    for axes, (task, corpora, split, files) in zip(
        figure.subplots(1, len(PANELS), sharey=True), PANELS, strict=True
    ):
        shared, means = seed_means(runs, corpora, split)
        styles = variant_styles([*means])
        for row, (name, rates) in enumerate(means.items()):
            style = styles[name]
            axes.plot(rates, [row] * len(rates), "o", color=style.colour, alpha=0.35, markersize=4)
            axes.plot(fmean(rates), row, style.marker, color=style.colour, markersize=7)
        axes.set_yticks(range(len(means)), labels=[*means])
        axes.set_ylim(len(means) - 0.4, -0.6)
        axes.grid(visible=False, axis="y")
        axes.set_title(task)
        axes.set_xlabel(f"WER, in %\n{len(shared)} {files}")
    return figure


if __name__ == "__main__":
    with mpl.rc_context(fname=STYLE_SHEET):
        save(draw(), Path(__file__).with_name("seeds.svg"))
