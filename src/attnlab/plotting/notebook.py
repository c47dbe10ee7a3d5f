"""Predictions with their attention weights as HTML for notebooks."""

from __future__ import annotations

import base64
import html

from attnlab.files.predictions import Prediction
from attnlab.plotting.heat_map import HeatMap


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
