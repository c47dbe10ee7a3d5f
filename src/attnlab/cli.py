"""The door: `attnlab train | evaluate | predict`. Composes configurations and starts workers; never trains.

Heavy imports come late, inside the commands that need them.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from attnlab import __version__
from attnlab.errors import UserError

HELP = f"""attnlab {__version__}: experiments with attention in recurrent sequence-to-sequence models

  attnlab train [OVERRIDE ...]              train a run, score it, draw what it looked at
  attnlab train -m [OVERRIDE=a,b ...]       the same for every combination of a sweep
  attnlab evaluate RUN [OVERRIDE ...]       score a trained run, with other data or another search
  attnlab predict RUN [OPTION ...]          translate lines from standard input to standard output

RUN is a run directory (outputs/NAME/VARIANT-seedN-HASH) or a checkpoint file.
OVERRIDE is a setting: attention=dot, seed=1, trainer.max_epochs=5, experiment=reverse_published.
attnlab COMMAND --help says more; attnlab train --cfg job shows every setting.
--traceback shows the stack trace of an error.
"""

TORCH_DISTRIBUTED = (
    "LOCAL_RANK",
    "RANK",
    "NODE_RANK",
    "GROUP_RANK",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
)
"""What must not leak into a worker, which would take itself for a rank of somebody else's training."""


def main() -> None:
    """Run the command line, and exit with 0 done, 1 failed, 2 wrong usage, 75 interrupted."""
    sys.exit(run(sys.argv[1:]))


def run(words: list[str]) -> int:
    """Run a command given as words; returns the exit code."""
    commands: dict[str, Callable[[list[str]], int]] = {
        "train": train,
        "evaluate": evaluate,
        "predict": predict,
    }
    traceback = "--traceback" in words or os.environ.get("HYDRA_FULL_ERROR") == "1"
    words = [word for word in words if word != "--traceback"]
    if traceback:
        os.environ["ATTNLAB_TRACEBACK"] = "1"
    if not words or words[0] in ("-h", "--help", "help"):
        print(HELP, end="")
        return 0
    if words[0] == "--version":
        print(__version__)
        return 0
    if words[0] not in commands:
        print(f"attnlab: no command {words[0]!r}: choose from {', '.join(commands)}", file=sys.stderr)
        return 2
    # As `python -m` does: a mechanism of one's own may lie in the current folder.
    sys.path.insert(0, str(Path.cwd()))
    try:
        return commands[words[0]](words[1:])
    except UserError as error:
        if traceback:
            raise
        print(f"attnlab: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        return 0


def train(words: list[str]) -> int:
    """`attnlab train`: Hydra composes, a worker trains each run; returns the worst exit code of them."""
    import hydra
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    from attnlab.compose import CONF, explain

    codes = []

    def launch(config: Any) -> float | None:
        # A run that fails says so by its code: raised here, it would end the whole sweep it belongs to.
        code, value = train_run(config)
        codes.append(code)
        return value

    # Hydra's own way with errors is to print several lines and leave; this makes it raise them instead.
    os.environ["HYDRA_FULL_ERROR"] = "1"
    sys.argv = ["attnlab train", *words]
    try:
        hydra.main(config_path=str(CONF), config_name="train", version_base="1.3")(launch)()
    except (HydraException, OmegaConfBaseException) as error:
        if os.environ.get("ATTNLAB_TRACEBACK"):
            raise
        print(f"attnlab: {explain(error)}", file=sys.stderr)
        return 2
    return max(codes, default=0)


def train_run(config: Any) -> tuple[int, float | None]:
    """Train the run of a composed configuration in a worker, unless it is finished.

    Returns:
        The exit code, and the value of what the checkpoints are chosen by, for a sweeper that searches.
    """
    from attnlab import runs

    if config.attention_override is not None:
        raise UserError(
            "attention_override is for a trained run: attnlab evaluate RUN "
            f"attention_override={config.attention_override}"
        )
    run = runs.prepare(config)
    if run.read_result().get("status") == "finished":
        print(f"finished already: {run.directory}")
        for name, value in run.read_result()["metrics"].items():
            print(f"  {name:24} {value:.4f}")
        print("force=true starts over")
    else:
        print(f"run directory  {run.directory}", flush=True)
        code = start_worker(str(run.directory))
        if code != 0:
            return code, None
    return 0, run.read_result()["metrics"].get(config.checkpoint.monitor)


def start_worker(directory: str) -> int:
    """Run `python -m attnlab.worker DIRECTORY` to its end, handing signals on; returns its exit code."""
    environment = {key: value for key, value in os.environ.items() if key not in TORCH_DISTRIBUTED}
    environment["ATTNLAB_COMMAND"] = " ".join(sys.argv)
    command = [sys.executable, "-m", "attnlab.worker", directory]
    # A session of its own: the terminal's Ctrl-C reaches this process alone, which hands it on in good order.
    with subprocess.Popen(command, env=environment, start_new_session=True) as worker:

        def hand_on(number: int, _: Any) -> None:
            worker.send_signal(number)

        before = {number: signal.signal(number, hand_on) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            code = worker.wait()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            _end_group(worker.pid)
    if code < 0:
        print(
            f"attnlab: the run was killed by {signal.Signals(-code).name}; see {directory}", file=sys.stderr
        )
        return 1
    return code


def evaluate(words: list[str]) -> int:
    """`attnlab evaluate RUN [overrides]`."""
    from attnlab import evaluate as recipe

    return recipe.main(words)


def predict(words: list[str]) -> int:
    """`attnlab predict RUN`."""
    from attnlab import predict as recipe

    return recipe.main(words)


def _end_group(group: int) -> None:
    """End whatever a worker left running: loaders, ranks."""
    try:
        os.killpg(group, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return
