"""Draw the main comparison of pages from their committed results: python figures.py [PAGE …]

Each figure is `PAGE/figure.svg`. A test compares the numbers in its description with the results.
"""

import json
import sys
import textwrap
from collections.abc import Mapping, Sequence
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from attnlab.report.statistics import estimate
from attnlab.report.style import MUTED, STYLE_SHEET, variant_styles

HERE = Path(__file__).parent
SPLITS = {"val": "development", "test": "test"}
"""Names of the splits."""


class Row(NamedTuple):
    """A mean with its interval and the values of the seeds; rows with one label share a line."""

    label: str
    series: str
    mean: float
    low: float | None = None
    high: float | None = None
    seeds: tuple[float, ...] = ()


class Panel(NamedTuple):
    """Rows of one axis, whose name has the unit, and a vertical line with its meaning."""

    axis: str
    rows: Sequence[Row]
    title: str = ""
    line: tuple[float, str] | None = None
    limits: tuple[float | None, float | None] = (None, None)


def table(path: str) -> pd.DataFrame:
    """Read a file of an experiment."""
    return pd.read_csv(HERE / path)


def over_seeds(
    values: pd.Series, label: str, series: str = "", *, scale: float = 1, highest: float = 100
) -> Row:
    """Return the mean over seeds and its interval inside 0 and `highest`, which are those of the tables."""
    seeds = tuple(scale * value for value in values)
    score = estimate(seeds, (0, highest))
    return Row(label, series, score.mean, score.low, score.high, seeds)


def variants(
    path: str, metric: str, names: Mapping[str, str], by: str = "variant", **options: Any
) -> list[Row]:
    """Return a row for each variant of a file."""
    groups = table(path).groupby(by)[metric]
    return [over_seeds(groups.get_group(name), label, **options) for name, label in names.items()]


def batching() -> list[Panel]:
    """Sorted batches and random order, a panel for each task."""
    panels = []
    for title, task, metric, pools in (
        ("Reversal", "reverse", "test/exact_match", (50, 4)),
        ("Icelandic words", "ice_g2p", "test/loss", (3,)),
        ("Turkish forms", "tur_inflection", "test/loss", (4,)),
        ("CoNaLa", "conala", "val/loss", (4,)),
        ("English to Marathi", "eng_mar", "test/loss", (10,)),
    ):
        names = {f"{task}-pool_{size}": f"sorted, pools of {size}" for size in pools}
        names |= {f"{task}-random": "random order", f"{task}-random_time": "random, in equal time"}
        share = metric == "test/exact_match"
        options = {"scale": 100, "highest": 100} if share else {"highest": inf}
        rows = variants("batching/results.csv", metric, names, **options)
        panels.append(Panel("exact match [%]" if share else "loss [nats]", rows, title))
    return panels


def conala() -> list[Panel]:
    """Validation loss without and with attention, and the claim."""
    names = {"none": "no attention", "additive": "additive"}
    rows = variants("conala/results.csv", "val/loss", names, highest=inf)
    claim = (0.995 * rows[0].mean, "claimed: 0.5 % less")
    return [Panel("validation loss [nats]", rows, line=claim)]


def conala_attention() -> list[Panel]:
    """Official BLEU of selecting and of averaging."""
    rows = variants("conala_attention/results.csv", "val/conala_bleu", {"general": "general", "mean": "mean"})
    return [Panel("official BLEU, development split", rows)]


def conala_best() -> list[Panel]:
    """Ways of decoding in nested cross-validation."""
    data = table("conala_best/cross-validation.csv")
    data = data[data["fold"].str.startswith("all, without")]
    rows = [Row(each.way, "", each.bleu, each.low, each.high) for each in data.itertuples()]
    return [Panel("official BLEU, 2,141 sentences", rows, line=(38, "aim"))]


def copy_unseen() -> list[Panel]:
    """Exact match and token accuracy with and without a pointer-generator."""
    names = {"pointer": "pointer-generator", "no_pointer": "without"}
    return [
        Panel(f"{axis} [%]", variants("copy_unseen/results.csv", metric, names, scale=100), limits=(-4, 104))
        for axis, metric in {
            "exact match": "test/exact_match",
            "token accuracy": "test/token_accuracy",
        }.items()
    ]


def export() -> list[Panel]:
    """Speeds of each program."""
    speeds = table("export/results.csv").set_index("program").filter(like="words/s")
    rows = [
        Row(program, column.removeprefix("words/s, "), speed)
        for (program, column), speed in speeds.stack().items()
    ]
    return [Panel("output words per second, one thread", rows, limits=(0, 15500))]


def faithfulness() -> list[Panel]:
    """Agreement of the largest weight with erasure, by task and mechanism."""
    data = table("faithfulness/results.csv")
    rows = []
    for variant, values in data["test/explanation/erasure_top"].groupby(data["variant"], sort=False):
        task, _, mechanism = variant.partition("-")
        series = "mean (chance)" if mechanism == "mean" else mechanism
        rows.append(over_seeds(values, task, series, scale=100))
    return [Panel("largest weight on the most important word [%]", rows)]


def fixed_length() -> list[Panel]:
    """Exact match with and without attention at each length."""
    rows = []
    for network in ("additive", "none_matched"):
        names = {f"{network}-length{length}": f"{length} tokens" for length in (5, 10, 20)}
        rows += variants("fixed_length/results.csv", "test/exact_match", names, series=network, scale=100)
    return [Panel("exact match [%]", rows)]


def formal() -> list[Panel]:
    """Accuracy of `additive` and of the best other network for each task."""
    data = table("formal/results.csv").set_index(["task", "attention"])["accuracy_longer"]
    means = data.groupby(level=[0, 1]).mean()
    others = means.drop("additive", level=1)
    rows = []
    for task in means.groupby(level=0).max().sort_values(ascending=False, kind="stable").index:
        networks = {"additive": "additive"}
        label = task.replace("_", " ")
        if task in others:
            best = others[task].idxmax()
            networks[best] = "best other network"
            label += f" ({best})"
        for network, series in networks.items():
            seeds = tuple(100 * data.loc[[(task, network)]])
            rows.append(Row(label, series, sum(seeds) / len(seeds), seeds=seeds))
    return [Panel("right tokens at lengths 41 to 500 [%]", rows, line=(90, "solved"))]


def guided_alignment() -> list[Panel]:
    """Alignment error and exact match with and without guidance."""
    names = {"weight_0.5": "guided", "weight_0": "not guided"}
    axes = {"alignment error": "test/attention/alignment_error", "exact match": "test/exact_match"}
    path = "guided_alignment/results.csv"
    return [Panel(f"{axis} [%]", variants(path, metric, names, scale=100)) for axis, metric in axes.items()]


def interventions() -> list[Panel]:
    """Scores of `additive` with other weights, means over seeds, by the loss with uniform weights."""
    data = table("interventions/results.csv")
    task, mechanism = data["variant"].str.partition("-")[[0, 2]].to_numpy().T
    means = data[mechanism == "additive"].groupby(task[mechanism == "additive"]).mean(numeric_only=True)
    changes = {"": "as learned", "uniform/": "uniform", "argmax/": "largest weight only"}
    scores = {
        name: {
            series: next(
                scale * row[f"test/{change}{metric}"]
                for metric, scale in (("exact_match", 100), ("chrf", 1), ("conala_bleu", 1))
                if pd.notna(row[f"test/{change}{metric}"])
            )
            for change, series in changes.items()
        }
        for name, row in means.iterrows()
    }
    by_loss = sorted(scores, key=lambda name: scores[name]["uniform"] - scores[name]["as learned"])
    rows = [Row(name, series, score) for name in by_loss for series, score in scores[name].items()]
    return [Panel("score of additive [%]", rows, limits=(-3, 103))]


def multi30k() -> list[Panel]:
    """BLEU on the validation file, and on the pairs that chose the epoch."""
    files = {"test/bleu": "validation file", "val/bleu": "pairs that chose the epoch"}
    rows = [variants("multi30k/results.csv", metric, {"recurrent": name}) for metric, name in files.items()]
    return [Panel("BLEU", [row for of_file in rows for row in of_file])]


def robustness() -> list[Panel]:
    """Steps of each start of the run that was stopped 50 times."""
    data = table("robustness/device_counts.csv").query("run == 'changing'")
    names = {1: "one process", 2: "two processes"}
    rows = [
        Row(f"start {each.start}", names[each.devices], each.last_step, each.first_step, each.last_step)
        for each in data.itertuples()
    ]
    return [Panel("training step", rows)]


def scan() -> list[Panel]:
    """Scores on the length split."""
    names = {"repetitions": "convolution, units and numbers", "none": "published network"}
    names |= {"actions": "convolution, plain answers"}
    data = table("scan/results.csv").query("split == 'length'").groupby("network")["exact_match"]
    rows = [over_seeds(data.get_group(name), label, scale=100) for name, label in names.items()]
    return [Panel("right, length split [%]", rows, line=(20.8, "best of Lake & Baroni"), limits=(0, 100))]


def small_data() -> list[Panel]:
    """Official BLEU after each added technique."""
    names = sorted(table("small_data/results.csv")["variant"].unique())
    texts = {"6_slots": "placeholders", "7_recurrent": "recurrent dropout"}
    labels = {name: "+ " + texts.get(name, name[2:].replace("_", " ")) for name in names}
    labels["0_baseline"] = "baseline"
    rows = variants("small_data/results.csv", "val/conala_bleu", labels)
    return [Panel("official BLEU, development split", rows)]


def source_length() -> list[Panel]:
    """BLEU by the number of source words."""
    data = table("source_length/lengths.csv").query("metric == 'test/bleu'")
    rows = [Row(f"{each.words} words", each.variant, each.score) for each in data.itertuples()]
    return [Panel("BLEU, English to Marathi", rows, limits=(0, None))]


def speed() -> list[Panel]:
    """Speed relative to JoeyNMT on two machines."""
    works = {"train, random": "training, random batches", "train, like-length": "training, similar lengths"}
    works |= {"greedy": "greedy search", "beam 5": "beam of 5"}
    rows = []
    for file, machine in {"peers": "with AVX-512", "peers-avx2": "AVX2 alone"}.items():
        data = table(f"speed/{file}.csv").query("program == 'attnlab' and dtype == 'fp32'")
        rows += [Row(works[each.work], machine, each.speed) for each in data.itertuples()]
    return [
        Panel("speed relative to JoeyNMT (fp32, two threads)", rows, line=(1, "equal"), limits=(0.95, 1.9))
    ]


def transduction() -> list[Panel]:
    """Word error rates of pronunciation by language, beside the official ensemble."""
    official = table("transduction/official.csv").set_index(["setting", "language"])
    panels = []
    for words, setting, file, split in (
        ("800", "low", "results", "test"),
        ("8,000", "medium", "medium", "val"),
    ):
        right = table(f"transduction/{file}.csv").groupby("variant")[f"{split}/exact_match"]
        rows = []
        for language, published in official.loc[setting][split].items():
            seeds = tuple(100 * (1 - right.get_group(language)))
            rows.append(Row(language, "one network", sum(seeds) / len(seeds), seeds=seeds))
            rows.append(Row(language, "official ensemble of ten", published))
        axis = f"WER [%], {SPLITS[split]} files, {words} training words"
        panels.append(Panel(axis, rows, limits=(0, None)))
    return panels


PAGES = (
    *(batching, conala, conala_attention, conala_best, copy_unseen, export, faithfulness),
    *(fixed_length, formal, guided_alignment, interventions, multi30k, robustness, scan, small_data),
    *(source_length, speed, transduction),
)


def draw(panels: Sequence[Panel]) -> Figure:
    """Draw panels below each other: a line for each label, a dot for each seed, bars for intervals."""
    labels = [sum(1 + len(text) // 25 for text in {row.label for row in panel.rows}) for panel in panels]
    heights = [
        0.7 + min(0.25 * lines + 0.06 * len(panel.rows), 5)
        for lines, panel in zip(labels, panels, strict=True)
    ]
    figure = Figure(figsize=(4.8, sum(heights) + 0.2), layout="constrained")
    axes = figure.subplots(len(panels), squeeze=False, height_ratios=heights)[:, 0]
    for each, panel in zip(axes, panels, strict=True):
        draw_panel(each, panel)
    return figure


def draw_panel(axes: Axes, panel: Panel) -> None:
    """Draw the rows of one axis."""
    labels = [*dict.fromkeys(row.label for row in panel.rows)]
    styles = variant_styles([*dict.fromkeys(row.series for row in panel.rows)])
    height = 0.7 / len(styles) if len(panel.rows) > len(labels) else 0
    for label, series, mean, low, high, seeds in panel.rows:
        style, offset = styles[series], [*styles].index(series) - (len(styles) - 1) / 2
        place = labels.index(label) + height * offset
        if seeds:
            axes.plot(seeds, [place] * len(seeds), "o", color=style.colour, alpha=0.35, markersize=3.5)
        if low is not None:
            axes.plot([low, high], [place, place], color=style.colour)
        axes.plot(mean, place, style.marker, color=style.colour, label=series)
    step = 1 + len(labels) // 30
    axes.set_yticks(range(0, len(labels), step), [textwrap.fill(label, 25) for label in labels[::step]])
    axes.set(xlabel=panel.axis, title=panel.title, xlim=panel.limits)
    axes.set_ylim(len(labels) - 0.4, -0.6)
    axes.locator_params(axis="x", nbins=6)
    axes.grid(visible=False, axis="y")
    if panel.line is not None:
        axes.axvline(panel.line[0], color=MUTED, linestyle="dashed", linewidth=1)
        axes.annotate(
            panel.line[1], (panel.line[0], -0.55), (4, 0), textcoords="offset points", color=MUTED, va="top"
        )
    if len(styles) > 1:
        handles = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
        axes.legend(handles.values(), handles, loc="lower center", bbox_to_anchor=(0.5, 1), ncols=2)


def description(panels: Sequence[Panel]) -> str:
    """Return the numbers of a figure as JSON, rounded to three digits."""
    numbers = json.dumps([[panel.axis, *row] for panel in panels for row in panel.rows])
    return json.dumps(json.loads(numbers, parse_float=lambda text: round(float(text), 3)))


def main(*pages: str) -> None:
    """Write the figures of these pages, or all; pages without one are left as they are."""
    with mpl.rc_context(fname=STYLE_SHEET):
        for page in PAGES:
            if not pages or page.__name__ in pages:
                panels = page()
                metadata = {"Date": None, "Description": description(panels)}
                draw(panels).savefig(HERE / page.__name__ / "figure.svg", metadata=metadata)


if __name__ == "__main__":
    main(*sys.argv[1:])
