"""Run directories with metrics, predictions and attention weights, for tests of reports."""

import csv
import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from attnlab.files.predictions import Prediction, write_predictions
from attnlab.files.run_directory import Run
from run_files import write_run

Text = tuple[str, str]
"""A source and its reference."""


def make_run(
    folder: Path,
    variant: str,
    seed: int,
    texts: Sequence[Text],
    *,
    hypotheses: Sequence[str] | None = None,
    weights: bool = True,
) -> Run:
    """Write a finished run; by default the outputs are the references with some words deleted."""
    chance = random.Random(f"{variant} {seed}")
    outputs = hypotheses or [
        " ".join(word for word in reference.split() if chance.random() < 0.8) or reference
        for _, reference in texts
    ]
    sentences = [(*text, output) for text, output in zip(texts, outputs, strict=True)]
    exact = float(np.mean([output == reference for _, reference, output in sentences]))
    scores = {"test/bleu": 20 + 40 * chance.random(), "test/exact_match": exact}
    run = write_run(folder.parent, variant, seed, name=folder.name, scores=scores, sentences=sentences)
    with run.metrics.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("epoch", "step", "metric", "value"))
        for step in range(0, 300, 30):
            writer.writerow((0, step, "val/loss", 3 * np.exp(-step / 100) + 0.1 * chance.random()))
            writer.writerow((0, step, "train/loss_epoch", 4 * np.exp(-step / 100)))
            writer.writerow((0, step, "val/bleu", 50 - 50 * np.exp(-step / 100) + chance.random()))
            writer.writerow((0, step, "attention/entropy", 2 - step / 300 + 0.1 * chance.random()))
            writer.writerow((0, step, "lr-Adam", 0.001 * (1 - step / 300)))
            writer.writerow((0, step, "throughput/steps_per_second", 10 + chance.random()))
    predictions = []
    for index, (source, reference, output) in enumerate(sentences):
        source_tokens, tokens = source.split(" "), [*output.split(" "), "<eos>"]
        gold = [[i, i] for i in range(min(len(tokens) - 1, len(source_tokens)))] if weights else None
        predictions.append(
            Prediction(
                index=index,
                source=source,
                references=(reference,),
                hypothesis=output,
                source_tokens=source_tokens,
                tokens=tokens,
                weights=diagonal(len(tokens), len(source_tokens)) if weights else None,
                alignment=gold,
            )
        )
    write_predictions(run.attention, predictions, weights="pack")
    return run


def diagonal(rows: int, columns: int) -> np.ndarray:
    """Return weights [rows, columns] around the diagonal; every row sums to 1."""
    places = np.arange(columns)[None] - np.linspace(0, columns - 1, rows)[:, None]
    weights = np.exp(-(places**2) / 2)
    return weights / weights.sum(axis=1, keepdims=True)
