"""Rendering helpers for the tests of figures."""

from collections.abc import Sequence

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text


def texts(labels: Sequence[Text]) -> list[str]:
    return [label.get_text() for label in labels]


def pixels(figure: Figure) -> np.ndarray:
    """Render to [height, width, 4] in [0, 1]; warnings of matplotlib are errors."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba()) / 255
