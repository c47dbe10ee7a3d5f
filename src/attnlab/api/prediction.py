"""Predictions that notebooks show with their attention weights."""

from __future__ import annotations

import base64
import html
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from attnlab.errors import UserError
from attnlab.files import predictions

if TYPE_CHECKING:
    from attnlab.plotting.files import InlineFigure


@dataclass(frozen=True, kw_only=True, repr=False)
class Prediction(predictions.Prediction):
    """Decoded sentence: `text`, `tokens`, `score`, `attention` and the fields of the prediction files.

    T: target tokens, "<eos>" included · S: source tokens
    """

    @classmethod
    def of(cls, record: predictions.Prediction) -> Prediction:
        """Convert a record; its weights are copied, since they may be views of an array of a whole batch."""
        weights = None if record.weights is None else record.weights.copy()
        return cls(**{**vars(record), "weights": weights})

    @property
    def text(self) -> str:
        """Decoded text; `hypothesis` in the prediction files."""
        return self.hypothesis

    @property
    def attention(self) -> NDArray[np.floating[Any]] | None:
        """Attention weights [T, S]; `weights` in the prediction files."""
        return self.weights

    def plot(self, title: str = "") -> InlineFigure:
        """Plot the attention weights as a heat map: one row per token, one column per source token.

        Raises:
            UserError: if there are no weights.
        """
        from attnlab.plotting.heatmap import plot_heatmap

        if self.weights is None or not self.weights.size:
            raise UserError(f"{self!r} has no attention weights to plot")
        return plot_heatmap(self.weights, self.source_tokens, self.tokens, title=title)

    def __repr__(self) -> str:
        score = "" if self.score is None else f", score={self.score:.4f}"
        return f"Prediction({self.text!r}{score})"

    def _repr_html_(self) -> str:
        """Show source, text, score and heat map in a notebook."""
        score = "" if self.score is None else f" <small>score {self.score:.4f}</small>"
        line = f"<p>{html.escape(self.source)} → <b>{html.escape(self.text)}</b>{score}</p>"
        if self.weights is None or not self.weights.any():
            return line
        encoded = base64.b64encode(self.plot()._repr_png_()).decode("ascii")
        return f'{line}<img alt="attention weights" src="data:image/png;base64,{encoded}">'
