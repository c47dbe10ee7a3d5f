"""`HeatMap`: the content of a heat map of attention weights, and its form in every place that shows one.

Files, notebooks and training show `figure`, the terminal `lines`, and the pages of `attnlab report`, `attnlab
serve` and `attnlab predict --attention page.html` draw `data` by `heat_map.js`. All have the same axes: a row
for each output token, with its probability beside it, and a column for each source token.
"""

from __future__ import annotations

import base64
import html
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from attnlab.errors import UserError
from attnlab.files.predictions import Prediction, pack_weights

if TYPE_CHECKING:
    from rich.text import Text

    from attnlab.plotting.files import InlineFigure

ROWS, COLUMNS, PROBABILITY = "output tokens", "source tokens", "p"
"""Titles of the axes and of the column of probabilities."""


@dataclass(frozen=True)
class HeatMap:
    """A heat map of attention weights."""

    rows: Sequence[str]  # T output tokens
    columns: Sequence[str]  # S source tokens
    weights: ArrayLike  # [T, S], each in [0, 1]
    # of the T output tokens, given the ones before; None if unknown
    probabilities: Sequence[float] | None = None
    alignment: Sequence[Sequence[int]] = ()  # [row, column] of each gold link, which is framed
    # named texts below the map: source, prediction and reference
    texts: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, prediction: Prediction) -> HeatMap:
        """Return the heat map of a prediction; raise `UserError` if it has no weights."""
        if prediction.weights is None or not prediction.weights.size:
            raise UserError(f"{prediction!r} has no attention weights to plot")
        texts = {
            "source": prediction.source,
            "prediction": prediction.hypothesis,
            "reference": prediction.reference,
        }
        return cls(
            rows=prediction.tokens,
            columns=prediction.source_tokens,
            weights=prediction.weights,
            probabilities=prediction.probabilities,
            alignment=prediction.alignment or (),
            texts={name: text for name, text in texts.items() if text},
        )

    def figure(self, title: str = "", *, dark: bool = False) -> InlineFigure:
        """Return a matplotlib figure."""
        from attnlab.plotting.heat_map_figure import plot_heatmap

        return plot_heatmap(self, title, dark=dark)

    def lines(self, width: int) -> Iterator[Text]:
        """Yield the lines of the map for a terminal of this width in cells."""
        from attnlab.plotting.terminal import heatmap_lines

        return heatmap_lines(self, width)

    def print(self) -> None:
        """Print the map to the terminal."""
        from rich.console import Console

        console = Console(highlight=False)
        for line in self.lines(console.width):
            line.rstrip()
            console.print(line, soft_wrap=True)

    def data(self) -> dict[str, Any]:
        """Return what `heatMap` of `heat_map.js` needs besides the columns, as plain JSON data."""
        data: dict[str, Any] = {"tokens": list(self.rows), "weights": pack_weights(np.asarray(self.weights))}
        if self.probabilities is not None:
            data["probabilities"] = [round(p, 3) for p in self.probabilities]
        if self.alignment:
            data["alignment"] = [list(link) for link in self.alignment]
        return data


def prediction_html(prediction: Prediction) -> str:
    """Return source, hypothesis, score and heat map as HTML."""
    score = "" if prediction.score is None else f" <small>score {prediction.score:.4f}</small>"
    hypothesis = f"<b>{html.escape(prediction.hypothesis)}</b>"
    line = f"<p>{html.escape(prediction.source)} → {hypothesis}{score}</p>"
    if prediction.weights is None or not prediction.weights.any():
        return line
    light, dark = (
        "data:image/png;base64,"
        + base64.b64encode(HeatMap.of(prediction).figure(dark=dark)._repr_png_()).decode("ascii")
        for dark in (False, True)
    )
    return (
        f'{line}<picture><source media="(prefers-color-scheme: dark)" srcset="{dark}">'
        f'<img alt="attention weights" src="{light}"></picture>'
    )
