"""The options of every command. Imports nothing heavy."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from attnlab.errors import UsageError

MAX_NUMBER = 2**31 - 1
"""Largest value of an option; larger ones overflow in PyTorch."""

RUNS = "a run directory or a checkpoint file; several are ensembled: their probabilities are averaged"


def parse(command: str, arguments: list[str]) -> argparse.Namespace:
    """Parse the arguments of a command; `train` and `tune` pass theirs on to Hydra as `arguments`.

    Raises:
        SystemExit: with exit code 0 after `--help`.
        UsageError: if the arguments are wrong.
    """
    if command not in PARSERS:
        return argparse.Namespace(arguments=arguments)
    return PARSERS[command]().parse_intermixed_args(arguments, argparse.Namespace(arguments=arguments))


def evaluate() -> argparse.ArgumentParser:
    """Build the parser of `attnlab evaluate`."""
    parser = _parser(
        "evaluate", "Evaluate a trained run, optionally with other data, search or attention weights."
    )
    parser.add_argument(
        "runs_and_overrides",
        metavar="RUN | OVERRIDE",
        nargs="+",
        help=f"{RUNS}; and settings to change: data.path=FILE search.beam_size=5",
    )
    parser.add_argument(
        "--split", choices=("val", "test"), help="default: test, or val if the corpus has no test split"
    )
    _add_trust(parser)
    return parser


def predict() -> argparse.ArgumentParser:
    """Build the parser of `attnlab predict`."""
    parser = _parser(
        "predict",
        "Translate standard input to standard output: one source sentence per line in, one translation per "
        "line out.",
    )
    parser.add_argument(
        "runs_and_overrides",
        metavar="RUN | OVERRIDE",
        nargs="+",
        help=f"{RUNS}; and settings of the search to change: search.temperature=0.8",
    )
    parser.add_argument(
        "--beam", type=_positive, metavar="K", help="beam size (default: search.beam_size of the run)"
    )
    parser.add_argument(
        "--max-length",
        type=_positive,
        metavar="N",
        help="maximum number of output tokens (default: search.max_length of the run)",
    )
    parser.add_argument(
        "--prefix",
        action="store_true",
        help="read a prefix of the output after the source and a tab; outputs start with it",
    )
    parser.add_argument(
        "--nbest",
        type=_positive,
        default=1,
        metavar="N",
        help="print the N best hypotheses per line, each as line number, score and text",
    )
    parser.add_argument(
        "--attention",
        metavar="FILE",
        help="write the attention weights: FILE.html, an interactive page of all lines; FILE.png or "
        "FILE.svg, one heat map per line; FILE.jsonl, numbers; -, heat maps in the terminal",
    )
    _add_strict(parser, "translated")
    _add_trust(parser)
    return parser


def score() -> argparse.ArgumentParser:
    """Build the parser of `attnlab score`."""
    parser = _parser(
        "score",
        "Print the log-probability of given pairs: one source and target per line in, separated by a tab; "
        "per line out the log-probability of the target and, after a tab, of each of its tokens.",
    )
    parser.add_argument("runs", metavar="RUN", nargs="+", help=RUNS)
    parser.add_argument("--json", action="store_true", help="print a JSON object per line, with the tokens")
    _add_strict(parser, "scored")
    _add_trust(parser)
    return parser


def average() -> argparse.ArgumentParser:
    """Build the parser of `attnlab average`."""
    parser = _parser(
        "average",
        "Average the weights of the checkpoints that a run kept (checkpoint.keep), and write them to "
        "RUN/checkpoints/average.ckpt.",
    )
    parser.add_argument("run", metavar="RUN", help="a run directory")
    parser.add_argument(
        "--last", type=_positive, metavar="N", help="average the last N epochs (default: all that were kept)"
    )
    return parser


def report() -> argparse.ArgumentParser:
    """Build the parser of `attnlab report`."""
    parser = _parser(
        "report", "Compare the runs under the paths: a page with statistics, tables and figures."
    )
    parser.add_argument(
        "paths",
        metavar="PATH",
        nargs="+",
        type=Path,
        help="a run directory, or a folder that contains run directories",
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE.html",
        type=Path,
        help="the page; figures/, tables/ and results.csv are written into the folder FILE_files next to it "
        "(default: report.html in the first PATH)",
    )
    parser.add_argument(
        "--metric",
        action="extend",
        nargs="+",
        default=[],
        metavar="METRIC",
        help="metrics to compare, such as test/exact_match; the first one orders the variants (default: "
        "CoNaLa BLEU, BLEU, chrF and exact match, those that the runs have)",
    )
    parser.add_argument(
        "--reference",
        metavar="VARIANT",
        help="compare the other variants with this one (default: the variant none; without it, or with "
        "several of that name, every pair)",
    )
    parser.add_argument(
        "--wandb", action="store_true", help="create a Weights & Biases dashboard of online runs instead"
    )
    parser.add_argument("--all-pairs", action="store_true", help="compare every pair of variants")
    parser.add_argument(
        "--margin",
        action="extend",
        nargs="+",
        default=[],
        metavar="METRIC=VALUE",
        help="test whether variants are equivalent: whether they differ by less than VALUE in the unit of "
        "the tables, such as bleu=0.5 (TOST over seeds)",
    )
    return parser


def bench() -> argparse.ArgumentParser:
    """Build the parser of `attnlab bench`."""
    parser = _parser(
        "bench", "Measure how fast a configuration trains and decodes, relative to the peak of the machine."
    )
    parser.add_argument(
        "overrides", metavar="OVERRIDE", nargs="*", help="settings, as for attnlab train: attention=dot"
    )
    parser.add_argument(
        "--rounds", type=_positive, default=5, help="timed rounds over the batches (default: 5)"
    )
    parser.add_argument("--batches", type=_positive, default=10, help="batches per round (default: 10)")
    parser.add_argument(
        "--lengths",
        type=_positive,
        nargs=2,
        metavar=("S", "T"),
        help="random sentences of these source and target lengths instead of the configured data",
    )
    parser.add_argument(
        "--vocabulary",
        type=_positive,
        default=8004,
        metavar="V",
        help="vocabulary size of random sentences (default: 8004)",
    )
    parser.add_argument(
        "--against", choices=("plain",), help="also time the plain loop over single decoder steps"
    )
    parser.add_argument("--no-search", action="store_true", help="time training only")
    parser.add_argument(
        "--gpu-report",
        action="store_true",
        help="measure a GPU: training and search at the sizes of GNMT with fused loops, the "
        "published loop and torch's LSTMs; only OVERRIDE, --rounds, --batches, --lengths, --vocabulary and "
        "--json apply",
    )
    parser.add_argument("--json", metavar="FILE", help="write all measurements to this file")
    return parser


def serve() -> argparse.ArgumentParser:
    """Build the parser of `attnlab serve`."""
    parser = _parser(
        "serve", "Serve trained models: a page on which sentences are translated, and a JSON interface."
    )
    parser.add_argument("runs", metavar="RUN", nargs="+", help="a run directory or a checkpoint file")
    parser.add_argument("--port", type=_port, default=8000, help="port; 0 for any free one (default: 8000)")
    parser.add_argument(
        "--host",
        type=_address,
        default="127.0.0.1",
        metavar="ADDRESS",
        help="address to listen on (default: 127.0.0.1, this machine only); others need a token",
    )
    parser.add_argument(
        "--token",
        help="secret that requests must contain (default: none for this machine only, else a random one)",
    )
    parser.add_argument(
        "--batch",
        type=_positive,
        default=64,
        metavar="N",
        help="sentences that are decoded together (default: 64)",
    )
    parser.add_argument(
        "--queue",
        type=_positive,
        default=1024,
        metavar="N",
        help="sentences that may wait for a model; further requests are refused (default: 1024)",
    )
    _add_trust(parser)
    return parser


def export() -> argparse.ArgumentParser:
    """Build the parser of `attnlab export`."""
    parser = _parser(
        "export", "Export a trained network: as ONNX graphs, or as a page that runs in a browser."
    )
    parser.add_argument("run", metavar="RUN", help="a run directory or a checkpoint file")
    parser.add_argument(
        "--onnx",
        metavar="DIR",
        type=Path,
        help="write the encoder and the decoding step as ONNX graphs, the tokenizers, and translate.py, "
        "which decodes with ONNX Runtime; DIR is new, empty or an earlier export",
    )
    parser.add_argument("--int8", action="store_true", help="quantise the ONNX graphs dynamically to 8 bits")
    parser.add_argument(
        "--page",
        metavar="FILE.html",
        type=Path,
        help="write a self-contained page that translates typed sentences and draws the attention",
    )
    _add_trust(parser)
    return parser


def completion() -> argparse.ArgumentParser:
    """Build the parser of `attnlab completion`."""
    parser = _parser("completion", "Print the script for tab completion in bash.")
    parser.add_argument(
        "--line", metavar="TEXT", help="print the completions of this command line, as the script does"
    )
    return parser


PARSERS: dict[str, Callable[[], argparse.ArgumentParser]] = {
    "evaluate": evaluate,
    "predict": predict,
    "score": score,
    "average": average,
    "report": report,
    "bench": bench,
    "serve": serve,
    "export": export,
    "completion": completion,
}


def _parser(command: str, description: str) -> argparse.ArgumentParser:
    return _Parser(prog=f"attnlab {command}", description=description, allow_abbrev=False)


def _add_strict(parser: argparse.ArgumentParser, done: str) -> None:
    parser.add_argument(
        "--strict",
        action="store_true",
        help=f"stop at the first line that cannot be {done} (default: report it, print an empty line for it, "
        "and exit with 1 at the end)",
    )


def _add_trust(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--trust",
        action="append",
        default=[],
        metavar="NAME",
        help="a module, or the dotted name of a class, that RUN may use in addition to attnlab's own; "
        "repeatable. Modules in the current folder are found as well",
    )
    parser.add_argument(
        "--import-from",
        action="append",
        default=[],
        metavar="FOLDER",
        type=_folder,
        help="a folder of modules that --trust names, such as the one in which RUN was trained; repeatable",
    )


def _folder(text: str) -> str:
    folder = Path(text).expanduser().absolute()
    if not folder.is_dir():
        raise argparse.ArgumentTypeError(f"{text} is not a folder")
    return str(folder)


class _Parser(argparse.ArgumentParser):
    """Argument parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message} ({self.prog} --help shows the options)")


def _address(text: str) -> str:
    if not text.strip():  # an empty one would be every address of this machine
        raise argparse.ArgumentTypeError("it is empty: give an address; 0.0.0.0 is every address")
    return text


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0 to 65535")
    return int(text)


def _positive(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number ≥ 1")
    if int(text) > MAX_NUMBER:
        raise argparse.ArgumentTypeError(f"{text!r} exceeds {MAX_NUMBER}")
    return int(text)
