"""CUDA graphs: a computation that a GPU repeats with the same shapes is recorded once.

Starting the kernels of a decoder's step takes several times as long as the GPU needs to run them. A graph
starts all kernels of a loop, or of one step of a search, at once. It reads and writes the same memory at
every replay: arguments are copied in, and results are copied out where they are kept for longer.
"""

import logging
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import TreeSpec, tree_unflatten

from attnlab.types import map_tensors

log = logging.getLogger(__name__)

MIN_CALLS = 2
"""Calls with the same shapes before one is recorded; they also prepare the libraries of the device."""

MAX_GRAPHS = 32  # Graphs that are kept; the one that was not used for longest is dropped first

MIN_FREE_MEMORY = 0.5
"""A graph keeps its memory: none is recorded unless this share of the device's memory is free."""


class Graph:
    """A function of tensors, recorded for the shapes of its arguments.

    Args:
        function: takes a list of tensors and None, and returns results of any structure; it computes on the
            device alone, and neither reads values nor changes its arguments.
    """

    def __init__(self, function: Callable[[list[Any]], Any], arguments: Sequence[Tensor | None]) -> None:
        with torch.inference_mode(False), torch.no_grad():
            self.arguments = [None if part is None else torch.empty_like(part) for part in arguments]
        self.sources: list[Tensor | None] = [None] * len(arguments)
        self.copy_arguments(arguments)
        self.graph = torch.cuda.CUDAGraph()
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        current = torch.cuda.current_stream()
        stream.wait_stream(current)
        # Other threads, such as that of a data loader, may use the device meanwhile
        with torch.cuda.stream(stream), _without_cached_casts():
            self.graph.capture_begin(capture_error_mode="thread_local")
            try:
                self.results = function(self.arguments)
            finally:
                self.graph.capture_end()
        current.wait_stream(stream)

    def copy_arguments(self, arguments: Sequence[Tensor | None], constant: int = 0) -> None:
        """Copy arguments of any shape to where the graph reads them; the last `constant` ones only if new."""
        targets, sources = [], []
        for i, (target, source) in enumerate(zip(self.arguments, arguments, strict=True)):
            if target is None or source is None:
                continue
            if i >= len(arguments) - constant:
                if self.sources[i] is source:
                    continue
                self.sources[i] = source
            targets.append(target)
            sources.append(source)
        torch._foreach_copy_(targets, sources)

    def replay(self, arguments: Sequence[Tensor | None], constant: int = 0) -> Any:
        """Return the results for arguments of any shape; the next replay overwrites them."""
        self.copy_arguments(arguments, constant)
        self.graph.replay()
        return self.results


class Cache:
    """Graphs by what they compute and by the shapes of their arguments."""

    def __init__(self) -> None:
        self.calls: Counter[Hashable] = Counter()
        self.graphs: OrderedDict[Hashable, Any] = OrderedDict()

    def get(self, key: Hashable, record: Callable[[], Any]) -> Any:
        """Return the result of `record` for this key; None in the first `MIN_CALLS`, or if it failed."""
        if key in self.graphs:
            self.graphs.move_to_end(key)
            return self.graphs[key]
        self.calls[key] += 1
        if self.calls[key] <= MIN_CALLS:
            return None
        recorded = None
        free, total = torch.cuda.mem_get_info()
        if free < MIN_FREE_MEMORY * total:
            log.info("no CUDA graph is recorded: less than half of the GPU's memory is free")
        else:
            try:
                recorded = record()
            except RuntimeError as error:  # an operation that no graph can have
                log.info("no CUDA graph is recorded: %s", error)
        self.graphs[key] = recorded
        if len(self.graphs) > MAX_GRAPHS:
            self.graphs.popitem(last=False)
        return recorded

    def clear(self) -> None:
        """Forget all graphs and all counts of calls."""
        self.graphs.clear()
        self.calls.clear()


class TrainingGraphs:
    """Graphs of the forward and backward pass of `Work` for one set of shapes.

    They belong to one call from its forward to its backward pass: `busy`.
    """

    def __init__(self, work: Any, structure: TreeSpec, gates: Tensor, tensors: Sequence[Any]) -> None:
        def forward(parts: list[Any]) -> Any:
            return work.forward(parts[0], tree_unflatten(parts[1:], structure))

        self.work, self.structure = work, structure
        self.forward_graph = Graph(forward, [gates, *tensors])
        self.backward_graphs: dict[tuple[bool, ...], Graph] = {}
        self.busy = False

    def forward(self, arguments: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
        """Return copies of the outputs, of any shape."""
        outputs, _ = self.forward_graph.replay(arguments)
        return tuple(part.clone() for part in outputs)

    def backward(self, d_outputs: Sequence[Tensor | None]) -> Any:
        """Return the gradients of `Work.backward`, of any shape; the next backward pass overwrites them."""
        key = tuple(part is None for part in d_outputs)
        if key not in self.backward_graphs:
            (_, saved), (_, *tensors) = self.forward_graph.results, self.forward_graph.arguments
            backward = partial(self.work.backward, tree_unflatten(tensors, self.structure), saved)
            self.backward_graphs[key] = Graph(backward, d_outputs)
        return self.backward_graphs[key].replay(d_outputs)


class Lease:
    """The use of `TrainingGraphs` by one call; ends with its backward pass or when nothing refers to it."""

    def __init__(self, graphs: TrainingGraphs) -> None:
        self.graphs: TrainingGraphs | None = graphs
        graphs.busy = True

    def end(self) -> None:
        """Let another call use the graphs."""
        if self.graphs is not None:
            self.graphs.busy = False
            self.graphs = None

    __del__ = end


TRAINING = Cache()  # Graphs of all networks: weights are arguments like all others


def lease(work: Any, structure: TreeSpec, gates: Tensor, tensors: Sequence[Any]) -> Lease | None:
    """Return graphs of a call with tensors of any shape, or None if it runs without."""
    if work.key is None or torch.cuda.is_current_stream_capturing():
        return None
    shapes = gates.device, work.key, _shapes((gates, *tensors))
    for number in range(MAX_GRAPHS):  # layers of the same shapes need one each
        graphs = TRAINING.get((number, *shapes), lambda: TrainingGraphs(work, structure, gates, tensors))
        if graphs is None:
            return None
        if not graphs.busy:
            return Lease(graphs)
    return None


class StepGraphs:
    """Graphs of one step of a network's search, for each shape."""

    def __init__(self) -> None:
        self.cache = Cache()
        self.addresses: list[int] = []
        self.attention: object = None

    def check(self, tensors: Sequence[Tensor], attention: object) -> None:
        """Forget all graphs if tensors, of any shape, have moved, or the attention is another."""
        addresses = [part.data_ptr() for part in tensors]
        if addresses != self.addresses or attention is not self.attention:
            self.cache.clear()
            self.addresses, self.attention = addresses, attention

    def __call__(self, step: Callable[..., Any], changing: tuple[Any, ...], constant: Any) -> Any:
        """Compute `step(*changing, constant)`, whose last argument is the same object for many calls."""
        tree = (*changing, constant)
        tensors = list(_tensors(tree))
        autocast = torch.is_autocast_enabled("cuda") and torch.get_autocast_dtype("cuda")

        def step_on(arguments: list[Tensor]) -> Any:
            others = iter(arguments)
            return step(*map_tensors(lambda _: next(others), tree))

        graph = self.cache.get((autocast, _shapes(tree)), lambda: Graph(step_on, tensors))
        if graph is None:
            return step(*tree)
        results = graph.replay(tensors, constant=sum(1 for _ in _tensors(constant)))
        return map_tensors(Tensor.clone, results)


def _tensors(tree: Any) -> Iterator[Tensor]:
    """Yield the tensors of a nested tuple."""
    if isinstance(tree, Tensor):
        yield tree
    elif isinstance(tree, tuple):
        for part in tree:
            yield from _tensors(part)


def _shapes(tree: Any) -> Hashable:
    """Return a nested tuple with the shape and the dtype of each tensor in its place."""
    if isinstance(tree, Tensor):
        return tree.shape, tree.dtype
    return tuple(_shapes(part) for part in tree) if isinstance(tree, tuple) else tree


def _without_cached_casts() -> AbstractContextManager[Any]:
    """Return a context in which autocast keeps no cast weights: a graph would read them after their end."""
    if not torch.is_autocast_enabled("cuda"):
        return nullcontext()
    return torch.autocast("cuda", torch.get_autocast_dtype("cuda"), cache_enabled=False)
