"""`attnlab score`: print the log-probabilities of given pairs.

One source and target per line in, separated by a tab, or the columns of the training file if the model reads
features; per line out the log-probability of the target and, after a tab, of each of its tokens.
"""

from __future__ import annotations

import argparse
import json
import sys
from itertools import islice
from typing import TYPE_CHECKING

from attnlab.cli import arguments, input_lines
from attnlab.errors import UserError

if TYPE_CHECKING:
    from attnlab.data.corpus import Pair
    from attnlab.data.datasets.pair_files import Layout
    from attnlab.training.model import Score

IMPORTS = ("attnlab.api.model",)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", metavar="RUN", nargs="+", help=arguments.RUNS)
    parser.add_argument("--json", action="store_true", help="print a JSON object per line, with the tokens")
    arguments.add_strict(parser, "scored")
    arguments.add_trust(parser)


def main(options: argparse.Namespace) -> int:
    """Run the command; returns 1 if a line could not be scored, else 0."""
    from attnlab.api import evaluation_data
    from attnlab.api.model import load
    from attnlab.data.tokenization.tokenizer import UNKNOWN
    from attnlab.training.model import BATCH

    stream = input_lines.standard_input("a source and a target per line, separated by a tab")
    model = load(arguments.without_reports(options.runs), trust=options.trust)
    layout = evaluation_data.layout_of(model.config)

    unknown = {"source": 0, "target": 0}

    def read(_: int, text: str) -> tuple[str, str, Pair]:
        source, target = _columns(text, layout)
        pair = model.read(source, target)
        for side in unknown:
            tokenizer = getattr(model.vocabularies, side)
            unknown[side] += tokenizer.encode(getattr(pair, side)).count(tokenizer.id_of(UNKNOWN))
        return source, target, pair

    def write(_: int, line: tuple[str, str, Pair] | None, score: Score | None) -> None:
        print("" if line is None or score is None else _to_line(*line[:2], score, options.json), flush=True)

    lines = input_lines.read_lines(stream, interactive=False)
    failed = 0
    while batch := list(islice(lines, BATCH)):
        failed += input_lines.process(
            batch,
            read,
            lambda parsed: model.score([pair for _, _, pair in parsed.values()], progress=False),
            write,
            strict=options.strict,
            allow_empty=layout is not None,
        )
    for side, count in unknown.items():
        if count:
            print(f"attnlab: {count:,} tokens of the {side}s were scored as <unk>", file=sys.stderr)
    return 1 if failed else 0


def _columns(text: str, layout: Layout | None) -> tuple[str, str]:
    """Split a line into the source, with its features, and the target.

    With features, the columns are those of the files that the run was trained on.
    """
    cells = text.split("\t")
    if layout is not None and layout.features_column is not None:
        if len(cells) <= max(layout.columns):
            raise UserError(
                f"it has {len(cells)} columns instead of {max(layout.columns) + 1}: give the columns of the "
                "training file"
            )
        return layout.input_of(text), cells[layout.target_column]
    if len(cells) != 2:
        raise UserError(
            f"it has {len(cells)} columns instead of 2: give a source and a target, separated by a tab"
        )
    return cells[0], cells[1]


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
