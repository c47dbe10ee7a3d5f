"""Draw attention.png from the weights of published attention (seed 0) in attention.csv."""

import csv
from pathlib import Path

import numpy as np

from attnlab.files.predictions import Prediction
from attnlab.report.files import save
from attnlab.report.heat_map_figure import plot_heatmap

WEIGHTS = Path(__file__).with_name("attention.csv")


def main() -> None:
    """Write the picture."""
    with WEIGHTS.open(newline="", encoding="utf-8") as file:
        (_, *source), *rows = csv.reader(file)
    tokens = [row[0] for row in rows]
    prediction = Prediction(
        index=0,
        source="",
        hypothesis="",
        source_tokens=source,
        tokens=tokens,
        weights=np.array([[float(weight) for weight in row[1:]] for row in rows]),
    )
    save(plot_heatmap(prediction), WEIGHTS.with_suffix(".png"))


if __name__ == "__main__":
    main()
