"""`attnlab predict`: one source sentence per line in, one translation per line out."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path

from omegaconf import DictConfig
from rich.console import Console

from attnlab.config.build import build_preparation, build_translator, encode_pairs
from attnlab.config.restore import restore_networks
from attnlab.errors import UserError
from attnlab.plotting.files import save
from attnlab.plotting.heatmap import plot_heatmap
from attnlab.plotting.terminal import heatmap_lines
from attnlab.report import page
from attnlab.report.explorer import Sentence
from attnlab.runs.directory import locate
from attnlab.runs.launcher import import_from_current_folder
from attnlab.runs.predictions import Prediction, to_line

BATCH = 64
"""Number of sentences decoded together."""

FORMATS = (".png", ".svg", ".jsonl", ".html")
TERMINAL = Path("-")


def main(options: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    drawing = None if options.attention is None else Path(options.attention)
    if drawing not in (None, TERMINAL) and drawing.suffix not in FORMATS:
        raise UserError(
            f"--attention {drawing}: the name must end in {', '.join(FORMATS)}, or be - for the terminal"
        )
    for path in options.runs:
        if "=" in path and not Path(path).exists():
            raise UserError(f"{path}: attnlab predict takes no overrides; use its options, such as --beam 5")
    if options.trust:
        import_from_current_folder()
    checkpoints = [locate(path)[1] for path in options.runs]
    config, vocabularies, network = restore_networks(checkpoints, options.trust)
    prepare = build_preparation(config)
    translator = build_translator(config, vocabularies)
    if options.beam is not None:
        translator = replace(translator, beam_size=options.beam)
    if options.nbest > translator.beam_size:
        raise UserError(f"--nbest {options.nbest} needs a larger beam: add --beam {options.nbest}")
    if drawing is not None and drawing.suffix == ".jsonl":
        drawing.parent.mkdir(parents=True, exist_ok=True)
        drawing.write_text("")

    explored: list[Prediction] = []
    lines = enumerate(line.rstrip("\r\n") for line in sys.stdin)
    while numbered := list(islice(lines, 1 if sys.stdin.isatty() else BATCH)):
        for index, line in numbered:
            if not line.strip():
                raise UserError(
                    f"line {index + 1} of standard input is empty: every line must contain a sentence"
                )
        pairs = [prepare(line) for _, line in numbered]
        batch = encode_pairs(config, vocabularies, pairs)[list(range(len(pairs)))]
        batch = batch._replace(indices=batch.indices + numbered[0][0])
        for prediction in chain(*translator(network, batch, pairs, nbest=options.nbest)):
            text = prediction.hypothesis.replace("\n", "\\n")
            print(
                text if options.nbest == 1 else f"{prediction.index + 1}\t{prediction.score:.4f}\t{text}",
                flush=True,
            )
            if drawing is not None and drawing.suffix == ".html":
                explored.append(prediction)
            elif drawing is not None:
                _draw(drawing, prediction)
    if explored:
        assert drawing is not None
        _explore(drawing, explored, config)
    return 0


def _draw(path: Path, prediction: Prediction) -> None:
    """Show in the terminal, append to a .jsonl file, or draw a figure for the line (attention-1.png)."""
    if path.suffix == ".jsonl":
        with path.open("a", encoding="utf-8") as file:
            file.write(to_line(prediction, weights="round"))
        return
    assert prediction.weights is not None
    heatmap = prediction.weights, prediction.source_tokens, prediction.tokens
    if path == TERMINAL:
        console = Console(highlight=False)
        for line in heatmap_lines(*heatmap, width=console.width):
            console.print(line, soft_wrap=True)
        return
    number = prediction.index + 1
    suffix = f"{number}" if prediction.rank == 1 else f"{number}-{prediction.rank}"
    save(plot_heatmap(*heatmap), path.with_name(f"{path.stem}-{suffix}{path.suffix}"))


def _explore(path: Path, predictions: list[Prediction], config: DictConfig) -> None:
    """Write an explorer page of all lines, with the hypotheses of a line side by side."""
    ranks = range(1, max(prediction.rank for prediction in predictions) + 1)
    by_place = {(prediction.index, prediction.rank): prediction for prediction in predictions}
    sentences = [
        Sentence(by_place[index, 1].source, "", [by_place.get((index, rank)) for rank in ranks])
        for index in dict.fromkeys(prediction.index for prediction in predictions)
    ]
    names = [config.variant if len(ranks) == 1 else f"{config.variant} · {rank}" for rank in ranks]
    page.write_explorer(sentences, names, config.name, path)
