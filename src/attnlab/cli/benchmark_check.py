"""Check of a results file of the benchmark, as a reviewer of a submission needs it."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from attnlab.cli.benchmark_suite import available, other_settings, train_runs
from attnlab.errors import UsageError, UserError
from attnlab.files.terminal import print_line

if TYPE_CHECKING:
    from attnlab.report.benchmark.scores import Results


def check_file(words: Sequence[str], corpora: Path, *, download: bool) -> int:
    """Check that scores follow from their counts, and train a run of each task again, drawn at random.

    The mechanism is that of the command line: a file must not choose the code that is run.
    """
    from attnlab.report.benchmark import rules, scores

    if not words:
        raise UsageError("attnlab benchmark check needs a file: attnlab benchmark check FILE.csv")
    file, *mechanism = words
    results = scores.read(Path(file))
    tasks = available(corpora, download=download)
    print_line(f"PASS  {len([*results])} scores follow from their counts")
    if other := sorted({each.overrides for each in results} - {" ".join(mechanism)}):
        settings = other[0] or "no such settings"
        raise UsageError(f"{file} was trained with {settings}: if you trust it, append it to the command")
    broken = []
    if mechanism:
        broken = [*rules.violations(results, scores.read(scores.STORED)), *other_settings(mechanism)]
    for line in broken:
        print_line(f"FAIL  {line}")
    runs: dict[str, set[tuple[str, int]]] = {}
    for each in results:
        runs.setdefault(each.task, set()).add((each.model, each.seed))
    drawn = {task: random.choice(sorted(own)) for task, own in runs.items() if task in tasks}
    if not drawn:
        raise UserError(f"{file} has no task whose files exist: give their folder, --corpora FOLDER")
    code, again = _train_again(drawn, mechanism, corpora)
    if code:
        return code
    passed = [_is_equal(results, again, task, *run) for task, run in drawn.items()]
    if left_out := sorted({*runs} - {*drawn}):
        print_line(f"not trained again, for lack of files: {', '.join(left_out)}", style="yellow")
    return int(bool(broken) or not all(passed))


def _train_again(
    drawn: Mapping[str, tuple[str, int]], mechanism: Sequence[str], corpora: Path
) -> tuple[int, Results]:
    """Train a run of each task; returns the exit code and the scores."""
    from attnlab.report.benchmark import scores
    from attnlab.report.collect import collect

    models = ["own" if mechanism else model for model, _ in drawn.values()]
    seeds = [str(seed) for _, seed in drawn.values()]
    runs = f"zip(task={','.join(drawn)} model={','.join(models)} seed={','.join(seeds)})"
    with tempfile.TemporaryDirectory(prefix="attnlab-benchmark-") as folder:
        code = train_runs([f"paths.output={folder}", runs, *mechanism], corpora)
        return code, scores.from_runs(collect([Path(folder)]), mechanism)


def _is_equal(results: Results, again: Results, task: str, model: str, seed: int) -> bool:
    """Return whether a run that was trained again has equal scores and outputs; print what differs."""
    from attnlab.report.benchmark import rules

    rows = [replace(each, model=model) for each in again if each.task == task]
    if not rows:
        raise UserError(f"{task}, seed {seed} has no outputs to compare")
    different = {each: lines for each in rows if (lines := rules.differences(results, each))}
    other = all(rules.other_conditions(results, each) for each in different)
    verdict = "PASS" if not different else "OTHER" if other else "FAIL"
    print_line(f"{verdict}  {task}, {model}, seed {seed}")
    for lines in different.values():
        for line in lines:
            print_line(line)
    return not different
