"""`attnlab pack`: write a trained model as one file, to hand on.

It has neither optimizer nor logs, and is accepted wherever a run is: attnlab predict FILE. attnlab info FILE
prints its model card.
"""

import argparse

from attnlab.cli import arguments
from attnlab.files.terminal import print_line

FIELDS = {"licence": "terms of use", "citation": "how to cite it", "description": "purpose and limits"}

IMPORTS = ("attnlab.deploy.packing",)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help=arguments.RUN)
    parser.add_argument(
        "--output", metavar="FILE", help="file to write (default: NAME-VARIANT-seedN.ckpt in this folder)"
    )
    parser.add_argument(
        "--bf16", action="store_true", help="store the weights in bfloat16: half of the size, less exact"
    )
    for field, content in FIELDS.items():
        parser.add_argument(f"--{field}", metavar="TEXT", help=f"{content}, for the model card")


def main(options: argparse.Namespace) -> int:
    from attnlab.deploy.packing import pack

    fields = {name: text for name in FIELDS if (text := getattr(options, name))}
    path = pack(options.run, options.output, bf16=options.bf16, **fields)
    print_line(f"{path}  {path.stat().st_size / 1e6:.1f} MB")
    return 0
