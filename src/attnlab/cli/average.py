"""`attnlab average`: average the weights of a run's last checkpoints.

They are those that the run kept (checkpoint.keep). The mean is written to RUN/checkpoints/average.ckpt.
"""

import argparse
from pathlib import Path

from attnlab.cli import arguments
from attnlab.errors import UserError
from attnlab.files.run_directory import Run

IMPORTS = ("attnlab.training.checkpoints",)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="a run directory")
    parser.add_argument(
        "--last",
        type=arguments.positive,
        metavar="N",
        help="average the last N epochs (default: all that were kept)",
    )


def main(options: argparse.Namespace) -> int:
    from attnlab.training.checkpoints import average_checkpoints, save_checkpoint

    run = Run(Path(options.run).expanduser().absolute())
    run.read_config()  # is it a run directory?
    kept = run.kept_checkpoints()
    needed = options.last or 2
    if len(kept) < needed:
        raise UserError(
            f"{options.run} has {len(kept)} kept checkpoints, and {needed} are to be averaged: train it "
            f"again with checkpoint.keep={needed} force=true"
        )
    chosen = kept[-options.last :] if options.last else kept
    save_checkpoint(average_checkpoints(chosen), run.average)
    print(f"mean of {', '.join(path.name for path in chosen)}")
    print(run.average)
    return 0
