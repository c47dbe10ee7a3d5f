"""`HeatMap`: the content of a heat map of attention weights, and its form in every place that shows one.

Files, notebooks and training show `figure`, the terminal `lines`, the documentation `svg`, and the pages of
`attnlab report`, `attnlab serve` and `attnlab predict --attention page.html` draw `data` by `heat_map.js`.
All have the same axes: a row for each output token, with its probability beside it, and a column for each
source token.
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

# Pixels of the SVG
CELL, FONT, CHARACTER = 24, 11, 6.7


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
        """Return the heat map of a prediction.

        Raises:
            UserError: if there are no weights.
        """
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

    def data(self) -> dict[str, Any]:
        """Return what `heatMap` of `heat_map.js` needs besides the columns, as plain JSON data."""
        data: dict[str, Any] = {"tokens": list(self.rows), "weights": pack_weights(np.asarray(self.weights))}
        if self.probabilities is not None:
            data["probabilities"] = [round(p, 3) for p in self.probabilities]
        if self.alignment:
            data["alignment"] = [list(link) for link in self.alignment]
        return data

    def svg(self) -> str:
        """Return the map as an inline `<svg>`, which has the text colour of the page, light or dark."""
        weights = np.asarray(self.weights, dtype=float)  # [T, S]
        longest = max(map(len, self.columns))
        left = 22 + CHARACTER * max(map(len, self.rows))
        top = 26 + CHARACTER * (longest if longest > 3 else 1)
        width, height = CELL * len(self.columns), CELL * len(self.rows)
        right = 0 if self.probabilities is None else 44
        parts = [
            f'<text x="{left + width / 2:g}" y="{FONT}" text-anchor="middle">{COLUMNS}</text>',
            f'<text transform="translate({FONT} {top + height / 2:g}) rotate(-90)" text-anchor="middle">'
            f"{ROWS}</text>",
        ]
        for number, token in enumerate(self.columns):
            place = f"translate({left + (number + 0.5) * CELL:g} {top - 6:g})"
            turn = ' rotate(-90)" text-anchor="start" dominant-baseline="central' if longest > 3 else ""
            anchor = "" if turn else '" text-anchor="middle'
            parts.append(f'<text transform="{place}{turn}{anchor}">{html.escape(token)}</text>')
        for number, token in enumerate(self.rows):
            line = f'y="{top + (number + 0.5) * CELL:g}" dominant-baseline="central"'
            parts.append(f'<text x="{left - 6:g}" {line} text-anchor="end">{html.escape(token)}</text>')
            if self.probabilities is not None:
                probability = f"{self.probabilities[number]:.2f}"
                parts.append(f'<text x="{left + width + 8:g}" {line}>{probability}</text>')
        if self.probabilities is not None:
            parts.append(f'<text x="{left + width + 8:g}" y="{top - 6:g}">{PROBABILITY}</text>')
        for (row, column), weight in np.ndenumerate(weights):
            if weight >= 0.005:
                x, y = left + column * CELL, top + row * CELL
                parts.append(
                    f'<rect x="{x:g}" y="{y:g}" width="{CELL}" height="{CELL}" fill="#2f7fc4" '
                    f'fill-opacity="{weight:.2f}"><title>{weight:.2f}</title></rect>'
                )
        frame = f'x="{left:g}" y="{top:g}" width="{width}" height="{height}"'
        parts.append(f'<rect {frame} fill="none" stroke="currentColor" stroke-opacity="0.4"/>')
        for row, column in self.alignment:
            x, y = left + column * CELL + 1, top + row * CELL + 1
            size = f'width="{CELL - 2}" height="{CELL - 2}"'
            parts.append(f'<rect x="{x:g}" y="{y:g}" {size} fill="none" stroke="#e08a00" stroke-width="2"/>')
        size = f"{left + width + right + 1:g} {top + height + 1:g}"
        label = f"Attention weights: {len(self.rows)} output tokens, {len(self.columns)} source tokens"
        return (
            f'<svg viewBox="0 0 {size}" width="{left + width + right + 1:g}" role="img" aria-label="{label}" '
            f'font-family="sans-serif" font-size="{FONT}" fill="currentColor">{"".join(parts)}</svg>'
        )


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
