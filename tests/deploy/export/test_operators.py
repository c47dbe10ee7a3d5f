"""Every operator of operators.js computes what ONNX Runtime computes."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from attnlab.deploy.export import browser_page as page
from browser import browser

RANDOM = np.random.default_rng(0)


def real(*shape: int) -> NDArray[np.float32]:
    return RANDOM.normal(size=shape).astype(np.float32)


def integers(*values: int) -> NDArray[np.int64]:
    return np.array(values, dtype=np.int64)


def flags(*shape: int) -> NDArray[np.bool_]:
    return RANDOM.random(shape) > 0.5


def scalar(value: float | int) -> NDArray[Any]:
    return np.array(value, dtype=np.float32 if isinstance(value, float) else np.int64)


POSITIVE = np.abs(real(2, 5)) + np.float32(0.1)
LAST = 2**63 - 1
"""The end of a slice without end."""

CASES: list[tuple[str, list[Any], dict[str, Any]]] = [
    *((name, [real(2, 3, 5), real(3, 1)], {}) for name in ("Add", "Sub", "Mul", "Div")),
    ("Add", [real(2, 3), scalar(1.5)], {}),
    ("Div", [integers(7, -7, 9), integers(2, 2, -4)], {}),
    ("Mod", [integers(7, -7, 9), integers(5, 5, 4)], {}),
    ("Pow", [POSITIVE, scalar(2.0)], {}),
    ("Min", [real(3), real(2, 1), scalar(0.1)], {}),
    ("Max", [integers(3, 9), integers(5)], {}),
    *(
        (name, [integers(1, 2, 3), integers(3, 2, 1)], {})
        for name in ("Equal", "Greater", "Less", "GreaterOrEqual", "LessOrEqual")
    ),
    *((name, [flags(2, 5), flags(5)], {}) for name in ("And", "Or", "Xor")),
    ("Not", [flags(7)], {}),
    *((name, [10 * real(3, 7)], {}) for name in ("Identity", "Neg", "Abs", "Tanh", "Sigmoid", "Relu")),
    *((name, [10 * real(3, 7)], {}) for name in ("Softplus", "Floor", "Ceil", "Sign", "Sin", "Cos")),
    *((name, [POSITIVE], {}) for name in ("Exp", "Log", "Sqrt", "Reciprocal")),
    *(("Trilu", [real(2, 3, 5), np.array(k)], {"upper": upper}) for k in (-1, 0, 2) for upper in (0, 1)),
    ("Trilu", [real(5, 3)], {}),
    ("Trilu", [flags(3, 3)], {"upper": 0}),
    ("Erf", [np.linspace(-4, 4, 41, dtype=np.float32)], {}),
    ("IsNaN", [np.array([1, np.nan, np.inf], dtype=np.float32)], {}),
    ("Softmax", [3 * real(2, 5, 3)], {"axis": -1}),
    ("Softmax", [3 * real(2, 5, 3)], {"axis": 1}),
    ("LogSoftmax", [3 * real(2, 5)], {"axis": -1}),
    ("ReduceSum", [real(2, 3, 5), integers(-2)], {"keepdims": 0}),
    ("ReduceSum", [integers(3, 4, 5), integers(0)], {}),
    ("ReduceMean", [real(2, 3, 5), integers(0, 2)], {}),
    ("ReduceMax", [real(2, 3, 5), integers(1)], {}),
    ("ReduceMin", [real(2, 3), integers(1)], {}),
    ("ReduceL2", [real(2, 3, 5), integers(-1)], {}),
    ("ReduceSumSquare", [real(2, 3)], {}),
    ("ReduceLogSumExp", [10 * real(2, 3, 5), integers(-2)], {"keepdims": 0}),
    ("MatMul", [real(2, 3, 5), real(2, 5, 7)], {}),
    ("MatMul", [real(3, 1, 2, 6), real(6, 7)], {}),
    ("MatMul", [real(2, 3, 0), real(0, 5)], {}),
    ("Gemm", [real(5, 2), real(3, 5), real(3)], {"transA": 1, "transB": 1, "alpha": 0.5, "beta": 2.0}),
    ("Transpose", [real(2, 3, 5)], {"perm": [2, 0, 1]}),
    ("Gather", [real(3, 5, 2), np.array([[0, -1], [4, 2]], dtype=np.int64)], {"axis": 1}),
    ("Gather", [integers(5, 6, 7), scalar(1)], {}),
    ("GatherElements", [real(2, 5), np.array([[0, 4], [-1, 2]], dtype=np.int64)], {"axis": 1}),
    (
        "ScatterElements",
        [real(2, 5), np.array([[1, 1], [0, 4]], dtype=np.int64), real(2, 2)],
        {"axis": 1, "reduction": "add"},
    ),
    ("ScatterElements", [real(2, 5), np.array([[1], [4]], dtype=np.int64), real(2, 1)], {"axis": -1}),
    ("ScatterND", [real(3, 2, 5), np.array([[0, 1], [-1, 0]], dtype=np.int64), real(2, 5)], {}),
    ("ScatterND", [real(5), np.array([[1], [1]], dtype=np.int64), real(2)], {"reduction": "add"}),
    ("Concat", [real(2, 1, 3), real(2, 4, 3), real(2, 0, 3)], {"axis": 1}),
    ("Slice", [real(3, 7), integers(-5), integers(LAST), integers(1)], {}),
    ("Slice", [real(3, 7), integers(6, 2), integers(0, -9), integers(1, 0), integers(-2, -1)], {}),
    ("Split", [real(2, 7), integers(3, 4)], {"axis": -1}),
    ("Split", [real(2, 7)], {"axis": 1, "num_outputs": 2}),
    ("Pad", [real(2, 3), integers(0, 2, 1, 0)], {}),
    ("Pad", [real(2, 5), integers(-2, 1), scalar(0.5), integers(1)], {}),
    ("Reshape", [real(2, 6), integers(0, -1, 2)], {}),
    ("Unsqueeze", [real(2, 3), integers(0, -1)], {}),
    ("Squeeze", [real(1, 3, 1), integers(-1)], {}),
    ("Flatten", [real(2, 3, 5)], {"axis": 2}),
    ("Expand", [real(3, 1), integers(2, 1, 4)], {}),
    ("Shape", [real(2, 3, 5)], {"start": 1}),
    ("Size", [real(2, 3)], {}),
    ("Cast", [np.array([-1.7, 0, 2.9], dtype=np.float32)], {"to": TensorProto.INT64}),
    ("Cast", [np.array([-1.7, 0, 2.9], dtype=np.float32)], {"to": TensorProto.BOOL}),
    ("Cast", [flags(5)], {"to": TensorProto.FLOAT}),
    (
        "ConstantOfShape",
        [integers(2, 3)],
        {"value": helper.make_tensor("value", TensorProto.INT64, [1], [7])},
    ),
    ("ConstantOfShape", [integers(2, 3)], {}),
    ("Constant", [], {"value": numpy_helper.from_array(real(2, 3))}),
    ("Range", [scalar(1), scalar(8), scalar(3)], {}),
    ("Where", [flags(3, 1), real(5), real(3, 5)], {}),
    ("Clip", [real(2, 5), scalar(-0.5), scalar(0.5)], {}),
    ("TopK", [real(2, 7), integers(3)], {"axis": -1}),
    ("TopK", [np.array([2, 1, 2, 1], dtype=np.float32), integers(4)], {"largest": 0}),
    ("ArgMax", [np.array([[1, 3, 3], [5, 1, 2]], dtype=np.float32)], {"axis": -1, "keepdims": 0}),
    ("CumSum", [real(2, 5), scalar(1)], {}),
    ("CumSum", [integers(1, 2, 3), scalar(0)], {"reverse": 1, "exclusive": 1}),
    ("Conv", [real(2, 3, 7), real(5, 3, 3), real(5)], {"pads": [1, 1]}),
    ("LayerNormalization", [real(2, 3, 5), real(5), real(5)], {"epsilon": 1e-5}),
    (
        "LSTM",
        [real(5, 2, 3), real(2, 28, 3), real(2, 28, 7), real(2, 56), np.array([5, 2], dtype=np.int32)],
        {"hidden_size": 7, "direction": "bidirectional"},
    ),
    (
        "GRU",
        [real(5, 2, 3), real(1, 21, 3), real(1, 21, 7), real(1, 42), np.array([1, 5], dtype=np.int32)],
        {"hidden_size": 7, "direction": "forward", "linear_before_reset": 1},
    ),
]
OUTPUTS = {"Split": 2, "TopK": 2, "LSTM": 3, "GRU": 2}


def scan() -> tuple[str, list[Any], dict[str, Any]]:
    """Return a case of a running sum from the end, in a subgraph that reads an outer value."""
    shape = helper.make_tensor_type_proto(TensorProto.FLOAT, [2])
    values = {name: helper.make_value_info(name, shape) for name in ("sum", "item", "new", "copy")}
    body = helper.make_graph(
        [
            helper.make_node("Add", ["sum", "item"], ["new"]),
            helper.make_node("Mul", ["new", "input_0"], ["copy"]),
        ],
        "body",
        [values["sum"], values["item"]],
        [values["new"], values["copy"]],
    )
    directions = {"scan_input_directions": [1], "scan_output_directions": [1]}
    return "Scan", [real(2), real(5, 2)], {"body": body, "num_scan_inputs": 1, **directions}


def test_operators_equal_onnx_runtime(tmp_path: Path) -> None:
    cases, expected, weights = [*CASES, scan()], [], page.Weights()
    stored = []
    for operator, inputs, attributes in cases:
        names = [f"input_{i}" for i in range(len(inputs))]
        outputs = [f"output_{i}" for i in range(2 if operator == "Scan" else OUTPUTS.get(operator, 1))]
        graph = helper.make_graph(
            [helper.make_node(operator, names, outputs, **attributes)],
            operator,
            [],
            [helper.make_empty_tensor_value_info(name) for name in outputs],
            [numpy_helper.from_array(value, name) for name, value in zip(names, inputs, strict=True)],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        session = onnxruntime.InferenceSession(model.SerializeToString(), options)
        expected.append(session.run(None, {}))
        stored.append(page.graph_to_json(graph, weights))
    assert page.operators() == {operator for operator, _, _ in cases}

    script = (page.FOLDER / "operators.js").read_text()
    (tmp_path / "page.html").write_text(f"<script>{script}</script>")
    with browser(tmp_path / "profile") as tab:
        tab.open(tmp_path / "page.html")
        results = tab.run(f"""
            (() => {{
                const bytes = Uint8Array.from(atob("{weights.to_base64()}"), one => one.charCodeAt(0));
                const weights = new Float32Array(bytes.buffer);
                return {json.dumps(stored)}.map(graph => onnx.runGraph(onnx.prepareGraph(graph, weights), [])
                    .map(({{ shape, data }}) => [shape, [...data].map(String)]));
            }})()
        """)
    for (operator, *_), outputs, tensors in zip(cases, expected, results, strict=True):
        for output, (shape, values) in zip(outputs, tensors, strict=True):
            assert list(output.shape) == shape, operator
            numbers = np.array([float(value.replace("Infinity", "inf")) for value in values])
            np.testing.assert_allclose(numbers.reshape(shape), output, rtol=1e-5, atol=2e-6, err_msg=operator)
