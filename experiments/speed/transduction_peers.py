"""Comparison with yoyodyne 0.5 on words: seconds per epoch, and accuracy after the same number of steps.

    python transduction_peers.py --yoyodyne YOYODYNE_ENVIRONMENT/bin/python --words ice_train.tsv ice_dev.tsv
    python transduction_peers.py --yoyodyne … --forms tur.train.tsv tur.dev.tsv --epochs 50 --seeds 3

Both programs train with the settings of yoyodyne's own tests of soft attention, on batches of 100 in random
order, with greedy decoding of the validation words after each epoch, in alternating processes. The time is
that of `Trainer.fit`, without imports. Prints, and writes to --csv, medians over the seeds. The environment:
pip install --no-deps yoyodyne==0.5.27, then maxwell, 'jsonargparse[signatures]', and yoyodyne's other
requirements without torchaudio and torchvision.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import mean, median
from typing import Any

from tables import print_table

HERE = Path(__file__).parent


def train(python: str, script: str, job: dict[str, Any]) -> dict[str, Any]:
    """Train in a process, and return the JSON object of its last line."""
    environment = {**os.environ, "OMP_NUM_THREADS": str(job["threads"])}
    command = [python, str(HERE / script), json.dumps(job)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{script} failed:\n{done.stderr[-2000:]}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("overrides", nargs="*", metavar="OVERRIDE", help="settings of attnlab to change")
    parser.add_argument("--yoyodyne", required=True, metavar="PYTHON", help="Python with yoyodyne")
    files = parser.add_mutually_exclusive_group(required=True)
    files.add_argument("--words", nargs=2, metavar="FILE", help="training and validation: WORD, PHONES")
    files.add_argument("--forms", nargs=2, metavar="FILE", help="the same: LEMMA, FORM, FEATURES")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--seeds", type=int, default=3, help="number of trainings of each program")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--csv", type=Path, help="file of the table")
    options = parser.parse_intermixed_args()
    train_file, val_file = (str(Path(path).resolve()) for path in options.words or options.forms)
    job = {
        "train": train_file,
        "val": val_file,
        "columns": [1, 2, 0] if options.words else [1, 2, 3],  # source, target, features; from 1
        "phones": options.words is not None,
        "threads": options.threads,
        "epochs": options.epochs,
        "overrides": options.overrides,
    }
    programs = {
        "yoyodyne": (options.yoyodyne, "transduction_yoyodyne.py"),
        "attnlab": (sys.executable, "transduction_attnlab.py"),
    }
    results: dict[str, list[dict[str, Any]]] = {name: [] for name in programs}
    for seed in range(options.seeds):
        for name, (python, script) in programs.items():
            results[name].append(train(python, script, {**job, "seed": seed}))
    seconds = {name: median(run["seconds"] for run in runs) for name, runs in results.items()}
    rows = [
        {
            "program": name,
            "steps": runs[0]["steps"],
            "median s": f"{seconds[name]:.1f}",
            "best s": f"{min(run['seconds'] for run in runs):.1f}",
            "epochs per s": f"{options.epochs / seconds[name]:.3f}",
            "speed": f"{seconds['yoyodyne'] / seconds[name]:.2f}",
            "last accuracy": f"{mean(run['accuracies'][-1] for run in runs):.3f}",
            "best accuracy": f"{mean(max(run['accuracies']) for run in runs):.3f}",
            "best by seed": " ".join(f"{max(run['accuracies']):.3f}" for run in runs),
        }
        for name, runs in results.items()
    ]
    title = f"{options.epochs} epochs, {options.seeds} seeds, {options.threads} threads"
    print_table(rows, title, options.csv)


if __name__ == "__main__":
    main()
