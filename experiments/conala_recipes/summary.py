"""Print the tables and the comparisons of this folder's README from results.csv.

python summary.py [RUNS]: with the folder of the run directories of study=conala_recipes, write results.csv
and the figure first.
"""

import runpy
import sys
from dataclasses import replace
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from attnlab.report.collect import collect
from attnlab.report.files import save
from attnlab.report.results_file import format_results, read_results
from attnlab.report.tables import markdown

SHORT = runpy.run_path(str(Path(__file__).parents[1] / "short_tables.py"))
HERE = Path(__file__).parent
GRID = runpy.run_path(str(HERE.parent / "grid.py"))
METRICS = {
    "test/held_out/conala_bleu": "Official BLEU on the held-out examples",
    "test/held_out/loss": "Loss on the held-out examples in nats per token",
}
RECIPES = ("published", "adam", "longer", "tokens", "regularised")


def main(runs: str | None = None) -> None:
    """Print Markdown."""
    if runs is not None:
        (HERE / "results.csv").write_text(format_results(collect([Path(runs)])))
    study = replace(read_results(HERE / "results.csv"), selected_metrics=tuple(METRICS))
    groups = GRID["group"](study)
    values = {recipe: recipe for recipe in RECIPES if recipe in groups["additive"]}
    tested_metric, title = next(iter(METRICS.items()))
    tested = replace(study, selected_metrics=(tested_metric,))
    others = [name for name in groups if name != "additive"]
    comparisons = GRID["compare_at_each"](tested, values, "additive", others)
    differences = {(row.variant, row.reference): SHORT["difference"](row) for row in comparisons}
    columns = {name: GRID["cells"](groups[name], values, tested_metric, scale=1) for name in groups}
    for name in others:
        pairs = ((f"additive-{value}", f"{name}-{value}") for value in values)
        columns[f"additive minus {name}"] = [differences[pair] for pair in pairs]
    table = markdown(pd.DataFrame(columns, index=pd.Index(values, name="recipe")))
    print(
        f"{title}; in brackets 95 % intervals, after differences p{SHORT['family'](comparisons)}:\n\n{table}"
    )
    if runs is not None:
        figure = Figure(figsize=(9, 3.5), layout="constrained")
        for axes, (metric, title) in zip(figure.subplots(1, len(METRICS)), METRICS.items(), strict=True):
            GRID["draw"](axes, groups, values, metric, scale=1, places=range(len(values)))
            axes.set_xticks(range(len(values)), list(values))
            axes.set_title(title, fontsize=10)
        save(figure, HERE / "recipes.png")


if __name__ == "__main__":
    main(*sys.argv[1:])
