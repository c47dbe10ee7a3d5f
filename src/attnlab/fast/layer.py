"""One recurrent layer, forward and backward, one step at a time, without an autograd graph of the steps.

The rows of all steps are packed in one buffer [N, …], step after step, and a step is a slice of it. Sentences
that end earlier come last in the batch, so that a step updates the first n rows of the running state.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from attnlab.fast.cells import CELLS, GRU, LSTM, identity, widest
from attnlab.fast.function import run
from attnlab.fast.linear import Products, is_few, outer, prepack, prepack_sum
from attnlab.fast.norm import Norm
from attnlab.fast.rows import Rows
from attnlab.nn import cells
from attnlab.nn.cells import STEPS, CellState, Recurrence


class StateParameters(NamedTuple):
    """Parameters with which a layer reads its own state, layer normalisation and dropout included."""

    weight: Tensor  # U [gates, H]
    bias: Tensor  # [gates]
    gain: Tensor | None = None  # γ of LN(U h + b), [gates]; None without layer normalisation
    shift: Tensor | None = None  # its β
    cell_gain: Tensor | None = None  # γ of LN(c') in an LSTM, [H]
    cell_shift: Tensor | None = None  # its β
    dropout: Tensor | None = None  # factors of h where the product reads it, [B, H]


class LayerForward:
    """Forward pass of one recurrent layer.

    Args:
        state: h (and c) before the first step, each [B, H].
        rows: N, of all steps together.
        dtype: data type of matrix products and outputs. Gates and states are in fp32 or wider.
        save: save the tensors for the backward pass.
    """

    def __init__(
        self,
        kind: str,
        parameters: StateParameters,
        state: Sequence[Tensor],
        rows: int,
        dtype: torch.dtype,
        *,
        save: bool,
    ) -> None:
        weight, bias, gain, shift, cell_gain, cell_shift, self.dropout = parameters
        self.cell = CELLS[kind]
        self.save = save
        wide = widest(dtype)
        self.norm = Norm.begin(gain, shift, rows if save else 0, wide)
        self.adds = self.norm is None and self.cell is LSTM  # whether all of U h + b is added to W x + b
        if self.adds:
            self.bias, self.add_product = bias.to(wide), prepack_sum(weight, dtype)
        else:
            self.product = prepack(weight, bias, dtype)
        self.cell_norm = Norm.begin(cell_gain, cell_shift, rows if save else 0, wide)
        self.state = [part.to(wide, copy=True) for part in state]  # each [B, H]
        size = weight.size(1)
        saved = rows if save else len(state[0])
        self.gates = weight.new_empty(saved, len(weight), dtype=wide)  # [N, gates]
        self.extra = self.gates.new_empty(self.cell.extra, saved, size)  # [extra, N, H]
        self.before = weight.new_empty(saved, size, dtype=dtype)  # h before each step, [N, H]
        self.read = self.before if self.dropout is None else torch.empty_like(self.before)  # with dropout
        self.outputs = weight.new_empty(rows, size, dtype=dtype)  # h after each step, [N, H]

    @property
    def saved(self) -> list[Any]:
        """Buffers [N, …] that `LayerBackward` needs, a tree."""
        norms = [norm and norm.saved for norm in (self.norm, self.cell_norm)]
        return [self.gates, self.extra, self.before, self.read, *norms]

    def step(self, rows: slice, from_input: Tensor) -> Tensor:
        """Process the rows of one step, given W x + b [n, gates]; return h [n, H]."""
        count = rows.stop - rows.start
        saved = rows if self.save else slice(count)
        state = [part[:count] for part in self.state]  # each [n, H]
        before = self.before[saved].copy_(state[0])  # [n, H]
        if self.dropout is not None:
            before = torch.mul(state[0], self.dropout[:count], out=self.read[saved])  # [n, H]
        gates, extra = self.gates[saved], self.extra[:, saved]  # [n, gates], [extra, n, H]
        if self.adds:
            torch.add(from_input, self.bias, out=gates)
            self.add_product(gates, before)
        else:
            from_state = self.product(before)  # [n, gates]
            if self.norm is not None:
                from_state = self.norm.forward(rows, from_state)
            self.cell.combine(gates, extra, from_input, from_state)
        norm = identity if self.cell_norm is None else partial(self.cell_norm.forward, rows)
        self.cell.forward(gates, extra, state, norm)
        outputs = self.outputs[rows]  # [n, H]
        outputs.copy_(state[0])
        return outputs


class LayerBackward:
    """Backward pass of one recurrent layer.

    Args:
        d_state: gradients of the last state, each [B, H] or None for zeros.
        shape: shape of a state, (B, H).
    """

    def __init__(
        self,
        kind: str,
        parameters: StateParameters,
        saved: Sequence[Any],
        d_state: Sequence[Tensor | None],
        shape: tuple[int, int],
    ) -> None:
        weight, _, gain, shift, cell_gain, cell_shift, self.dropout = parameters
        self.cell = CELLS[kind]
        self.gates, extra, self.before, self.read, norm, cell_norm = saved
        self.norm = Norm.resume(gain, shift, norm)
        self.cell_norm = Norm.resume(cell_gain, cell_shift, cell_norm)
        dtype = self.before.dtype
        self.d_state = [
            self.gates.new_zeros(shape) if part is None else part.to(self.gates.dtype, copy=True)
            for part in d_state
        ]  # each [B, H]
        N, wide = len(self.gates), self.gates.dtype
        parts = 2 if self.cell is GRU else 1
        like = self.before if self.norm is None else self.gates
        gates: list[Tensor] = [like.new_empty(N, len(weight)) for _ in range(parts)]
        self.d_gates = gates
        self.d_input = gates[0]  # of W x + b, or of LN(W x + b), [N, gates]
        # The factors are overwritten by the gradients, where both have one dtype.
        factors = gates[0] if gates[0].dtype == wide else torch.empty_like(self.gates)
        self.factors = self.cell.factors(self.gates, extra, self.before, factors)
        # of U h + b, [N, gates]
        self.d_product = gates[-1] if self.norm is None else self.before.new_empty(N, len(weight))
        normalised = 0 if self.cell_norm is None else N
        self.d_normal = self.gates.new_empty(normalised, shape[1])  # of LN(c'), [N, H]
        if self.dropout is None:
            self.add_product = prepack_sum(weight.T, dtype)
        else:
            self.product = prepack(weight.T, None, dtype)

    def step(self, rows: slice) -> Tensor:
        """Go back one step, from the gradient of h in `d_state[0]`; return d(W x + b) [n, gates]."""
        count = rows.stop - rows.start
        d_state = [part[:count] for part in self.d_state]  # each [n, H]
        d_gates = [gates[rows] for gates in self.d_gates]  # each [n, gates]
        factors = [part[rows] for part in self.factors]  # each [n, …]
        norm = None if self.cell_norm is None else partial(self._through_cell_norm, rows)
        self.cell.backward(self.gates[rows], factors, d_state, d_gates, norm)
        d_product = self.d_product[rows]  # [n, gates]
        if self.norm is not None:
            d_product.copy_(self.norm.backward(rows, d_gates[-1]))
        if self.dropout is None:
            self.add_product(d_state[0], d_product)
        else:
            d_state[0].addcmul_(self.product(d_product), self.dropout[:count])
        return d_gates[0]

    def parameters(self) -> tuple[Tensor | None, ...]:
        """Return the gradients of all `StateParameters`, in their shapes: U [gates, H] by one product."""
        d_bias = self.d_product.sum(dim=0, dtype=self.gates.dtype)  # [gates]
        d_norm = (None, None) if self.norm is None else self.norm.parameters(self.d_gates[-1])
        d_cell_norm = (None, None) if self.cell_norm is None else self.cell_norm.parameters(self.d_normal)
        return outer(self.d_product, self.read), d_bias, *d_norm, *d_cell_norm, None

    def _through_cell_norm(self, rows: slice, d_normal: Tensor) -> Tensor:
        """Return the gradient of c' [n, H], given that of LN(c')."""
        assert self.cell_norm is not None
        return self.cell_norm.backward(rows, self.d_normal[rows].copy_(d_normal))


@dataclass(slots=True)
class FusedRecurrence(Recurrence):
    """`Recurrence` whose `unroll` records no steps for autograd, and whose `step` takes fewer operators."""

    products: Products = field(default_factory=Products)

    @property
    def parameters(self) -> StateParameters:
        """Parameters of all operations that depend on the state."""
        norms = [] if self.norms is None else [*self.norms.state.parameters(), *self.norms.cell.parameters()]
        return StateParameters(self.weight, self.bias, *norms)._replace(dropout=self.dropout)

    def project(self, x: Tensor) -> Tensor:
        return self.products.linear(x, self.input_weight, self.input_bias)

    def step(self, gates: Tensor, state: CellState) -> CellState:
        hidden = state[0] if self.dropout is None else state[0] * self.dropout  # [B, Q, H]
        from_state = self.products.linear(hidden, self.weight, self.bias)  # [B, Q, gates]
        if self.norms is not None:
            gates, from_state = self.norms.input(gates), self.norms.state(from_state)
        if torch.is_grad_enabled() or is_few(from_state):
            return STEPS[self.kind](gates, from_state, state, self.norms)
        norm = identity if self.norms is None else self.norms.cell
        return CELLS[self.kind].step(gates, from_state, state, norm)

    def unroll(
        self, gates: Tensor, state: CellState, counts: Sequence[int], *, reverse: bool = False
    ) -> tuple[Tensor, ...]:
        inputs = gates if self.norms is None else self.norms.input(gates)  # [N, gates]
        rows = Rows(tuple(counts), len(state[0]))
        loop = _LayerLoop(self.kind, rows, reverse, torch.is_grad_enabled(), gates.dtype)
        return run(loop, inputs, (self.parameters, state))


def fuse(part: Recurrence, products: Products) -> FusedRecurrence:
    """Return a recurrence as a fused one, which multiplies by the products of its network."""
    weights = part.input_weight, part.input_bias, part.weight, part.bias
    return FusedRecurrence(part.kind, *weights, part.norms, part.dropout, products)


class Cells(cells.Cells):
    """Recurrent cells whose steps are fused."""

    products: Products

    def recurrence(self, layer: int, dropout: tuple[Tensor, ...] = ()) -> FusedRecurrence:
        return fuse(super().recurrence(layer, dropout), self.products)


class CellStack(cells.CellStack):
    """Layers of cells whose first layer multiplies on the faster CPU backend."""

    products: Products

    def project_input(self, x: Tensor) -> Tensor:
        first: Any = self.cells[0]
        return self.products.linear(x, first.weight_ih[:, : self.input_size], first.bias_ih)

    def project_feed(self, u: Tensor) -> Tensor:
        first: Any = self.cells[0]
        return self.products.linear(u, first.weight_ih[:, self.input_size :])


@dataclass(frozen=True)
class _LayerLoop:
    """All steps of a layer whose inputs are known; its tree is its parameters and the initial state.

    Args:
        reverse: go through the steps from last to first.
        dtype: data type of matrix products and outputs.
    """

    kind: str
    rows: Rows
    reverse: bool
    save: bool
    dtype: torch.dtype

    @property
    def key(self) -> Hashable:
        return self

    @property
    def steps(self) -> list[slice]:
        """Rows of each step, in the order of the forward pass."""
        return self.rows.slices[::-1] if self.reverse else self.rows.slices

    def forward(self, gates: Tensor, inputs: Any) -> tuple[tuple[Tensor, ...], Any]:
        parameters, state = inputs
        with torch.autocast(gates.device.type, enabled=False):
            layer = LayerForward(self.kind, parameters, state, len(gates), self.dtype, save=self.save)
            wide = gates.to(layer.gates.dtype)  # [N, gates]
            for rows in self.steps:
                layer.step(rows, wide[rows])
        return (layer.outputs, *(part.to(self.dtype) for part in layer.state)), layer.saved

    def backward(
        self, inputs: Any, saved: Any, d_outputs: Sequence[Tensor | None]
    ) -> tuple[Tensor | None, Any]:
        (parameters, state), (d_states, *d_last) = inputs, d_outputs
        shape = self.rows.batch, parameters.weight.size(1)
        with torch.autocast(parameters.weight.device.type, enabled=False):
            layer = LayerBackward(self.kind, parameters, saved, d_last, shape)
            for rows in reversed(self.steps):
                if d_states is not None:
                    layer.d_state[0][: rows.stop - rows.start].add_(d_states[rows])
                layer.step(rows)
            d_state = [part.to(old.dtype) for part, old in zip(layer.d_state, state, strict=True)]
            return layer.d_input, (layer.parameters(), d_state)
