"""`attnlab score`: print the log-probabilities of given pairs.

One source and target per line in, separated by a tab, with features in a column between them if the model
reads features; per line out the log-probability of the target and,
after a tab, of each of its tokens.
"""

from __future__ import annotations

import argparse
import json
from itertools import islice
from typing import TYPE_CHECKING

from attnlab.cli import arguments, input_lines
from attnlab.errors import UserError

if TYPE_CHECKING:
    from attnlab.api.model import Score
    from attnlab.data.corpus import Pair

IMPORTS = ("attnlab.api.model",)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", metavar="RUN", nargs="+", help=arguments.RUNS)
    parser.add_argument("--json", action="store_true", help="print a JSON object per line, with the tokens")
    arguments.add_strict(parser, "scored")
    arguments.add_trust(parser)


def main(options: argparse.Namespace) -> int:
    """Run the command; returns 1 if a line could not be scored, else 0."""
    from attnlab.api.model import BATCH, load

    stream = input_lines.standard_input("a source and a target per line, separated by a tab")
    model = load(options.runs, trust=options.trust)

    expected = 2 if model.config.data.get("features_column") is None else 3

    def read(text: str) -> tuple[str, str, Pair]:
        source, target = _columns(text, expected)
        return source, target, model.read(source, target)

    def write(_: int, line: tuple[str, str, Pair] | None, score: Score | None) -> None:
        print("" if line is None or score is None else _to_line(*line[:2], score, options.json), flush=True)

    lines = input_lines.read_lines(stream, interactive=False)
    failed = 0
    while batch := list(islice(lines, BATCH)):
        failed += input_lines.process(
            batch,
            read,
            lambda parsed: model.score_pairs([pair for _, _, pair in parsed.values()]),
            write,
            strict=options.strict,
        )
    return 1 if failed else 0


def _columns(text: str, expected: int) -> tuple[str, str]:
    """Split a line into the source, with its features, and the target."""
    count = text.count("\t") + 1
    if count != expected:
        features = ", its features" * (expected == 3)
        raise UserError(
            f"it has {count} columns instead of {expected}: give a source{features} and a target, separated "
            f"by {'tabs' if features else 'a tab'}"
        )
    source, _, target = text.rpartition("\t")
    return source, target


def _to_line(source: str, target: str, score: Score, as_json: bool) -> str:
    if not as_json:
        values = " ".join(f"{value:.4f}" for value in score.token_log_probabilities)
        return f"{score.log_probability:.4f}\t{values}"
    record = {
        "source": source,
        "target": target,
        "log_probability": score.log_probability,
        "tokens": score.tokens,
        "token_log_probabilities": score.token_log_probabilities,
    }
    return json.dumps(record, ensure_ascii=False)
