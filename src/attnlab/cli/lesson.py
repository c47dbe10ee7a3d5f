"""`attnlab lesson`: check the exercises of the lesson on attention, and train with them."""

import argparse
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

from attnlab.errors import UsageError, UserError
from attnlab.files.writing import check_writable

ACTIONS = {
    "check": "CHAPTER FILE: check the functions of a chapter in a Python file",
    "train": "CHAPTER FILE: train a small network with the functions of a Python file",
    "page": "FILE.html: write a page that trains a network in the browser",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    help_text = "; ".join(f"{name} {text}" for name, text in ACTIONS.items())
    parser.add_argument("action", choices=ACTIONS, help=help_text)
    parser.add_argument("arguments", metavar="CHAPTER | FILE", nargs="+", help="chapter 1 to 7, and a file")


def main(options: argparse.Namespace) -> int:
    match options.action, options.arguments:
        case "page", [file] if file.endswith(".html"):
            from attnlab.lesson import training_page

            check_writable(Path(file))
            training_page.write(Path(file))
            print(file)
            return 0
        case "check" | "train", [chapter, file] if chapter.isdecimal():
            functions = _functions(Path(file))
            if options.action == "check":
                from attnlab.lesson.exercises import check

                return 0 if check(int(chapter), *functions) else 1
            return _train(int(chapter), functions)
    raise UsageError(
        f"attnlab lesson {options.action} {ACTIONS[options.action].split(':')[0]}: wrong arguments"
    )


def _train(chapter: int, functions: list[Callable[..., Any]]) -> int:
    """Check the functions of the chapter, train with them and print the exact match and a heat map."""
    from attnlab.lesson.exercises import check
    from attnlab.lesson.training import train
    from attnlab.report.terminal import print_heatmap

    if not check(chapter, *functions):
        return 1
    trained = train(chapter, *functions)
    print(f"exact match {100 * trained.exact_match:.0f} %")
    longest = max(trained.predictions, key=lambda prediction: len(prediction.source_tokens))
    if longest.weights is None or not longest.weights.any():
        return 0  # the network of chapter 1 has no attention
    print_heatmap(longest)
    return 0


def _functions(path: Path) -> list[Callable[..., Any]]:
    """Return the functions of a Python file."""
    if not path.is_file():
        raise UserError(f"{path} does not exist")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise UserError(f"{path}: the name must end in .py")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise UserError(f"{path} cannot be executed: {type(error).__name__}: {error}") from error
    return [value for name, value in vars(module).items() if callable(value) and not name.startswith("_")]
