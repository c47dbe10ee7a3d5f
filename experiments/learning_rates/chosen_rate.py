"""Print the learning rate of an attention mechanism with the highest validation exact match.

python chosen_rate.py RUNS MECHANISM: with the folder of the runs with every rate, named MECHANISM-RATE.
"""

import sys
from pathlib import Path

from attnlab.report.collect import collect
from attnlab.report.study import Study


def chosen_rate(study: Study, mechanism: str) -> str:
    """Return the rate with the highest validation exact match; of equal ones, the lowest."""
    scores = {}
    for run in study.finished:
        name, _, rate = run.variant.partition("-")
        if name == mechanism:
            scores[rate] = run.scores["val/exact_match"]
    return max(sorted(scores, key=float), key=scores.__getitem__)


if __name__ == "__main__":
    print(chosen_rate(collect([Path(sys.argv[1])]), sys.argv[2]))
