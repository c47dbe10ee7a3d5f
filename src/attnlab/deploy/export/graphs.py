"""The encoder and the decoding step of a network as two ONNX graphs.

::

    memory, mask, keys, STATE … = encoder(source)
    log_probabilities, weights, new_STATE … = step(token, memory, mask, keys, [copy_ids,] STATE …)

source [B, S] holds int64 ids, PAD (0) after the end of a sentence; mask [B, S] is True at real tokens; token
[B, 1] is y_{i-1}; log_probabilities are [B, 1, V], or [B, 1, V + S] with a pointer-generator, and weights
[B, 1, S]. STATE stands for the tensors of the decoder state and of the attention state, each [B, 1, …]. B and
S may differ from call to call.
"""

import logging
import re
import sys
import warnings
from collections.abc import Sequence
from copy import deepcopy
from typing import Any, NamedTuple

import onnx
import onnx_ir
import onnx_ir.passes.common as passes
import onnxruntime
import torch
from onnxruntime.capi.onnxruntime_pybind11_state import Fail
from onnxscript.optimizer import fold_constants_ir
from torch import Tensor, nn
from torch.utils._pytree import keystr, tree_flatten_with_path

from attnlab.errors import UserError
from attnlab.fast import make_plain
from attnlab.nn.decoders import TransformerDecoder
from attnlab.nn.encoders import Encoder, RecurrentEncoder
from attnlab.nn.encoders.delta import DeltaNetEncoder
from attnlab.nn.encoders.linear_recurrent import LinearRecurrentEncoder
from attnlab.nn.positions import max_positions
from attnlab.nn.readout import copies
from attnlab.nn.seq2seq import Encoded, Seq2Seq
from attnlab.types import PAD, SOS, UNK, Batch, Memory, map_tensors

TRACED = ((2, 3), (5, 7))
"""Sizes (B, S) of the traced inputs. Axes that differ between the two become variable."""

COMPARED = ((1, 1), (1, 2), (3, 23))
"""Sizes (B, S) of the inputs with which the graphs are compared with the network."""

TOLERANCE = 1e-3  # Largest accepted difference of log-probabilities, weights and states

GATES = {"lstm": (0, 3, 1, 2), "gru": (1, 0, 2)}
"""Order of torch's gates in ONNX: i, o, f, g of an LSTM and z, r, n of a GRU."""

logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # it warns of packages that are not used here


class Graphs(NamedTuple):
    """Both graphs, each a complete ONNX model."""

    encoder: onnx.ModelProto
    step: onnx.ModelProto


class Example(NamedTuple):
    """Inputs of the graphs, and the encoded sources that belong to them."""

    source: Tensor  # [B, S] int64
    step: dict[str, Tensor]  # the inputs of the step by name
    encoded: Encoded
    state: Any


def export(network: Seq2Seq) -> Graphs:
    """Export a network in evaluation mode, and compare the graphs with the network."""
    if isinstance(network.decoder, TransformerDecoder):
        raise _unsupported(network, "the state of decoder=transformer grows with every token")
    if isinstance(network.encoder, (LinearRecurrentEncoder, DeltaNetEncoder)):
        raise _unsupported(network, "the rounds of a linear recurrence depend on the length")
    if isinstance(network.encoder, RecurrentEncoder) and network.encoder.norms is not None:
        raise _unsupported(network, "ONNX has no recurrent layer with encoder.layer_norm=true")
    network = deepcopy(network)
    make_plain(network)
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about operators that are not used here
            examples = [_example(network, *size) for size in TRACED]
            graphs = Graphs(_trace_encoder(network, examples), _trace_step(network, examples))
            difference = max(_difference(network, graphs, *size) for size in COMPARED)
    except (torch.onnx.OnnxExporterError, Fail) as error:
        raise _unsupported(network, " ".join(str(error.__cause__ or error).split())[:300]) from error
    if not difference < TOLERANCE:
        raise _unsupported(network, f"the graphs differ from it by {difference:.2g}")
    return graphs


def _unsupported(network: Seq2Seq, reason: str) -> UserError:
    parts = (network.encoder, network.bridge, network.decoder.attention, network.decoder, network.readout)
    names = ", ".join(type(part).__name__ for part in parts)
    return UserError(f"this network ({names}) cannot be exported to ONNX: {reason}")


class _Encoder(nn.Module):
    """The part of a network that runs once per sentence."""

    def __init__(self, network: Seq2Seq) -> None:
        super().__init__()
        self.network = deepcopy(network)
        if type(network.encoder) is RecurrentEncoder:
            self.network.encoder = OnnxRecurrentEncoder(network.encoder)

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Encode ids [B, S]; return memory, mask, keys and the tensors of the initial state."""
        (source,) = inputs
        lengths = (source != PAD).sum(dim=1)  # [B]
        encoded, state = self.network.encode(Batch(source, lengths, source, lengths))
        memory = encoded.memory
        return memory.states, memory.mask, encoded.keys, *_tensors(state).values()


class _Step(nn.Module):
    """One decoding step, with the state as separate tensors."""

    def __init__(self, network: Seq2Seq, state: Any) -> None:
        super().__init__()
        self.network = network
        self.template = state

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Return log-probabilities [B, 1, V], weights [B, 1, S] and the tensors of the new state."""
        token, memory, mask, keys, *others = inputs
        copied = int(copies(self.network))  # number of inputs before the state
        copy_ids = others[0] if copied else None
        encoded = Encoded(Memory(memory, mask), keys, copy_ids)
        tensors = iter(others[copied:])
        state = map_tensors(lambda _: next(tensors), self.template)
        logits, weights, new = self.network.step(token, state, encoded)
        return logits.float().log_softmax(dim=-1), weights, *_tensors(new).values()


def _tensors(state: Any) -> dict[str, Tensor]:
    """Return the tensors of a nested state by name, such as `layers_0_1` for `state.layers[0][1]`."""
    leaves, _ = tree_flatten_with_path(state)
    named = ((re.sub(r"\W+", "_", keystr(path)).strip("_"), leaf) for path, leaf in leaves)
    return {name: leaf for name, leaf in named if isinstance(leaf, Tensor)}


def _example(network: Seq2Seq, sentences: int, width: int) -> Example:
    """Return example inputs of B sentences of up to S tokens, encoded by the network itself."""
    width = int(min(width, max_positions(network, "encoder")))
    lengths = torch.arange(sentences).flip(0) * -1 + width  # the last sentence is the longest
    lengths = lengths.clamp(min=1)  # [B]
    size = network.source_embedding.table.num_embeddings
    numbers = torch.arange(sentences * width).view(sentences, width)  # [B, S]
    source = (numbers * 7 % max(size - UNK, 1) + UNK).clamp(max=size - 1)  # ordinary tokens
    source = source.masked_fill(torch.arange(width) >= lengths[:, None], PAD)  # [B, S]
    token = torch.full((sentences, 1), SOS)
    copied = {"copy_ids": source.clamp(max=UNK)} if copies(network) else {}
    batch = Batch(source, lengths, token, torch.arange(sentences), copied.get("copy_ids"))
    encoded, state = network.encode(batch)
    memory = encoded.memory
    fixed = {"token": token, "memory": memory.states, "mask": memory.mask, "keys": encoded.keys, **copied}
    # One tensor is traced as one input: layers that start in the same state would share it in every step
    step = {name: tensor.clone() for name, tensor in {**fixed, **_tensors(state)}.items()}
    return Example(source, step, encoded, state)


def _trace_encoder(network: Seq2Seq, examples: Sequence[Example]) -> onnx.ModelProto:
    inputs = [{"source": example.source} for example in examples]
    return _trace(_Encoder(network), inputs, ["memory", "mask", "keys", *_tensors(examples[0].state)])


def _trace_step(network: Seq2Seq, examples: Sequence[Example]) -> onnx.ModelProto:
    outputs = ["log_probabilities", "weights", *(f"new_{name}" for name in _tensors(examples[0].state))]
    return _trace(_Step(network, examples[0].state), [example.step for example in examples], outputs)


def _trace(module: nn.Module, inputs: Sequence[dict[str, Tensor]], outputs: list[str]) -> onnx.ModelProto:
    """Trace a module with the first inputs; axes whose sizes differ in the second are variable."""
    variable = [
        {i: torch.export.Dim.DYNAMIC for i, size in enumerate(one.shape) if size != other.size(i)}
        for one, other in zip(*(each.values() for each in inputs), strict=True)
    ]
    program = torch.onnx.export(
        module,
        tuple(inputs[0].values()),
        dynamo=True,
        dynamic_shapes=(tuple(variable),),  # of the one argument `*inputs`
        input_names=list(inputs[0]),
        output_names=outputs,
        external_data=False,
        verbose=False,
        optimize=False,
    )
    assert program is not None
    _optimize(program.model)
    return program.model_proto


def _optimize(model: onnx_ir.Model) -> None:
    """Fold constants and remove unused nodes, in place.

    The exporter's own optimisation is not used: its rewriting rules take numbers below 1e-8 for zero, and so
    delete `PointerGenerator.FLOOR`. Slices and transposes of weights are folded whatever their size.
    """
    passes.InlinePass()(model)
    fold_constants_ir(
        model,
        onnx_shape_inference=True,
        output_size_limit=sys.maxsize,
        should_fold=lambda node: True if node.op_type in ("Slice", "Transpose") else None,
    )
    for simplify in (
        passes.RemoveUnusedNodesPass(),
        passes.RemoveUnusedFunctionsPass(),  # type: ignore[no-untyped-call]
        passes.RemoveUnusedOpsetsPass(),
        passes.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0),
        passes.DeduplicateInitializersPass(),
        passes.CommonSubexpressionEliminationPass(),
        passes.RemoveUnusedNodesPass(),
        passes.OutputFixPass(),  # a value that is two outputs
        passes.ClearMetadataAndDocStringPass(),
        passes.NameFixPass(),
    ):
        simplify(model)


def _difference(network: Seq2Seq, graphs: Graphs, sentences: int, width: int) -> float:
    """Return the largest difference between the outputs of the graphs and of the network, over two steps.

    Layers that start in the same state have different states only after the first step.
    """
    example = _example(network, sentences, width)
    encoded = _run(graphs.encoder, {"source": example.source})
    pairs = [(encoded[name], value) for name, value in example.step.items() if name in encoded]
    state, inputs = example.state, {name: encoded.get(name, value) for name, value in example.step.items()}
    for _ in range(2):
        logits, weights, state = network.step(example.step["token"], state, example.encoded)
        outputs = _run(graphs.step, inputs)
        expected = [logits.float().log_softmax(dim=-1), weights, *_tensors(state).values()]
        pairs += zip(outputs.values(), expected, strict=True)
        inputs = {name: outputs.get(f"new_{name}", value) for name, value in inputs.items()}
    return max(float((one.double() - other.double()).abs().max()) for one, other in pairs if other.numel())


def _run(model: onnx.ModelProto, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    """Run a graph once with ONNX Runtime; return its outputs by name."""
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    arrays = session.run(None, {name: value.numpy() for name, value in inputs.items()})
    names = [output.name for output in session.get_outputs()]
    return {name: torch.from_numpy(array) for name, array in zip(names, arrays, strict=True)}


class OnnxRecurrentEncoder(Encoder):
    """A `RecurrentEncoder` in evaluation mode, for tracing: the same function of the same parameters.

    Packed sequences cannot be traced. A layer is an ONNX operator LSTM or GRU, which takes the lengths.
    """

    def __init__(self, encoder: RecurrentEncoder) -> None:
        super().__init__(
            memory_size=encoder.memory_size, layers=encoder.layers, directions=encoder.directions
        )
        self.trained = encoder
        for layer in range(encoder.layers):
            parts = zip(*self._parts(layer), strict=True)
            weight, recurrent_weight, *biases = (torch.stack([self._reorder(w) for w in p]) for p in parts)
            self.register_buffer(f"weight_{layer}", weight)  # [directions, gates, inputs]
            self.register_buffer(f"recurrent_{layer}", recurrent_weight)  # [directions, gates, units]
            self.register_buffer(f"bias_{layer}", torch.cat(biases, dim=1))  # [directions, 2 gates]

    def forward(self, embedded: Tensor, lengths: Tensor, mask: Tensor) -> Memory:
        states, finals = embedded, []
        for layer in range(self.layers):
            states, final = self._operator(layer, states, lengths)  # [B, S, D]; each [directions, B, units]
            finals.append([part.transpose(0, 1).flatten(1) for part in final])  # each [B, D]
        hidden, *cell = (torch.stack(parts, dim=1) for parts in zip(*finals, strict=True))  # each [B, L, D]
        return Memory(states=states, mask=mask, hidden=hidden, cell=cell[0] if cell else None)

    def _parts(self, layer: int) -> list[list[Tensor]]:
        """Return W, U and both biases of each direction of a layer."""
        first = layer * self.directions
        return [list(part) for part in self.trained.network.all_weights[first : first + self.directions]]

    def _reorder(self, weight: Tensor) -> Tensor:
        """Return a weight or bias [gates, …] with ONNX's order of the gates."""
        gates = weight.detach().chunk(len(GATES[self.trained.cell]))
        return torch.cat([gates[gate] for gate in GATES[self.trained.cell]])

    def _operator(self, layer: int, inputs: Tensor, lengths: Tensor) -> tuple[Tensor, Sequence[Tensor]]:
        """Run a layer [B, S, I] as one operator; return its outputs [B, S, D] and final states."""
        B, S, _ = inputs.shape
        units, directions = self.trained.network.hidden_size, self.directions
        final = (directions, B, units)
        attributes = {"hidden_size": units, "direction": "forward" if directions == 1 else "bidirectional"}
        lstm = self.trained.cell == "lstm"
        weights = (getattr(self, f"{name}_{layer}") for name in ("weight", "recurrent", "bias"))
        outputs, *finals = torch.onnx.ops.symbolic_multi_out(
            "LSTM" if lstm else "GRU",
            (inputs.transpose(0, 1), *weights, lengths.int()),
            attrs=attributes if lstm else {**attributes, "linear_before_reset": 1},
            dtypes=(torch.float32,) * (3 if lstm else 2),
            shapes=((S, directions, B, units), *[final] * (2 if lstm else 1)),
            version=14,
        )
        return outputs.permute(2, 0, 1, 3).flatten(2), finals  # [B, S, D]
