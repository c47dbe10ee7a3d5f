"""The data of heat maps on pages."""

import base64
import io
import re
from dataclasses import replace

import numpy as np
from matplotlib import image

from attnlab.files.predictions import Prediction, unpack_weights
from attnlab.report.heat_map import page_data, prediction_html

PREDICTION = Prediction(
    index=0,
    source="a <b> c",
    references=("x z",),
    hypothesis="x y",
    source_tokens=["a", "<b>", "c"],
    tokens=["x", "<eos>"],
    probabilities=[0.97512, 0.5],
    weights=np.array([[0.0, 1.0, 0.0], [0.2, 0.0, 0.8]]),
    alignment=[[0, 1]],
)


def test_page_data_has_weights_probabilities_and_gold_links() -> None:
    data = page_data(PREDICTION)
    assert np.allclose(unpack_weights(data.pop("weights"), (2, 3)), PREDICTION.weights, atol=1 / 510)
    assert data == {"tokens": ["x", "<eos>"], "probabilities": [0.975, 0.5], "alignment": [[0, 1]]}


def test_outputs_without_weights_have_no_picture() -> None:
    for weights in (None, np.zeros((2, 3))):
        assert prediction_html(replace(PREDICTION, weights=weights)) == "<p>a &lt;b&gt; c → <b>x y</b></p>"


def test_html_has_a_picture() -> None:
    (picture,) = re.findall(r'src="data:image/png;base64,([^"]+)"', prediction_html(PREDICTION))
    assert image.imread(io.BytesIO(base64.b64decode(picture)), format="png").ndim == 3
