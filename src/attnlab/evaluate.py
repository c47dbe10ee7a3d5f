"""`attnlab evaluate RUN [overrides]`: score a trained run, as it is or with other data or another search."""

from __future__ import annotations

import argparse
import hashlib
import json
import logging

from hydra.utils import instantiate
from rich.console import Console
from rich.table import Table

from attnlab import build
from attnlab.callbacks import Predictions
from attnlab.compose import apply_overrides
from attnlab.errors import UserError
from attnlab.metrics.scores import signatures
from attnlab.module import Split
from attnlab.runs import locate, write_atomically


def main(words: list[str]) -> int:
    """Run the command; returns the exit code."""
    options = _parser().parse_args(words)
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    run, checkpoint = locate(options.run)
    config, vocabularies, network = build.restore_network(checkpoint)
    config = apply_overrides(config, options.overrides)

    corpus = build.build_corpus(config)
    split: Split = options.split or ("test" if corpus.test else "val")
    if split == "test" and not corpus.test:
        raise UserError("this corpus has no test split: score the validation split with --split val")
    data = build.build_data(config, corpus, vocabularies)
    module = build.build_module(config, network, vocabularies, corpus)

    folder = run.directory / "evaluations" / _name(split, options.overrides)
    trainer = instantiate(
        config.trainer,
        devices=1,  # the scores of one process are those of many
        num_nodes=1,
        strategy="auto",
        logger=False,
        callbacks=[Predictions(folder)],
        use_distributed_sampler=False,
        enable_checkpointing=False,
        enable_model_summary=False,
        enable_progress_bar=False,
        _convert_="object",
    )
    evaluate = {"val": trainer.validate, "test": trainer.test}[split]
    (scores,) = evaluate(module, datamodule=data, verbose=False)
    told = {
        "checkpoint": str(checkpoint),
        "overrides": options.overrides,
        "split": split,
        "sentences": len(data.pairs(split)),
        "metrics": {name: float(value) for name, value in scores.items()},
        "signatures": signatures(module.scores),
    }
    write_atomically(folder / "result.json", json.dumps(told, indent=2) + "\n")
    table = Table("score", "value", title=f"{split} · {len(data.pairs(split))} sentences")
    for name, value in scores.items():
        table.add_row(name, f"{value:.4f}")
    console = Console(soft_wrap=True)
    console.print(table)
    console.print(f"results and predictions  {folder}", highlight=False)
    return 0


def _name(split: str, overrides: list[str]) -> str:
    """A folder for each split and set of overrides."""
    if not overrides:
        return split
    return f"{split}-{hashlib.sha256(' '.join(sorted(overrides)).encode()).hexdigest()[:8]}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="attnlab evaluate", description=__doc__, allow_abbrev=False)
    parser.add_argument("run", metavar="RUN", help="a run directory or a checkpoint file")
    parser.add_argument(
        "overrides",
        metavar="OVERRIDE",
        nargs="*",
        help="settings to change: data.path=FILE search.beam_size=5",
    )
    parser.add_argument(
        "--split", choices=("val", "test"), help="default: test, or val where there is no test split"
    )
    return parser
