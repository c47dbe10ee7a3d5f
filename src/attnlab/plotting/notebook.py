"""Predictions with their attention weights, as a figure and as HTML for notebooks."""

from __future__ import annotations

import base64
import html

from attnlab.errors import UserError
from attnlab.files.predictions import Prediction
from attnlab.plotting.files import InlineFigure
from attnlab.plotting.heatmap import plot_heatmap


def plot_prediction(prediction: Prediction, title: str = "") -> InlineFigure:
    """Plot the weights of a prediction; see `Prediction.plot`."""
    if prediction.weights is None or not prediction.weights.size:
        raise UserError(f"{prediction!r} has no attention weights to plot")
    return plot_heatmap(prediction.weights, prediction.source_tokens, prediction.tokens, title=title)


def prediction_html(prediction: Prediction) -> str:
    """Return source, hypothesis, score and heat map as HTML."""
    score = "" if prediction.score is None else f" <small>score {prediction.score:.4f}</small>"
    hypothesis = f"<b>{html.escape(prediction.hypothesis)}</b>"
    line = f"<p>{html.escape(prediction.source)} → {hypothesis}{score}</p>"
    if prediction.weights is None or not prediction.weights.any():
        return line
    figure = base64.b64encode(plot_prediction(prediction)._repr_png_()).decode("ascii")
    return f'{line}<img alt="attention weights" src="data:image/png;base64,{figure}">'
