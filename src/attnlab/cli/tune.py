"""`attnlab tune`: search hyper-parameters; each trial is a training run."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from attnlab.config.compose import usage_errors
from attnlab.errors import INTERRUPTED, needs
from attnlab.files.terminal import print_line

if TYPE_CHECKING:
    from optuna import Study

    from attnlab.jobs.search_plan import SearchPlan

HELP = """attnlab tune [OVERRIDE ...]: search hyper-parameters; each trial is an ordinary training run

  attnlab tune 'optimizer.lr=tag(log,interval(1e-4,1e-1))' attention=additive,dot tune.trials=30
  attnlab tune                              the search space of conf/tune/default.yaml

Search space:
  optimizer.lr='interval(0.001,0.1)'           a number in an interval
  encoder.size='int(interval(8,64))'           a whole number in an interval
  optimizer.lr='tag(log,interval(1e-4,1e-1))'  a number on a logarithmic scale
  decoder.layers='range(1,4)'                  1, 2, 3
  attention=additive,dot                       a choice
Objective: checkpoint.monitor and checkpoint.mode.
Search settings: tune.trials, tune.seed, tune.sampler, tune.pruner (conf/tune/default.yaml).
The same command resumes an interrupted search; a larger tune.trials extends it; force=true starts again.
"""

BEST_TRIALS = 10
"""Number of trials in the final table."""


def main(options: argparse.Namespace) -> int:
    """Run the search; returns 0 if a trial finished, 1 if none did, 2 at a usage error, 75 if interrupted."""
    if {"-h", "--help"} & set(options.arguments):
        print(HELP, end="")
        return 0
    with needs("tune", "attnlab tune needs Optuna"):
        import optuna

        from attnlab.jobs.hyperparameter_search import open_study, remaining_trials, run_trial
        from attnlab.jobs.search_plan import make_plan

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    with usage_errors():
        plan = make_plan(options.arguments)
    print(plan.summary, flush=True)
    study = open_study(plan)
    for trial in remaining_trials(study, plan):
        if run_trial(trial, plan) == INTERRUPTED:
            print(f"interrupted in trial {trial.number + 1}; run the same command again to resume")
            return INTERRUPTED
    return _conclude(study, plan)


def _conclude(study: Study, plan: SearchPlan) -> int:
    """Print the best trials and the command that trains the best one; returns the exit code."""
    from optuna.study import StudyDirection
    from optuna.trial import TrialState

    trials = study.get_trials(deepcopy=False)
    finished = [trial for trial in trials if trial.state == TrialState.COMPLETE]
    finished.sort(key=lambda trial: trial.value or 0.0, reverse=study.direction == StudyDirection.MAXIMIZE)
    counts = [sum(trial.state == state for trial in trials) for state in (TrialState.PRUNED, TrialState.FAIL)]
    title = f"{len(trials)} trials: {len(finished)} finished, {counts[0]} pruned, {counts[1]} failed"
    if not finished:
        print(f"attnlab: {title}; the reasons are in {plan.database.parent}", file=sys.stderr)
        return 1
    table = Table("trial", plan.base.checkpoint.monitor, *plan.space, "run directory", title=title)
    for column in table.columns:
        column.overflow = "fold"  # a truncated path cannot be opened
    for trial in finished[:BEST_TRIALS]:
        values = (trial.value, *(trial.params[key] for key in plan.space))
        cells = [f"{value:.4g}" if isinstance(value, float) else str(value) for value in values]
        table.add_row(str(trial.number + 1), *cells, Path(trial.user_attrs["run"]).name)
    Console(soft_wrap=True).print(table)
    print_line(f"best  {finished[0].user_attrs['run']}")
    overrides = plan.trial_overrides(finished[0].params)
    best = shlex.join(override for override in overrides if not override.startswith("force="))
    print_line(f"      attnlab train {best}")
    return 0
