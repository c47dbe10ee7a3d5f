"""`attnlab score`: log-probabilities of given pairs, one tab-separated pair per line."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from itertools import islice

from attnlab.api.model import Model, Score, load
from attnlab.cli.input_lines import Line, read_lines
from attnlab.errors import UserError

BATCH = 64
"""Number of pairs scored together."""

Pair = tuple[str, str]


def main(options: argparse.Namespace) -> int:
    """Run the command; returns 1 if a line could not be scored, else 0."""
    if sys.stdin is None:
        raise UserError("Standard input is closed: give a source and a target per line, separated by a tab")
    model = load(options.runs, trust=options.trust)
    lines = read_lines(sys.stdin.buffer, interactive=False)
    failed = 0
    while batch := list(islice(lines, BATCH)):
        for pair, result in _score(model, batch):
            if isinstance(result, UserError):
                if options.strict:
                    raise result
                print(f"attnlab: {result}", file=sys.stderr)
                failed += 1
            print(_to_line(pair, result, as_json=options.json), flush=True)
    return 1 if failed else 0


def _score(model: Model, lines: Sequence[Line]) -> list[tuple[Pair, Score | UserError]]:
    """Return the pair and its score, or the reason why it cannot be scored, of each line."""
    read = [_read(model, line) for line in lines]
    pairs = [pair for pair in read if not isinstance(pair, UserError)]
    scores = iter(model.score(pairs, batch_size=BATCH, progress=False))
    return [(("", ""), pair) if isinstance(pair, UserError) else (pair, next(scores)) for pair in read]


def _read(model: Model, line: Line) -> Pair | UserError:
    """Return source and target of a line, or the reason why the line cannot be scored."""
    try:
        columns = line.decode().split("\t")
        if len(columns) != 2:
            raise UserError(
                f"it has {len(columns)} columns instead of 2: give a source and a target, separated by a tab"
            )
        source, target = columns
        pair = model.prepare(source, target)
        if not model.vocabularies.source.encode(pair.source):
            raise UserError("the source contains no token of the vocabulary")
        model.vocabularies.target.encode(pair.target)
    except UserError as error:
        return line.problem(error)
    return source, target


def _to_line(pair: Pair, score: Score | UserError, *, as_json: bool) -> str:
    """Return the output for a line, without newline; empty if it could not be scored."""
    if isinstance(score, UserError):
        return ""
    if not as_json:
        values = " ".join(f"{value:.4f}" for value in score.token_log_probabilities)
        return f"{score.log_probability:.4f}\t{values}"
    source, target = pair
    record = {
        "source": source,
        "target": target,
        "log_probability": score.log_probability,
        "tokens": score.tokens,
        "token_log_probabilities": score.token_log_probabilities,
    }
    return json.dumps(record, ensure_ascii=False)
