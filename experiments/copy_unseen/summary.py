"""Print the table and the sentences of this folder's README.

python summary.py RUNS: the folder of run directories of experiment=copy_unseen.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from attnlab.analysis.collect import collect
from attnlab.analysis.comparison import compare
from attnlab.report import tables
from attnlab.report.tables import escape_markdown


def main(folder: str) -> None:
    study = replace(collect([Path(folder)]), selected_metrics=("test/exact_match", "test/token_accuracy"))
    print(tables.scores_table(study).markdown())
    for found in compare(study, reference="no_pointer"):
        print(f"- {escape_markdown(found.summary)}")


if __name__ == "__main__":
    main(*sys.argv[1:])
