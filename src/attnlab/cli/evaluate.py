"""`attnlab evaluate RUN [overrides]`: score a trained run as it is, or with other data, search or weights."""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure
from omegaconf import DictConfig
from rich.console import Console
from rich.table import Column, Table

from attnlab.config import build
from attnlab.config.compose import apply_overrides
from attnlab.config.range_checks import check_numbers
from attnlab.data.corpus import Pair
from attnlab.data.datamodule import Seq2SeqData
from attnlab.errors import UserError
from attnlab.metrics import registry
from attnlab.metrics.text import LengthScores, score_by_length
from attnlab.nn.seq2seq import Seq2Seq
from attnlab.plotting.curves import plot_curves
from attnlab.plotting.files import save_png_and_svg
from attnlab.runs.directory import locate
from attnlab.runs.files import write_json
from attnlab.training.callbacks import Predictions
from attnlab.training.module import Seq2SeqModule, Split

CHANGEABLE = ("attention_override", "batching", "data", "paths", "reranking", "search", "seed", "trainer")
"""The settings and groups that make a difference to a network that is trained already …"""
KEPT = ("batching.source_eos",)
"""… and those in them that it was trained for."""


def main(words: list[str]) -> int:
    """Run the command; returns the exit code."""
    options = _parser().parse_intermixed_args(words)
    build.quieten_lightning()
    settings = [word for word in options.words if "=" in word and not Path(word).exists()]
    located = [locate(word) for word in options.words if word not in settings]
    if not located:
        raise UserError("there is no RUN to score: give a run directory or a checkpoint file")
    run, checkpoint = located[0]
    others = [str(path) for _, path in located[1:]]
    config, vocabularies, network = build.restore_networks([path for _, path in located])
    trained, config = config, apply_overrides(config, settings)
    _refuse_what_was_trained(settings)
    check_numbers(config)

    corpus = build.build_corpus(config)
    split: Split = options.split or ("test" if corpus.test else "val")
    if split == "test" and not corpus.test:
        raise UserError("this corpus has no test split: score the validation split with --split val")
    data = build.build_data(config, corpus, vocabularies)
    module = build.build_module(config, network, vocabularies, corpus)
    overrides = build.build_overrides(config, network)
    if config.attention_override in overrides:
        assert isinstance(network, Seq2Seq)  # as build_overrides has checked
        network.decoder.attention = overrides.pop(config.attention_override)

    named = [] if checkpoint == run.best else [checkpoint.name]
    folder = run.directory / "evaluations" / _name(split, [*settings, *others, *named])
    other_data = any(word.startswith("data.") for word in settings)
    seen = _seen(trained, data.pairs(split)) if other_data else 0
    scores = _score(config, module, data, split, folder)
    lengths = _by_length(module, split)
    overridden = {}
    for how, attention in overrides.items():
        assert isinstance(network, Seq2Seq)
        network.decoder.attention = attention
        overridden[how] = _score(config, module, data, split, folder / how)
    told = {
        "checkpoint": str(checkpoint),
        "ensemble_with": others,
        "overrides": settings,
        "split": split,
        "sentences": len(data.pairs(split)),
        "seen_in_training": seen,
        "metrics": scores,
        "by_length": [row._asdict() for row in lengths],
        "signatures": registry.signatures(module.text_metrics),
    }
    if overridden:
        told["attention_override"] = {
            how: {
                "metrics": changed,
                # where its own weights are all 0, a network has no scores of attention to drop
                "drops": {name: scores[name] - value for name, value in changed.items() if name in scores},
            }
            for how, changed in overridden.items()
        }
    write_json(folder / "result.json", told)
    save_png_and_svg(_curves(lengths), folder / "by_length")
    console = Console(soft_wrap=True)
    console.print(_summary(scores, overridden, title=f"{split} · {len(data.pairs(split))} sentences"))
    console.print(_table(lengths))
    if seen:
        console.print(
            f"{seen} of these sources were in the training split: no test of what is new", style="red"
        )
    console.print(f"results, pictures and predictions  {folder}", highlight=False)
    return 0


def _refuse_what_was_trained(settings: list[str]) -> None:
    """Raise `UserError` at a setting that would change nothing, since the network is as it was trained."""
    for word in settings:
        key = word.partition("=")[0]
        if key.partition(".")[0] not in CHANGEABLE or key in KEPT:
            raise UserError(
                f"{word}: {key} belongs to what was trained; train another run with it. Here "
                f"{', '.join(CHANGEABLE)} can be changed"
            )


def _seen(config: DictConfig, pairs: Sequence[Pair]) -> int:
    """How many of the pairs' sources stand in the training split of this configuration."""
    sources = {pair.source for pair in build.build_corpus(config).train}
    return sum(pair.source in sources for pair in pairs)


def _score(
    config: DictConfig, module: Seq2SeqModule, data: Seq2SeqData, split: Split, folder: Path
) -> dict[str, float]:
    """Decode a split, write the predictions into the folder, and score them."""
    trainer = build.make_trainer(
        config,
        devices=1,  # the scores of one process are those of many
        num_nodes=1,
        strategy="auto",
        logger=False,
        callbacks=[Predictions(folder)],
        use_distributed_sampler=False,
        enable_checkpointing=False,
        enable_model_summary=False,
        enable_progress_bar=False,
    )
    evaluate = {"val": trainer.validate, "test": trainer.test}[split]
    (scores,) = evaluate(module, datamodule=data, verbose=False)
    return {name: float(value) for name, value in scores.items()}


def _summary(scores: dict[str, float], overridden: dict[str, dict[str, float]], title: str) -> Table:
    """A row for each score; beside it what it is under each intervention, and below that its drop."""
    title += " · under each value its drop (below 0: a rise)" if overridden else ""
    table = Table(
        Column("score", overflow="fold"),
        *(Column(name, overflow="fold") for name in ("value", *overridden)),
        title=title,
        show_lines=bool(overridden),
    )
    for name, value in scores.items():
        cells = [
            f"{_plain(others[name])}\n{_plain(value - others[name], '+')}" if name in others else "–"
            for others in overridden.values()  # weights of 0 have no scores
        ]
        label = name.removeprefix("val/").removeprefix("test/")  # the title says which
        table.add_row(label.replace("/", " ").replace("_", " "), _plain(value), *cells)
    return table


def _plain(score: float, sign: str = "") -> str:
    """In nine characters at the most: a perplexity may be beyond all bounds."""
    if abs(score) < 10:
        return f"{score:{sign}.4f}"
    return f"{score:{sign}.2f}" if abs(score) < 1e4 else f"{score:{sign}.2e}"


def _by_length(module: Seq2SeqModule, split: Split) -> list[LengthScores]:
    """The scores of what was decoded, by the tokens of the source's text as the network read it."""
    lengths = module.data.examples(split).source_lengths - module.data.source_eos
    by_index = [int(lengths[output.index]) for output in module.outputs]
    return score_by_length(module.outputs, by_index, module.text_metrics)


def _table(rows: list[LengthScores]) -> Table:
    """A line for each range of lengths, narrow enough for the eight scores of CoNaLa in 80 columns."""
    names = list(rows[0].scores)
    heads = ("source length", "sentences", *(name.replace("_", " ") for name in names))
    columns = [Column(head, overflow="fold", justify="right") for head in heads]
    table = Table(*columns, title="by source length, in tokens", pad_edge=False)
    for row in rows:
        span = f"{row.shortest}" if row.shortest == row.longest else f"{row.shortest}–{row.longest}"
        table.add_row(span, str(row.sentences), *(_short(row.scores[name]) for name in names))
    return table


def _short(score: float) -> str:
    """In five characters: a share between 0 and 1, or points up to 100."""
    return f"{score:.3f}" if abs(score) < 10 else f"{score:.1f}"


def _curves(rows: list[LengthScores]) -> Figure:
    """Every score against the middle of each range of lengths, on one scale."""
    series = {
        name: [
            ((row.shortest + row.longest) / 2, registry.percentage(name, row.scores[name])) for row in rows
        ]
        for name in rows[0].scores
    }
    return plot_curves(series, x_label="source length, in tokens", y_label="score, of 100")


def _name(split: str, words: list[str]) -> str:
    """A folder for each split, set of overrides and ensemble."""
    if not words:
        return split
    return f"{split}-{hashlib.sha256(' '.join(sorted(words)).encode()).hexdigest()[:8]}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="attnlab evaluate", description=__doc__, allow_abbrev=False)
    parser.add_argument(
        "words",
        metavar="RUN | OVERRIDE",
        nargs="+",
        help="a run directory or a checkpoint file (of several the probabilities are averaged), and settings "
        "to change: data.path=FILE search.beam_size=5",
    )
    parser.add_argument(
        "--split", choices=("val", "test"), help="default: test, or val where there is no test split"
    )
    return parser
