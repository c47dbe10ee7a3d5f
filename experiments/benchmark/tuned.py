"""Print the runs of the track "tuned": for each task and rate the mechanisms for which this rate is best.

python tuned.py RUNS: with the folder of the runs with every rate. The best one has the best primary metric on
the development set; of equal ones it is the lowest.
"""

import sys
from pathlib import Path

from attnlab.metrics import registry
from attnlab.report.collect import collect
from attnlab.report.study import Study


def chosen_rates(study: Study) -> dict[tuple[str, str], float]:
    """Return the best learning rate of each task and mechanism."""
    scores: dict[tuple[str, str], dict[float, float]] = {}
    for run in study.finished:
        metric = registry.metric(f"val/{run.config['metric']}")
        rates = scores.setdefault((run.config["task"], run.config["model"]), {})
        rates[run.config["optimizer"]["lr"]] = metric.sign * run.scores[metric.logged]
    return {key: max(sorted(rates), key=rates.__getitem__) for key, rates in scores.items()}


def overrides(rates: dict[tuple[str, str], float]) -> list[str]:
    """Return the settings of one sweep for each task and rate."""
    models: dict[tuple[str, float], list[str]] = {}
    for (task, model), rate in sorted(rates.items()):
        models.setdefault((task, rate), []).append(model)
    return [
        f"task={task} optimizer.lr={rate} model={','.join(names)}" for (task, rate), names in models.items()
    ]


if __name__ == "__main__":
    print(*overrides(chosen_rates(collect([Path(sys.argv[1])]))), sep="\n")
