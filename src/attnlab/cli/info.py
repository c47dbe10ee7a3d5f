"""`attnlab info`: print the model card of a run, a checkpoint or a packed model, as Markdown."""

import argparse

from attnlab.cli import arguments
from attnlab.files.terminal import escape_control_characters

IMPORTS = ("attnlab.deploy.packing",)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="RUN", help=arguments.RUN)


def main(options: argparse.Namespace) -> int:
    from attnlab.deploy.packing import model_card

    for line in model_card(options.model).split("\n"):
        print(escape_control_characters(line))
    return 0
