"""Print the tables and the comparisons of this folder's README from results.csv.

python summary.py [RUNS]: with the folder of the run directories of study=conala_recipes, write results.csv
first.
"""

import runpy
import sys
from dataclasses import replace
from pathlib import Path

import pandas as pd

from attnlab.report.collect import collect
from attnlab.report.results_file import format_results, read_results
from attnlab.report.tables import markdown

SHORT = runpy.run_path(str(Path(__file__).parents[1] / "short_tables.py"))
HERE = Path(__file__).parent
GRID = runpy.run_path(str(HERE.parent / "grid.py"))
METRIC = "test/held_out/conala_bleu"
RECIPES = ("published", "adam", "longer", "tokens", "regularised")


def main(runs: str | None = None) -> None:
    """Print Markdown."""
    if runs is not None:
        (HERE / "results.csv").write_text(format_results(collect([Path(runs)])))
    study = replace(read_results(HERE / "results.csv"), selected_metrics=(METRIC,))
    groups = GRID["group"](study)
    values = {recipe: recipe for recipe in RECIPES if recipe in groups["additive"]}
    others = [name for name in groups if name != "additive"]
    comparisons = GRID["compare_at_each"](study, values, "additive", others)
    differences = {(row.variant, row.reference): SHORT["difference"](row) for row in comparisons}
    columns = {name: GRID["cells"](groups[name], values, METRIC, scale=1) for name in groups}
    for name in others:
        pairs = ((f"additive-{value}", f"{name}-{value}") for value in values)
        columns[f"additive minus {name}"] = [differences[pair] for pair in pairs]
    table = markdown(pd.DataFrame(columns, index=pd.Index(values, name="recipe")))
    title = "Official BLEU on the held-out examples; in brackets 95 % intervals, after differences p"
    print(f"{title}{SHORT['family'](comparisons)}:\n\n{table}")


if __name__ == "__main__":
    main(*sys.argv[1:])
