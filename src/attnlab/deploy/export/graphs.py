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
from torch.utils._pytree import keystr, tree_flatten_with_path, tree_unflatten

from attnlab.deploy.export.recurrent import OnnxRecurrentEncoder
from attnlab.errors import UserError
from attnlab.fast import make_plain
from attnlab.nn.decoders import TransformerDecoder
from attnlab.nn.encoders import Encoder, RecurrentEncoder
from attnlab.nn.encoders.linear_recurrent import LinearRecurrentEncoder
from attnlab.nn.features import EncodedFeatures
from attnlab.nn.positions import max_positions
from attnlab.nn.readout import PointerGenerator
from attnlab.nn.seq2seq import Encoded, Seq2Seq
from attnlab.types import PAD, SOS, UNK, Batch, Memory

TRACED = ((2, 3), (5, 7))
"""Sizes (B, S) of the traced inputs. Axes that differ between the two become variable."""

COMPARED = ((1, 1), (1, 2), (3, 23))
"""Sizes (B, S) of the inputs with which the graphs are compared with the network."""

TOLERANCE = 1e-3
"""Largest accepted difference of log-probabilities, weights and states."""


logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # it warns of packages that are not used here


class Graphs(NamedTuple):
    """Both graphs, each a complete ONNX model."""

    encoder: onnx.ModelProto
    step: onnx.ModelProto


class TracingExample(NamedTuple):
    """Inputs of the graphs, and the encoded sources that belong to them."""

    source: Tensor  # [B, S] int64
    step: dict[str, Tensor]  # the inputs of the step by name
    encoded: Encoded
    state: Any


def export(network: Seq2Seq) -> Graphs:
    """Export a network in evaluation mode, and compare the graphs with the network."""
    if isinstance(network.decoder, TransformerDecoder):
        raise _unsupported(network, "the state of decoder=transformer grows with every token")
    if isinstance(network.encoder, LinearRecurrentEncoder):
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
        self.network.encoder = _traceable(network.encoder)
        if isinstance(self.network.features, EncodedFeatures):
            self.network.features.encoder = _traceable(self.network.features.encoder)

    def forward(self, source: Tensor) -> tuple[Tensor, ...]:
        """Encode ids [B, S]; return memory, mask, keys and the tensors of the initial state."""
        lengths = (source != PAD).sum(dim=1)  # [B]
        encoded, state = self.network.encode(Batch(source, lengths, source, lengths))
        memory = encoded.memory
        return memory.states, memory.mask, encoded.keys, *_tensors(state).values()


def _traceable(encoder: Encoder) -> Encoder:
    """Return an encoder that computes the same and can be traced for any length."""
    if type(encoder) is RecurrentEncoder:
        return OnnxRecurrentEncoder(encoder)
    return encoder


class _Step(nn.Module):
    """One decoding step, with the state as separate tensors."""

    def __init__(self, network: Seq2Seq, state: Any) -> None:
        super().__init__()
        self.network = network
        self.template = state

    def forward(
        self, token: Tensor, memory: Tensor, mask: Tensor, keys: Tensor, *others: Tensor
    ) -> tuple[Tensor, ...]:
        """Return log-probabilities [B, 1, V], weights [B, 1, S] and the tensors of the new state."""
        copied = int(_copies(self.network))  # number of inputs before the state
        copy_ids = others[0] if copied else None
        encoded = Encoded(Memory(memory, mask), keys, copy_ids)
        state = _replace_tensors(self.template, others[copied:])
        logits, weights, new = self.network.step(token, state, encoded)
        return logits.float().log_softmax(dim=-1), weights, *_tensors(new).values()


def _copies(network: Seq2Seq) -> bool:
    return isinstance(network.readout, PointerGenerator)


def _tensors(state: Any) -> dict[str, Tensor]:
    """Return the tensors of a nested state by name, such as `layers_0_1` for `state.layers[0][1]`."""
    leaves, _ = tree_flatten_with_path(state)
    return {
        re.sub(r"\W+", "_", keystr(path)).strip("_"): leaf
        for path, leaf in leaves
        if isinstance(leaf, Tensor)
    }


def _replace_tensors(state: Any, tensors: Sequence[Tensor]) -> Any:
    """Return a nested state with its tensors replaced, in order; other leaves stay."""
    leaves, structure = tree_flatten_with_path(state)
    replacements = iter(tensors)
    return tree_unflatten(
        [next(replacements) if isinstance(leaf, Tensor) else leaf for _, leaf in leaves], structure
    )


def _example(network: Seq2Seq, sentences: int, width: int) -> TracingExample:
    """Return example inputs of B sentences of up to S tokens, encoded by the network itself."""
    width = int(min(width, max_positions(network, "encoder")))
    lengths = torch.arange(sentences).flip(0) * -1 + width  # the last sentence is the longest
    lengths = lengths.clamp(min=1)  # [B]
    size = network.source_embedding.table.num_embeddings
    numbers = torch.arange(sentences * width).view(sentences, width)  # [B, S]
    source = (numbers * 7 % max(size - UNK, 1) + UNK).clamp(max=size - 1)  # ordinary tokens
    source = source.masked_fill(torch.arange(width) >= lengths[:, None], PAD)  # [B, S]
    token = torch.full((sentences, 1), SOS)
    copied = {"copy_ids": source.clamp(max=UNK)} if _copies(network) else {}
    batch = Batch(source, lengths, token, torch.arange(sentences), copied.get("copy_ids"))
    encoded, state = network.encode(batch)
    memory = encoded.memory
    fixed = {"token": token, "memory": memory.states, "mask": memory.mask, "keys": encoded.keys, **copied}
    return TracingExample(source, {**fixed, **_tensors(state)}, encoded, state)


def _trace_encoder(network: Seq2Seq, examples: Sequence[TracingExample]) -> onnx.ModelProto:
    states = list(_tensors(examples[0].state))
    inputs = [(example.source,) for example in examples]
    return _trace(_Encoder(network), inputs, ["source"], ["memory", "mask", "keys", *states])


def _trace_step(network: Seq2Seq, examples: Sequence[TracingExample]) -> onnx.ModelProto:
    states = [f"new_{name}" for name in _tensors(examples[0].state)]
    inputs = [tuple(example.step.values()) for example in examples]
    outputs = ["log_probabilities", "weights", *states]
    return _trace(_Step(network, examples[0].state), inputs, list(examples[0].step), outputs)


def _trace(
    module: nn.Module, inputs: Sequence[tuple[Tensor, ...]], input_names: list[str], output_names: list[str]
) -> onnx.ModelProto:
    """Trace a module with the first inputs; axes whose sizes differ in the second are variable."""
    variable = [
        {
            axis: torch.export.Dim.DYNAMIC
            for axis, sizes in enumerate(zip(one.shape, other.shape, strict=True))
            if len(set(sizes)) > 1
        }
        for one, other in zip(*inputs, strict=True)
    ]
    named = 4 if isinstance(module, _Step) else 1  # arguments of `forward` before `*others`
    program = torch.onnx.export(
        module,
        inputs[0],
        dynamo=True,
        dynamic_shapes=(*variable[:named], *([tuple(variable[named:])] if named > 1 else [])),
        input_names=input_names,
        output_names=output_names,
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
    delete `PointerGenerator.FLOOR`. Slices and transposes of weights are folded whatever
    their size.
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
    """Return the largest difference between the outputs of the graphs and of the network."""
    example = _example(network, sentences, width)
    encoded = _run(graphs.encoder, {"source": example.source})
    pairs = [(encoded[name], value) for name, value in example.step.items() if name in encoded]
    logits, weights, state = network.step(example.step["token"], example.state, example.encoded)
    outputs = _run(graphs.step, {name: encoded.get(name, value) for name, value in example.step.items()})
    expected = [logits.float().log_softmax(dim=-1), weights, *_tensors(state).values()]
    pairs += zip(outputs.values(), expected, strict=True)
    return max(float((one.double() - other.double()).abs().max()) for one, other in pairs if other.numel())


def _run(model: onnx.ModelProto, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    """Run a graph once with ONNX Runtime; return its outputs by name."""
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    arrays = session.run(None, {name: value.numpy() for name, value in inputs.items()})
    names = [output.name for output in session.get_outputs()]
    return {name: torch.from_numpy(array) for name, array in zip(names, arrays, strict=True)}
