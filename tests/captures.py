"""Captures of functions on the CPU, as substitutes for those of CUDA graphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from attnlab.fast.graphs import Tensors

Function = Callable[[], Tensors]


class CaptureSafety(TorchDispatchMode):
    """Refuses operations that a CUDA graph cannot contain: reads on the host, results of unknown shapes."""

    aten = torch.ops.aten
    refused = (
        aten._local_scalar_dense,
        aten.equal,
        aten.is_nonzero,
        aten.masked_select,
        aten.nonzero,
        aten.repeat_interleave.Tensor,
        aten._unique2,
    )

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # otherwise the mode imports torch's compiler, which takes many seconds

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        tensors = [leaf for leaf in tree_leaves((args, kwargs, result)) if isinstance(leaf, Tensor)]
        if func in self.refused or func.overloadpacket in self.refused:
            raise AssertionError(f"{func} reads a tensor on the host")
        indexed = func.overloadpacket in (self.aten.index, self.aten.index_put_)
        if indexed and any(leaf.dtype == torch.bool for leaf in tree_leaves(args[1])):
            raise AssertionError(f"{func} has a result of unknown shape")
        if len({leaf.device for leaf in tensors if leaf.dim() > 0}) > 1:
            raise AssertionError(f"{func} copies between devices")
        return result


class Recorder(CaptureSafety):
    """Records operations with their tensors and repeats them on the same tensors, as a CUDA graph does.

    The Python code between the operations is not repeated: values that it reads, or names that it binds to
    new tensors, stay those of the recording.
    """

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, Any, Any, list[Tensor]]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = super().__torch_dispatch__(func, types, args, kwargs)
        outputs = [leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]
        self.calls.append((func, args, kwargs or {}, outputs))
        return result

    @torch.no_grad()
    def replay(self) -> None:
        for func, args, kwargs, outputs in self.calls:
            results = [leaf for leaf in tree_leaves(func(*args, **kwargs)) if isinstance(leaf, Tensor)]
            for output, result in zip(outputs, results, strict=True):
                if output.data_ptr() != result.data_ptr():  # equal for views and in-place operations
                    output.copy_(result)


def record(function: Function) -> tuple[Callable[[], None], Tensors]:
    """Capture a function: it runs twice to warm up and once to be recorded, as in `CudaCapture`."""
    for _ in range(2):
        function()
    recorder = Recorder()
    with recorder:
        results = function()
    return recorder.replay, results
