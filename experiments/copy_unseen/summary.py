"""Print the table and the comparisons of this folder's README.

python summary.py RUNS: the folder with the run directories of experiment=copy_unseen.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from attnlab.analysis.collect import collect
from attnlab.analysis.comparison import compare
from attnlab.report import tables


def main(folder: str) -> None:
    """Print Markdown."""
    study = replace(collect([Path(folder)]), selected_metrics=("test/exact_match", "test/token_accuracy"))
    print(tables.scores_table(study).markdown())
    print(tables.comparison_list(compare(study, reference="no_pointer")), end="")


if __name__ == "__main__":
    main(*sys.argv[1:])
