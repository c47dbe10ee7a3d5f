"""A self-contained page that runs an exported network in a browser.

The page holds the graphs as JSON, the weights as base64 (fp32), an interpreter of the ONNX operators in plain
JavaScript, and the tokenizers.

onnxruntime-web would add its WebAssembly of several megabytes to each page, whose compilation a policy must
allow. The interpreter takes a few dozen kilobytes, and a network of a few million parameters needs a few
milliseconds per token.
"""

import base64
import hashlib
import re
from collections.abc import Iterable
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from markupsafe import Markup
from numpy.typing import NDArray
from omegaconf import DictConfig
from onnx import numpy_helper

from attnlab.data.features import with_column
from attnlab.data.tokenization.vocabularies import Vocabularies
from attnlab.deploy.export.folder import decoding_settings
from attnlab.deploy.export.graphs import Graphs
from attnlab.deploy.export.page_tokenizer import describe
from attnlab.errors import UserError
from attnlab.files.predictions import read_predictions
from attnlab.files.run_directory import Run
from attnlab.files.writing import write_atomically
from attnlab.report import html as page

FOLDER = Path(__file__).parent
EXAMPLES = 6
"""Maximum number of example sentences on the page."""


def write(
    path: Path, graphs: Graphs, config: DictConfig, vocabularies: Vocabularies, examples: Iterable[str]
) -> None:
    """Write the page of a network."""
    weights = Weights()
    data = {
        "settings": decoding_settings(config, vocabularies),
        **{side: describe(tokenizer, side=side) for side, tokenizer in vocabularies._asdict().items()},
        **{name: graph_to_json(model.graph, weights) for name, model in graphs._asdict().items()},
        "examples": list(examples),
    }
    html = page.render(
        FOLDER,
        "translation.html.j2",
        title=f"{config.name} · {config.variant}",
        scripts=[FOLDER / "operators.js", FOLDER / "tokenizer.js", page.HEAT_MAP, FOLDER / "page.js"],
        data=data,
        weights=Markup(weights.to_base64()),
        parameters=weights.size,
    )
    write_atomically(path, html)


def example_sentences(run: Run) -> list[str]:
    """Return some inputs of the run's predictions, of different lengths, shortest first."""
    sources = {with_column(prediction.source) for prediction in read_predictions(run.attention)}
    by_length: dict[int, str] = {}
    for source in sorted(sources):
        by_length.setdefault(len(source.split()), source)
    return [by_length[length] for length in islice(sorted(by_length), EXAMPLES)]


class Weights:
    """The fp32 tensors of several graphs in one array; equal tensors are stored once."""

    def __init__(self) -> None:
        self.arrays: dict[bytes, tuple[int, NDArray[np.float32]]] = {}
        self.size = 0

    def add(self, array: NDArray[np.float32]) -> int:
        """Store an array; return the position of its first element."""
        content = array.tobytes()
        key = hashlib.sha256(content + repr(array.shape).encode()).digest()
        if key not in self.arrays:
            self.arrays[key] = (self.size, array)
            self.size += array.size
        return self.arrays[key][0]

    def to_base64(self) -> str:
        """Return all elements, little-endian, as base64."""
        contents = b"".join(array.astype("<f4").tobytes() for _, array in self.arrays.values())
        return base64.b64encode(contents).decode("ascii")


def graph_to_json(graph: onnx.GraphProto, weights: Weights) -> dict[str, Any]:
    """Return a graph as the JSON data that operators.js runs."""
    return {
        "inputs": [value.name for value in graph.input],
        "outputs": [value.name for value in graph.output],
        "values": {tensor.name: _tensor_to_json(tensor, weights) for tensor in graph.initializer},
        "nodes": [
            [
                _supported(node.op_type),
                list(node.input),
                list(node.output),
                {attribute.name: _attribute_to_json(attribute, weights) for attribute in node.attribute},
            ]
            for node in graph.node
        ],
    }


def _supported(operator: str) -> str:
    """Return an operator that operators.js has; raise `UserError` if it does not have it."""
    if operator not in operators():
        raise UserError(
            f"--page: the network uses the ONNX operator {operator}, which the page does not have. Use --onnx"
        )
    return operator


@cache
def operators() -> frozenset[str]:
    """Return the names in the table of operators.js."""
    script = (FOLDER / "operators.js").read_text(encoding="utf-8")
    table = script[script.index("const operators = {") : script.index("function runGraph")]
    return frozenset(re.findall(r"\b([A-Z]\w+): ?", table))


def _attribute_to_json(attribute: onnx.AttributeProto, weights: Weights) -> Any:
    value = onnx.helper.get_attribute_value(attribute)
    match value:
        case onnx.GraphProto():
            return graph_to_json(value, weights)
        case onnx.TensorProto():
            return _tensor_to_json(value, weights)
        case bytes():
            return value.decode()
        case int() | float() | str():
            return value
    return [item.decode() if isinstance(item, bytes) else item for item in value]


def _tensor_to_json(tensor: onnx.TensorProto, weights: Weights) -> dict[str, Any]:
    """Return the shape of a tensor, and its integers or the position of its fp32 elements."""
    array = numpy_helper.to_array(tensor)
    shape = list(array.shape)
    if array.dtype.kind == "f":
        return {"shape": shape, "start": weights.add(array.astype(np.float32))}
    bounds = np.iinfo(np.int32)  # JavaScript's integers; ends of slices are as large as int64 allows
    kind = "booleans" if array.dtype.kind == "b" else "integers"
    return {"shape": shape, kind: array.astype(np.int64).clip(bounds.min, bounds.max).ravel().tolist()}
