"""Arguments that several commands share. Imports nothing heavy."""

import argparse
from collections.abc import Callable, Iterable
from typing import NoReturn

from attnlab.errors import UsageError
from attnlab.files.reading import exists

MAX_NUMBER = 2**31 - 1  # Largest value of an option; larger ones overflow in PyTorch

RUN = "a run directory or a checkpoint file"
RUNS = f"{RUN}; several are ensembled: their probabilities are averaged"


class Parser(argparse.ArgumentParser):
    """Argument parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        """Raise `UsageError` with the message of the parser."""
        raise UsageError(f"{message} ({self.prog} --help shows the options)")


def add_runs_and_overrides(parser: argparse.ArgumentParser, settings: str) -> None:
    """Add RUN … and OVERRIDE …; `split_overrides` separates them."""
    parser.add_argument(
        "runs_and_overrides", metavar="RUN | OVERRIDE", nargs="+", help=f"{RUNS}; and {settings}"
    )


def split_overrides(options: argparse.Namespace, purpose: str) -> tuple[list[str], list[str]]:
    """Return the runs and the overrides; raise `UsageError` if there is no run."""
    overrides = [word for word in options.runs_and_overrides if "=" in word and not exists(word)]
    runs = without_reports(word for word in options.runs_and_overrides if word not in overrides)
    if not runs:
        raise UsageError(f"No RUN to {purpose}: give a run directory or a checkpoint file")
    return runs, overrides


def without_reports(runs: Iterable[str]) -> list[str]:
    """Leave out pages of `attnlab report` and their folders, which `outputs/NAME/*` has beside runs."""
    runs = [*runs]
    pages = {run for run in runs if run.endswith(".html")}
    folders = {f"{page.removesuffix('.html')}_files" for page in pages}
    return [run for run in runs if run not in pages | folders] or runs


def add_strict(parser: argparse.ArgumentParser, verb: str) -> None:
    """Add `--strict` to a command that reads lines."""
    parser.add_argument(
        "--strict",
        action="store_true",
        help=f"stop at the first line that cannot be {verb} (default: report it, print an empty line for it, "
        "and exit with 1 at the end)",
    )


def add_trust(parser: argparse.ArgumentParser) -> None:
    """Add `--trust` to a command that reads checkpoints."""
    parser.add_argument(
        "--trust",
        action="append",
        default=[],
        metavar="NAME",
        help="a module, or the dotted name of a class, that RUN may use in addition to attnlab's own; "
        "repeatable. Modules in the current folder are found as well",
    )


def whole_number(least: int, most: int | None = None) -> Callable[[str], int]:
    """Return a parser of whole numbers from `least` to `most`."""
    allowed = f"≥ {least}" if most is None else f"from {least} to {most}"

    def parse(text: str) -> int:
        is_number = text.isascii() and text.isdigit()
        if not is_number or int(text) < least or (most is not None and int(text) > most):
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number {allowed}")
        if int(text) > MAX_NUMBER:
            raise argparse.ArgumentTypeError(f"{text!r} exceeds {MAX_NUMBER}")
        return int(text)

    return parse


positive, natural = whole_number(1), whole_number(0)
