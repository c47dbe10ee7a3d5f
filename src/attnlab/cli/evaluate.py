"""`attnlab evaluate`: evaluate a trained run, or an ensemble, with its own or with changed settings."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure
from omegaconf import DictConfig
from rich.table import Column, Table

from attnlab.cli import explain
from attnlab.config import build, evaluation_data
from attnlab.config.compose import apply_overrides
from attnlab.config.range_checks import check_ranges
from attnlab.data.corpus import Pair
from attnlab.data.datamodule import Seq2SeqData
from attnlab.data.digests import count_seen
from attnlab.data.tokenization.vocabularies import references
from attnlab.errors import UsageError
from attnlab.files.reading import exists
from attnlab.files.run_directory import locate
from attnlab.files.run_identity import short_hash
from attnlab.files.writing import check_writable, write_json
from attnlab.jobs.launcher import import_from_current_folder
from attnlab.jobs.logs import quieten_lightning
from attnlab.jobs.terminal import print_line, print_table
from attnlab.metrics import registry
from attnlab.metrics.text import LengthScores, score_by_length
from attnlab.nn.seq2seq import Seq2Seq
from attnlab.plotting.curves import plot_curves
from attnlab.plotting.files import save_png_and_svg
from attnlab.training import build_training
from attnlab.training.callbacks import Predictions
from attnlab.training.checkpoints import read_data_record
from attnlab.training.module import Seq2SeqModule
from attnlab.training.restore import restore_networks

CHANGEABLE = (
    *("attention_override", "batching", "data", "explain"),
    *("paths", "reranking", "search", "seed", "trainer"),
)
"""Settings and groups that can be changed after training, except `FIXED`."""
FIXED = ("batching.source_eos",)
"""Settings of these groups that determine the inputs of the network, and so cannot change."""


def main(options: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    quieten_lightning()
    overrides = [word for word in options.runs_and_overrides if "=" in word and not exists(word)]
    located = [locate(word) for word in options.runs_and_overrides if word not in overrides]
    if not located:
        raise UsageError("No RUN to evaluate: give a run directory or a checkpoint file")
    if options.trust:
        import_from_current_folder()
    run, checkpoint = located[0]
    other_members = [str(path) for _, path in located[1:]]
    trained, vocabularies, network = restore_networks([path for _, path in located], options.trust)
    given, other_overrides = evaluation_data.separate(trained, overrides)
    config = apply_overrides(trained, other_overrides)
    _refuse_fixed(overrides)
    check_ranges(config)

    records = [read_data_record(path) for _, path in located]
    stage = options.split or next((name for name in ("test", "val") if name in given.files), None)
    if stage in given.files:
        corpus = evaluation_data.read(
            config, given, vocabularies, metrics=tuple(records[0].get("metrics", ()))
        )
    else:
        corpus = build.build_corpus(config)
    stage = stage or ("test" if corpus.test_splits else "val")
    if stage == "test" and not corpus.test_splits:
        raise UsageError("This corpus has no test split: evaluate the validation split with --split val")
    data = build.build_data(config, corpus, vocabularies)
    module = build_training.build_module(config, network, vocabularies, corpus)
    explain.check(config, network)
    interventions = build.build_interventions(config, network)
    if config.attention_override in interventions:
        assert isinstance(network, Seq2Seq)  # checked by build_interventions
        network.decoder.attention = interventions.pop(config.attention_override)

    other_checkpoint = [] if checkpoint == run.best else [checkpoint.name]
    changes = [*overrides, *other_members, *other_checkpoint]
    splits = corpus.test_splits if stage == "test" else ("val",)
    evaluation_data.check_unchanged(overrides, records[0].get("data"), corpus, vocabularies, splits)
    own_attention = network.decoder.attention if isinstance(network, Seq2Seq) else None
    for split in splits:
        if split != "val":
            data.test_split = split
        folder = run.directory / "evaluations" / _folder_name(split, changes)
        check_writable(folder / "result.json")
        scores = _evaluate(config, module, data, split, folder)
        pairs = data.pairs(split)
        decoded = [
            pairs[output.index] for output in module.outputs
        ]  # trainer.limit_test_batches leaves out some
        seen = _seen_in_training(records, decoded)
        lengths = _by_length(module, split)
        explained = {}
        if config.get("explain") is not None:
            assert isinstance(network, Seq2Seq)  # checked by explain.check
            explained = explain.explain(config, network, vocabularies, data.pairs(split), trust=options.trust)
            explain.write(explained, config.explain, split, [*overrides, *other_checkpoint], folder)
        changed = {}
        for name, attention in interventions.items():
            assert isinstance(network, Seq2Seq)
            network.decoder.attention = attention
            changed[name] = _evaluate(config, module, data, split, folder / name)
        if isinstance(network, Seq2Seq) and own_attention is not None:
            network.decoder.attention = own_attention
        result = {
            "checkpoint": str(checkpoint),
            "ensemble_with": other_members,
            "overrides": overrides,
            "split": split,
            "sentences": len(decoded),
            "seen_in_training": seen,
            "metrics": scores,
            "by_length": [row._asdict() for row in lengths],
            "signatures": registry.signatures(module.text_metrics),
            "references": references(decoded, vocabularies),
        }
        if changed:
            result["attention_override"] = {
                name: {
                    "metrics": metrics,
                    # if its own weights are all 0, the network has no attention metrics to compare with
                    "drops": {key: scores[key] - value for key, value in metrics.items() if key in scores},
                }
                for name, metrics in changed.items()
            }
        write_json(folder / "result.json", result)
        save_png_and_svg(_curves(lengths), folder / "by_length")
        sentences = f"{len(decoded)}" if len(decoded) == len(pairs) else f"{len(decoded)} of {len(pairs)}"
        print_table(_scores_table(scores, changed, title=f"{split} · {sentences} sentences"))
        print_table(_lengths_table(lengths))
        if explained:
            print_table(explain.table(explained, split))
        for metric, signature in registry.signatures(module.text_metrics).items():
            print_line(f"{registry.label(f'test/{metric}')}  {signature}")
        if result["references"] == "normalised":
            print_line("references: as normalised by the target tokenizer, not the raw text")
        if seen:
            print_line(f"{seen} of these sources were in the training split", style="red")
        print_line(f"results, figures and predictions  {folder}")
    return 0


def _refuse_fixed(overrides: list[str]) -> None:
    """Raise `UsageError` at a setting that cannot change after training."""
    for override in overrides:
        key = override.partition("=")[0]
        if key.partition(".")[0] not in CHANGEABLE or key in FIXED:
            raise UsageError(
                f"{override}: {key} cannot change after training: train another run with it. Settings that "
                f"can change: {', '.join(CHANGEABLE)}"
            )


def _seen_in_training(records: Sequence[dict[str, Any]], pairs: Sequence[Pair]) -> int | None:
    """Count the pairs whose source is in the training data of one of the checkpoints; None if unknown."""
    known = [record["training_sources"] for record in records if "training_sources" in record]
    if len(known) < len(records):
        return None
    return count_seen(pairs, torch.cat(known).numpy())


def _evaluate(
    config: DictConfig, module: Seq2SeqModule, data: Seq2SeqData, split: str, folder: Path
) -> dict[str, float]:
    """Decode a split, write the predictions into the folder, and return the metrics."""
    trainer = build_training.make_trainer(
        config,
        devices=1,  # one process gives the same metrics as several
        num_nodes=1,
        strategy="auto",
        logger=False,
        callbacks=[Predictions(folder)],
        use_distributed_sampler=False,
        enable_checkpointing=False,
        enable_model_summary=False,
        enable_progress_bar=False,
    )
    evaluate = trainer.validate if split == "val" else trainer.test
    (scores,) = evaluate(module, datamodule=data, verbose=False)
    return {name: float(value) for name, value in scores.items()}


def _scores_table(scores: dict[str, float], changed: dict[str, dict[str, float]], title: str) -> Table:
    """Build a table with one row per metric; with interventions also their values and changes."""
    title += " · below each value: its difference from the unchanged network" if changed else ""
    table = Table(
        Column("score", overflow="fold"),
        *(Column(name, overflow="fold") for name in ("value", *changed)),
        title=title,
        show_lines=bool(changed),
    )
    for name, value in scores.items():
        cells = [
            f"{_number(others[name])}\n{_number(value - others[name], '+')}" if name in others else "–"
            for others in changed.values()  # zero weights have no attention metrics
        ]
        label = registry.name(name)  # the title names the split
        table.add_row(label.replace("/", " ").replace("_", " "), _number(value), *cells)
    return table


def _number(score: float, sign: str = "") -> str:
    """Format a metric in at most nine characters; a perplexity may be very large."""
    if abs(score) < 10:
        return f"{score:{sign}.4f}"
    return f"{score:{sign}.2f}" if abs(score) < 1e4 else f"{score:{sign}.2e}"


def _by_length(module: Seq2SeqModule, split: str) -> list[LengthScores]:
    """Compute the metrics of the decoded sentences for ranges of source lengths, in tokens without EOS."""
    lengths = module.data.examples(split).source_lengths - module.data.source_eos
    by_index = [int(lengths[output.index]) for output in module.outputs]
    return score_by_length(module.outputs, by_index, module.text_metrics)


def _lengths_table(rows: list[LengthScores]) -> Table:
    """Build a table with one row per range of lengths; the eight metrics of CoNaLa fit into 80 columns."""
    names = list(rows[0].scores)
    heads = ("source length", "sentences", *(name.replace("_", " ") for name in names))
    columns = [Column(head, overflow="fold", justify="right") for head in heads]
    table = Table(*columns, title="by source length, in tokens", pad_edge=False)
    for row in rows:
        span = f"{row.shortest}" if row.shortest == row.longest else f"{row.shortest}–{row.longest}"
        table.add_row(span, str(row.sentences), *(_short_number(row.scores[name]) for name in names))
    return table


def _short_number(score: float | None) -> str:
    """Format a fraction, or points up to 100, in five characters."""
    if score is None:
        return "–"
    return f"{score:.3f}" if abs(score) < 10 else f"{score:.1f}"


def _curves(rows: list[LengthScores]) -> Figure:
    """Plot every metric against the middle of each range of lengths, on one scale."""
    series = {
        name: [
            ((row.shortest + row.longest) / 2, registry.percentage(name, score))
            for row in rows
            if (score := row.scores[name]) is not None
        ]
        for name in rows[0].scores
    }
    return plot_curves(series, x_label="source length, in tokens", y_label="score, of 100")


def _folder_name(split: str, changes: list[str]) -> str:
    """Return a folder name for a split and a set of changes."""
    name = split.replace("/", "-")
    return f"{name}-{short_hash(sorted(changes))}" if changes else name
