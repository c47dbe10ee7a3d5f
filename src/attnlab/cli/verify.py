"""`attnlab verify`: train a run again, killed and resumed, and compare all results bit by bit.

Prints PASS and the digests of the results, or FAIL and the first difference; then the exit code is 1.
"""

import argparse
import os
import random
import shutil
import tempfile
from pathlib import Path

from attnlab.cli import arguments
from attnlab.errors import UserError
from attnlab.files.digests import changed_files
from attnlab.files.run_directory import Run
from attnlab.files.terminal import print_line
from attnlab.jobs.worker_process import import_from_current_folder

IMPORTS = ("attnlab.jobs.verification", "attnlab.config.trust")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "run", metavar="RUN", help="directory of a finished run, trained on a machine like this one"
    )
    parser.add_argument(
        "--kills",
        type=arguments.natural,
        default=3,
        metavar="N",
        help="number of SIGKILLs at random moments, each followed by a resumption (default: 3). If the run "
        "finishes before all of them, it is trained once more",
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the random moments (default: 0)")
    arguments.add_trust(parser)


def main(options: argparse.Namespace) -> int:
    from attnlab.config.trust import check
    from attnlab.jobs.verification import digests, find_difference, read_outputs, train_again

    import_from_current_folder()
    run = Run(Path(options.run).expanduser().absolute())
    check(run.read_config(), run.config, options.trust)
    result = run.read_result()
    if result.get("status") != "finished":
        raise UserError(f"{options.run} is not finished: train it first")
    if missing := run.missing_outputs():
        raise UserError(f"{options.run}: {', '.join(missing)} was deleted, so that it cannot be compared")
    if Path(str(result.get("folder"))).is_dir():
        os.chdir(result["folder"])  # paths of data files are relative to it
    if changed := changed_files(result.get("data")):
        raise UserError(f"{', '.join(changed)} changed since {options.run} was trained")
    expected = read_outputs(run)
    scratch = Path(tempfile.mkdtemp(prefix="attnlab-verify-"))
    draw = random.Random(options.seed)
    kills, trainings, difference = 0, 0, None
    try:
        while difference is None and (trainings == 0 or kills < options.kills):
            trainings += 1
            again, done = train_again(run, scratch / str(trainings), options.kills - kills, draw)
            kills += done
            difference = find_difference(expected, read_outputs(again))
    finally:
        if difference is None:
            shutil.rmtree(scratch)
    counts = f"kills: {kills}, trainings: {trainings}"
    if difference is None:
        print(f"PASS  {counts}")
        for name, digest in digests(expected).items():
            print_line(f"{digest}  {name}")
        return 0
    print_line(f"FAIL  {difference}")
    print_line(f"{counts}, the last one in {again.directory}")
    for line in _other_environment(result, again.read_result()):
        print_line(line)
    return 1


def _other_environment(first: dict[str, object], again: dict[str, object]) -> list[str]:
    """Return a line for each version, machine or code that differs between two results."""
    keys = ("python", "packages", "platform", "cpu", "git_commit", "git_changes", "gpus")
    return [
        f"different {key}: {first.get(key)}, again: {again.get(key)}"
        for key in keys
        if first.get(key) != again.get(key)
    ]
