"""CUDA graphs of the fused loop of a decoder and of the steps of a search: captured once, and replayed.

On a GPU a step of the loop launches a few dozen small kernels, and launching them takes longer than running
them. A CUDA graph launches all kernels of all steps at once, from and to buffers that stay at one address.
Batches are padded to multiples of `ROUND`, so that few graphs cover all of them. `attnlab.decoding.replay`
has the steps of a search.

Nothing between the first and the last step may read a tensor on the host or copy from it: tests run the loop
with a mode that forbids it. The graphs themselves have not run on a GPU yet.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from attnlab.fast.attend import Scores
from attnlab.fast.kernels import Kernels
from attnlab.fast.loop import run_backward, run_forward
from attnlab.fast.stack import Options
from attnlab.fast.unroll import FusedUnroll
from attnlab.nn.cells import CellStack
from attnlab.nn.decoders.base import DecoderOutput, DecoderState
from attnlab.types import Memory

ROUND = 8
"""B, S and T are rounded up to a multiple of this."""

LIMIT = 64
"""Number of captured shapes, of loops and of searches. Those of any further shape are not captured."""

Search = TypeVar("Search")
Tensors = Sequence[Tensor | None]
Capture = Callable[[Callable[[], Tensors]], tuple[Callable[[], None], Tensors]]
"""Records a function of buffers; returns a function that repeats it, and the results, which it overwrites."""


class LoopGraphs:
    """Captured loops and steps of searches of one network.

    The graphs share one memory pool: tensors that a forward pass saves are valid until the next replay.
    While a forward pass waits for its backward pass, nothing else is replayed.

    Args:
        capture: records a function, by default as a CUDA graph.
        device: type of the device on which loops are captured.
    """

    def __init__(self, capture: Capture | None = None, device: str = "cuda") -> None:
        self.capture = CudaCapture() if capture is None else capture
        self.device = device
        self.loops: dict[Hashable, _CapturedLoop] = {}
        self.searches: dict[Hashable, Any] = {}
        self.weights: list[tuple[int, int]] = []  # address and version of each parameter of the searches
        self.kernels = Kernels(fused=True, prepack=True)  # of the searches
        self.waiting: weakref.ref[Any] | None = None  # node of the last forward pass, until its backward pass

    def __reduce__(self) -> tuple[type[LoopGraphs], tuple[()]]:
        """Copy and pickle without the graphs."""
        return LoopGraphs, ()

    def find(self, options: Options, gates: Tensor, tensors: Tensors) -> _CapturedLoop | None:
        """Return the loop for gates [N, gates] and tensors of these shapes; None: do not replay it."""
        if self._is_waiting():
            return None
        shapes = [None if part is None else (part.shape, part.dtype) for part in (gates, *tensors)]
        rows = options.rows
        key = (*options._replace(rows=None, save=True), tuple(rows.counts), rows.batch, *shapes)  # type: ignore[arg-type]
        if key not in self.loops and len(self.loops) < LIMIT:
            self.loops[key] = _CapturedLoop(self.capture, options, gates, tensors)
        return self.loops.get(key)

    def find_search(
        self, key: Hashable, parameters: Iterable[Tensor], capture: Callable[[Kernels], Search]
    ) -> Search | None:
        """Return the captured search of a key; None: do not replay it.

        A search reads weights that are cast once. If they have changed, all searches are captured again.

        Args:
            key: everything that the captured kernels depend on.
            parameters: those of the network, of any shape.
            capture: captures the search, with weights cast by these kernels.
        """
        if self._is_waiting():
            return None
        weights = [(part.data_ptr(), 0 if part.is_inference() else part._version) for part in parameters]
        if weights != self.weights:
            self.searches.clear()
            self.weights, self.kernels = weights, Kernels(fused=True, prepack=True)
        if key not in self.searches and len(self.searches) < LIMIT:
            self.searches[key] = capture(self.kernels)
        return self.searches.get(key)

    def _is_waiting(self) -> bool:
        return self.waiting is not None and self.waiting() is not None


class CudaCapture:
    """Capture of a function as a CUDA graph, in a memory pool shared by all graphs of this object."""

    def __init__(self) -> None:
        self.first: Any = None  # the memory pool exists as long as one of its graphs

    def __call__(self, function: Callable[[], Tensors]) -> tuple[Callable[[], None], Tensors]:
        """Run the function twice, so that libraries initialise themselves, and capture it.

        Autocast would release the casts that it caches at the end of its block: it caches none.
        """
        with torch.autocast(
            "cuda", torch.get_autocast_dtype("cuda"), torch.is_autocast_enabled("cuda"), cache_enabled=False
        ):
            return self._capture(function)

    def _capture(self, function: Callable[[], Tensors]) -> tuple[Callable[[], None], Tensors]:
        stream: Any = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(2):
                function()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        pool = None if self.first is None else self.first.pool()
        # other threads, such as the one that pins memory, may use CUDA during the capture
        with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
            results = function()
        self.first = self.first or graph
        return graph.replay, results


class _CapturedLoop:
    """Forward and backward pass of a loop, captured for tensors of fixed shapes."""

    def __init__(self, capture: Capture, options: Options, gates: Tensor, tensors: Tensors) -> None:
        options = options._replace(save=True)
        self.inputs = [part if part is None else _buffer(part) for part in (gates, *tensors)]
        first, *rest = self.inputs
        assert first is not None
        saved: list[Tensor | None] = []

        def forward() -> Tensors:
            outputs, saved[:] = run_forward(options, first, rest)
            return outputs

        self.replay_forward, self.outputs = capture(forward)
        self.d_outputs = [torch.zeros_like(part) for part in self.outputs if part is not None]
        self.replay_backward, self.gradients = capture(
            lambda: run_backward(options, rest, saved, self.d_outputs)
        )

    def forward(self, inputs: Tensors) -> tuple[Tensor, ...]:
        """Compute the outputs of `DecoderLoop.finish` for other values of the inputs, of fixed shapes."""
        pairs = [
            (buffer, part)
            for buffer, part in zip(self.inputs, inputs, strict=True)
            if buffer is not None and part is not None and buffer.data_ptr() != part.data_ptr()
        ]
        torch._foreach_copy_([buffer for buffer, _ in pairs], [part.detach() for _, part in pairs])
        self.replay_forward()
        return tuple(part.clone() for part in self.outputs if part is not None)

    def backward(self, d_outputs: Tensors) -> list[Tensor | None]:
        """Compute the gradients of all inputs, in their shapes."""
        for buffer, part in zip(self.d_outputs, d_outputs, strict=True):
            if part is None:
                buffer.zero_()
            else:
                buffer.copy_(part)
        self.replay_backward()
        return [None if part is None else part.clone() for part in self.gradients]


class _GraphedLoop(torch.autograd.Function):
    """A captured loop in an autograd graph."""

    @staticmethod
    def forward(ctx: Any, graphs: LoopGraphs, loop: _CapturedLoop, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Compute states, contexts and weights, [T, B, …]."""
        ctx.graphs, ctx.loop = graphs, loop
        ctx.set_materialize_grads(False)
        return loop.forward(inputs)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *d_outputs: Tensor | None) -> tuple[Tensor | None, ...]:
        """Compute the gradients of all inputs, in their shapes."""
        ctx.graphs.waiting = None
        return None, None, *ctx.loop.backward(d_outputs)


class GraphedUnroll(FusedUnroll):
    """`FusedUnroll` whose loop is replayed from a graph, over a batch padded to multiples of `ROUND`.

    Scheduled sampling reads the predictions of single steps, so that its loop is not replayed.

    Args:
        graphs: captured loops of the decoder. All other arguments are those of `FusedUnroll`.
    """

    def __init__(
        self,
        graphs: LoopGraphs,
        cells: CellStack,
        scores: Scores,
        state: DecoderState,
        memory: Memory,
        keys: Tensor,
        labels: Tensor,
        combine: Tensor | None = None,
    ) -> None:
        self.graphs = graphs
        self.sizes = *labels.shape, keys.size(1)  # B, T, S
        self.B, self.T, S = map(round_up, self.sizes)
        state = state._replace(
            layers=tuple(tuple(pad(part, self.B) for part in layer) for layer in state.layers),
            dropout=tuple(pad(part, self.B) for part in state.dropout),
        )
        memory = memory._replace(states=pad(memory.states, self.B, S), mask=pad(memory.mask, self.B, S))
        keys, labels = pad(keys, self.B, S), pad(labels, self.B, self.T)
        super().__init__(cells, scores, state, memory, keys, labels, combine)

    @torch.no_grad()
    def step(self, embedded: Tensor) -> DecoderOutput:
        """Process one token [B, 1, E] without gradients: see `FusedUnroll.step`."""
        states, contexts, weights = super().step(pad(embedded, self.B))
        B, _, S = self.sizes
        return DecoderOutput(states[:B], contexts[:B], weights[:B, :, :S])

    def finish(self, embedded: Tensor) -> DecoderOutput:
        """Process the whole target [B, T, E], whose first tokens are those given to `step`."""
        states, contexts, weights = super().finish(pad(embedded, self.B, self.T))
        B, T, S = self.sizes
        return DecoderOutput(states[:B, :T], contexts[:B, :T], weights[:B, :T, :S])

    def run(self, gates: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Replay the loop for the input gates [N, gates], unless some steps have been processed."""
        loop = None
        if not self.loop.started:
            # Buffers that a validation in inference mode created could not be written to in training
            with torch.inference_mode(False), torch.no_grad():
                loop = self.graphs.find(self.loop.options, gates, self.loop.tensors)
        if loop is None:
            return self.loop.finish(gates)
        outputs: tuple[Tensor, Tensor, Tensor] = _GraphedLoop.apply(  # type: ignore[no-untyped-call]
            self.graphs, loop, gates, *self.loop.tensors
        )
        if outputs[0].grad_fn is not None:
            self.graphs.waiting = weakref.ref(outputs[0].grad_fn)
        return outputs


def _buffer(part: Tensor) -> Tensor:
    """Return a tensor of any shape that stays at its address: a parameter itself, or else a copy."""
    return part.detach() if isinstance(part, nn.Parameter) else part.detach().clone()


def round_up(size: int) -> int:
    """Return the next multiple of `ROUND`."""
    return math.ceil(size / ROUND) * ROUND


def pad(x: Tensor, *sizes: int) -> Tensor:
    """Append zeros to the first dimensions [B, …] until they have these sizes."""
    missing = [size - have for size, have in zip(sizes, x.shape, strict=False)]
    if not any(missing):
        return x
    unchanged = [0, 0] * (x.dim() - len(sizes))
    return F.pad(x, [*unchanged, *(part for count in reversed(missing) for part in (0, count))])
