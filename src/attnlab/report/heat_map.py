"""Heat maps of attention weights, and their form in every place that shows one.

Files, notebooks and training show figures (`plot_heatmap`), the terminal lines of text (`heatmap_lines`), and
the pages of `attnlab report`, `attnlab serve` and `attnlab predict --attention page.html` draw the data by
`heat_map.js`. All have the same axes: a row for each output token, with its probability beside it, and a
column for each source token.
"""

import base64
import html
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnlab.errors import UserError
from attnlab.files.predictions import Prediction, pack_weights

ROWS, COLUMNS, PROBABILITY = "output tokens", "source tokens", "p"
"""Titles of the axes and of the column of probabilities."""


def weights_of(prediction: Prediction) -> NDArray[np.float64]:
    """Return the attention weights [T, S] of a prediction; raise `UserError` if it has none."""
    if prediction.weights is None or not prediction.weights.size:
        raise UserError(f"{prediction!r} has no attention weights to plot")
    return prediction.weights.astype(float)


def page_data(prediction: Prediction) -> dict[str, Any]:
    """Return what `heatMap` of `heat_map.js` needs besides the columns, as plain JSON data."""
    data: dict[str, Any] = {"tokens": prediction.tokens, "weights": pack_weights(weights_of(prediction))}
    if prediction.probabilities is not None:
        data["probabilities"] = [round(p, 3) for p in prediction.probabilities]
    if prediction.alignment:
        data["alignment"] = prediction.alignment
    return data


def prediction_html(prediction: Prediction) -> str:
    """Return source, hypothesis, score and heat map as HTML."""
    score = "" if prediction.score is None else f" <small>score {prediction.score:.4f}</small>"
    hypothesis = f"<b>{html.escape(prediction.hypothesis)}</b>"
    line = f"<p>{html.escape(prediction.source)} → {hypothesis}{score}</p>"
    if prediction.weights is None or not prediction.weights.any():
        return line
    picture = base64.b64encode(prediction.plot()._repr_png_()).decode("ascii")
    return f'{line}<img alt="attention weights" src="data:image/png;base64,{picture}">'
