"""Linear layers on the faster CPU backend.

In fp32 on a CPU, PyTorch multiplies with MKL. oneDNN is faster on most CPUs in a search, which multiplies by
stored weights, and on some in training: see `attnlab.fast.machine`. MKL is as fast or faster for small
weights everywhere. In bf16 and fp64, under autocast, and on a GPU, `torch.nn.functional.linear` is used.

oneDNN compiles a product for every number of rows, and keeps half a megabyte of code for each until the
process ends. Rows of its products are therefore padded to few different numbers: see `round_rows`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cache, partial
from typing import Any, Literal, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from attnlab.fast.graphs import StepGraphs
from attnlab.fast.machine import INPUTS, OUTPUTS, ROWS, cpu_time_share, searches_by_onednn, trains_by_onednn
from attnlab.nn.encoders.recurrent import is_bf16_on_cpu
from attnlab.types import map_tensors

log = logging.getLogger(__name__)

MIN_WEIGHT = 2**18  # Products with fewer elements of the weight use MKL in fp32

MIN_GRADIENT = 2**19
"""Products for gradients of weights, whose rows are summed, use MKL below this number of elements."""

MIN_ROWS_TO_PAD = 64
"""Up to this number, rows are not padded: copying them would take too long in the steps of a loop."""

MIN_ROWS_TO_COPY = 32  # With fewer rows, copying the columns of a wider weight takes longer than oneDNN saves

MIN_WEIGHT_TO_REORDER = 2**19
"""With fewer elements, reordering a weight takes longer than the steps of a loop over a target save.

Transposed weights are never reordered: that takes four times as long.
"""

MIN_ROWS_TO_PREPACK = 2  # One row takes as long with MKL, two rows take half as long with a prepacked weight
MIN_ROWS = 32  # With fewer rows, the operators of a step take hardly longer than it takes to start them

MIN_WEIGHT_OF_FEW_ROWS = 2**19
"""Elements of the smallest weight for which oneDNN is used with few rows, if there are no gradients."""

MAX_DISTINCT = 0.9
"""With a larger share of distinct rows, finding and copying them takes longer than is saved."""

SMALLEST_SCALE = 1e-30  # Divisor of rows of zeros in int8
NARROW_SHARE = 0.85  # A search is in bf16 or int8 if a product takes less than this share of the time of fp32

Result = TypeVar("Result")
Product = Callable[[Tensor], Tensor]  # The map x [..., K] → x Wᵀ + b [..., N] for a fixed weight and bias


class Products:
    """Products with the weights of one network.

    Without gradients, a weight is stored in the layout of its products at its second use, in int8 at the
    first, for all later ones: a search multiplies by the same weights at every step.
    """

    def __init__(self) -> None:
        self.uses: dict[Any, tuple[Tensor, Product | None, float]] = {}  # with the sum of the weight
        self.results: dict[str, tuple[Tensor, Any]] = {}  # of `once`
        self.state: dict[int, tuple[Tensor, int]] = {}  # tensors whose rows are shared, with their versions
        self.numbers: Tensor | None = None  # [B Q]
        self.distinct: tuple[Tensor, Tensor] | None = None
        self.graphs = StepGraphs()
        self.int8 = False  # whether searches multiply by stored weights in int8

    def __deepcopy__(self, memo: Any) -> Products:
        return Products()

    def __reduce__(self) -> tuple[type[Products], tuple[()]]:
        return Products, ()

    def begin(self) -> None:
        """Forget everything before a training step; before a search, all but weights with the same sum."""
        self.state.clear()
        self.results.clear()
        searches = not torch.is_grad_enabled()
        self.uses = {
            key: (weight, product, total)
            for key, (weight, product, total) in self.uses.items()
            if searches and product is not None and float(weight.sum()) == total
        }

    def once(self, name: str, source: Tensor, compute: Callable[[], Result]) -> Result:
        """Return the result of a computation; within a search, the last one with this name and source.

        The source may have any shape.
        """
        last = self.results.get(name)
        if last is None or last[0] is not source:
            last = self.results[name] = source, compute()
        result: Result = last[1]
        return result

    def share_rows(self, state: Any, numbers: Tensor) -> None:
        """Multiply equal rows of a state once, until the next call or a change of the state in place.

        The hypotheses of a beam often extend the same one. Those with equal states have equal numbers [B, Q].
        """
        self.numbers, self.distinct = numbers.flatten(), None  # [B Q]
        self.state.clear()

        def note(part: Tensor) -> None:
            if not part.is_inference():  # such tensors do not count their changes
                self.state[id(part)] = part, part._version

        map_tensors(note, state)

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """Compute x Wᵀ + b [..., N] of x [..., K], W [N, K] and b [N]."""
        kind, dtype, size = weight.device.type, weight.dtype, weight.numel()
        mixed = torch.is_autocast_enabled(kind)
        if size < MIN_WEIGHT and not mixed and x.dtype == torch.float32:
            return F.linear(x, weight, bias)
        if torch.is_grad_enabled() or size == 0 or weight.is_inference() or weight.is_cuda:
            return _linear(x, weight, bias)  # a graph of a GPU would read a stored weight that is gone
        if mixed:
            dtype = torch.get_autocast_dtype(kind)
        elif x.dtype == dtype == torch.float32 and size < MIN_WEIGHT_OF_FEW_ROWS and is_few(x):
            return F.linear(x, weight, bias)
        if size >= MIN_WEIGHT and (shared := self._distinct_rows(x)) is not None:
            rows, places = shared
            products = self.linear(rows, weight, bias)  # [n, N]
            return products.index_select(0, places).view(*x.shape[:-1], len(weight))
        if self.int8 and size >= MIN_WEIGHT:
            x, dtype = x.float(), torch.qint8
        # The entry also holds the weight, so that no other tensor can get its address
        bias_key = None if bias is None else (bias.data_ptr(), bias._version)
        key = weight.data_ptr(), weight.shape, weight.stride(), weight._version, bias_key, dtype
        entry = self.uses.get(key)
        if entry is None and dtype != torch.qint8:
            self.uses[key] = weight, None, 0.0
            return _linear(x, weight, bias)
        product = None if entry is None else entry[1]
        if product is None:
            if x.numel() < MIN_ROWS_TO_PREPACK * x.size(-1) and dtype == weight.dtype:
                return F.linear(x, weight, bias)
            if dtype == torch.qint8:
                product = _quantise(weight, bias)
            else:
                product = prepack(weight.contiguous(), bias, dtype, repeated=True)
            self.uses[key] = weight, product, float(weight.sum())
        return product(x if dtype == torch.qint8 else x.to(dtype))

    def _distinct_rows(self, x: Tensor) -> tuple[Tensor, Tensor] | None:
        """Return the distinct rows [n, K] of x [B, Q, K], and the place [B Q] of each row of x among them.

        The first one is repeated, so that few numbers n occur. None if few rows are equal.
        """
        part, version = self.state.get(id(x), (None, 0))
        if part is not x or version != x._version or self.numbers is None or len(self.numbers) < MIN_ROWS:
            return None
        if self.distinct is None:
            distinct, places = torch.unique(self.numbers, return_inverse=True)  # [n], [B Q]
            rows = torch.empty_like(distinct)
            rows[places] = torch.arange(len(places), device=places.device)
            count = round_rows(len(rows))
            self.distinct = torch.cat([rows, rows[:1].expand(count - len(rows))]), places
        rows, places = self.distinct
        if len(rows) > MAX_DISTINCT * len(places):
            return None
        return x.flatten(0, -2).index_select(0, rows), places


def has_large_weights(network: nn.Module) -> bool:
    """Return whether a network on a CPU has weights that are large enough for oneDNN."""
    return any(part.numel() >= MIN_WEIGHT and not part.is_cuda for part in network.parameters())


class Linear(nn.Linear):
    """`torch.nn.Linear` computed by the products of its network."""

    products: Products

    def forward(self, input: Tensor) -> Tensor:
        return self.products.linear(input, self.weight, self.bias)


def is_few(x: Tensor) -> bool:
    """Return whether x [..., K] has so few rows that PyTorch's own operators are as fast, in fp32.

    In mixed precision it is False: there, stored weights save casts.
    """
    return x.numel() < MIN_ROWS * x.size(-1) and not torch.is_autocast_enabled(x.device.type)


def outer(left: Tensor, right: Tensor) -> Tensor:
    """Sum the outer products of the rows [n, N] and [n, K] to [N, K], as in the gradient of a weight."""
    if left.device.type != "cpu" or left.dtype != right.dtype or len(left) == 0:
        return left.T @ right
    if left.dtype == torch.bfloat16:
        return _pad_rows(left).T @ _pad_rows(right)
    large = left.size(1) * right.size(1) >= MIN_GRADIENT
    if not (large and trains_by_onednn() and _onednn_supports(left.dtype)):
        return left.T @ right
    return _onednn_product(_dense(_pad_rows(left).T), _dense(_pad_rows(right).T), None)


def prepack(weight: Tensor, bias: Tensor | None, dtype: torch.dtype, *, repeated: bool = False) -> Product:
    """Return the map x [..., K] → x Wᵀ + b [..., N] in `dtype`, with the weight cast and packed once.

    On a CPU, large weights are reordered into oneDNN's own layout. With the few rows of one step of a loop,
    much of the time of a product is spent on that layout. Reordering changes no result of more than one row.
    `repeated` says that a search multiplies by the weight, at more steps than a target has.
    """
    weight = weight.to(dtype)
    bias = None if bias is None else bias.to(dtype)
    if not _onednn(weight, repeated=repeated):
        return lambda x: F.linear(x, weight, bias)
    reorder = (repeated or weight.numel() >= MIN_WEIGHT_TO_REORDER) and weight.is_contiguous()
    packed = torch.ops.mkldnn._reorder_linear_weight(weight) if reorder else _dense(weight)
    return lambda x: _operator(x, packed, bias)


def _quantise(weight: Tensor, bias: Tensor | None) -> Product:
    """Return the map x → x Wᵀ + b with W in int8, scaled by output, and x in 7 bits, scaled by row.

    So the result of a row does not depend on the others. Eight bits of x would overflow the sums of CPUs
    without VNNI.
    """
    scales = weight.abs().amax(dim=1).clamp(min=SMALLEST_SCALE) / 127  # [N]
    packed = torch.ops.onednn.qlinear_prepack((weight / scales[:, None]).round().to(torch.int8), None)
    zeros = torch.zeros(len(weight), dtype=torch.int64)

    def product(x: Tensor) -> Tensor:
        rows = x.reshape(-1, x.size(-1))  # [n, K]
        row_scales = rows.abs().amax(dim=1, keepdim=True).clamp(min=SMALLEST_SCALE) / 63  # [n, 1]
        rounded = _pad_rows((rows / row_scales + 64).round_().to(torch.uint8))
        weights = packed, scales, zeros
        products = torch.ops.onednn.qlinear_pointwise(
            rounded, 1.0, 64, *weights, None, 1.0, 0, torch.float32, "none", [], ""
        )[: len(rows)]  # [n, N]
        result = products * row_scales if bias is None else torch.addcmul(bias, products, row_scales)
        return result.view(*x.shape[:-1], len(weight))

    return product


@cache
@torch.no_grad()
def narrow_precision() -> Literal["bf16", "int8"] | None:
    """Return the precision in which a search on the CPU multiplies fastest, by a timing; None for fp32."""
    if not _onednn_supports(torch.float32):
        return None
    x, weight = torch.ones(ROWS, INPUTS), torch.full((OUTPUTS, INPUTS), 0.01)
    fp32, bf16 = (
        partial(prepack(weight, None, dtype, repeated=True), x.to(dtype))
        for dtype in (torch.float32, torch.bfloat16)
    )
    shares: dict[Literal["bf16", "int8"], float] = {
        "bf16": cpu_time_share(bf16, fp32, rounds=4),
        "int8": cpu_time_share(partial(_quantise(weight, None), x), fp32, rounds=4),
    }
    fastest = min(shares, key=lambda name: shares[name])
    chosen = fastest if shares[fastest] < NARROW_SHARE else None
    times = ", ".join(f"{name} takes {part:.2f} times the time of fp32" for name, part in shares.items())
    log.info("search.precision=auto: %s (%s)", chosen or "fp32", times)
    return chosen


def prepack_sum(weight: Tensor, dtype: torch.dtype) -> Callable[[Tensor, Tensor], object]:
    """Return the in-place map (y, x) → y + x Wᵀ of y [n, N] and x [n, K]; y may be in a wider dtype."""
    if weight.dtype == dtype != torch.bfloat16 and not _onednn(weight):
        columns = weight.T
        return lambda y, x: y.addmm_(x, columns)
    product = prepack(weight, None, dtype)
    return lambda y, x: y.add_(product(x))


def _linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    if is_bf16_on_cpu(x):
        rows = x.reshape(x.shape[:-1].numel(), x.size(-1))  # [n, K]
        return F.linear(_pad_rows(rows), weight, bias)[: len(rows)].view(*x.shape[:-1], len(weight))
    if x.dtype != torch.float32 or not _onednn(weight) or torch.is_autocast_enabled("cpu"):
        return F.linear(x, weight, bias)
    if x.numel() < MIN_ROWS_TO_COPY * x.size(-1) and not _is_dense(weight):
        return F.linear(x, weight, bias)
    if not torch.is_grad_enabled():
        return _multiply(x, weight, bias)
    return _Linear.apply(x, weight, bias)  # type: ignore[no-any-return,no-untyped-call]


class _Linear(torch.autograd.Function):
    """`linear` on oneDNN, with its backward pass."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return _multiply(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_output: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        x, weight = ctx.saved_tensors
        rows = d_output.reshape(-1, len(weight))  # [n, N]
        d_x = _multiply(d_output, weight.T, None) if ctx.needs_input_grad[0] else None  # [..., K]
        d_weight = outer(rows, x.reshape(-1, x.size(-1))) if ctx.needs_input_grad[1] else None  # [N, K]
        d_bias = rows.sum(dim=0) if ctx.needs_input_grad[2] else None  # [N]
        return d_x, d_weight, d_bias


def _multiply(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Compute x Wᵀ + b [..., N]. Columns of a wider matrix are copied: the operator is slow on them."""
    rows = _dense(x.reshape(-1, x.size(-1)))  # [n, K]
    return _operator(rows, _dense(weight), bias).view(*x.shape[:-1], len(weight))


def _dense(matrix: Tensor) -> Tensor:
    return matrix if _is_dense(matrix) else matrix.contiguous()


def _is_dense(matrix: Tensor) -> bool:
    return matrix.is_contiguous() or matrix.T.is_contiguous()


def _operator(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Compute x Wᵀ + b [..., N] for rows [..., K], to which others are added and dropped again."""
    if x.numel() <= MIN_ROWS_TO_PAD * x.size(-1):
        return _onednn_product(x, weight, bias)
    rows = x.reshape(-1, x.size(-1))  # [n, K]
    return _onednn_product(_pad_rows(rows), weight, bias)[: len(rows)].view(*x.shape[:-1], len(weight))


def _onednn_product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")  # type: ignore[no-any-return]


def round_rows(rows: int) -> int:
    """Round a number of rows up to one of eight numbers between two powers of 2."""
    step = 1 << max(0, (rows - 1).bit_length() - 4)
    return -(-rows // step) * step


def _pad_rows(x: Tensor) -> Tensor:
    """Append rows of zeros to [n, K], so that few different numbers of rows occur."""
    added = 0 if len(x) <= MIN_ROWS_TO_PAD else round_rows(len(x)) - len(x)
    return x if added == 0 else F.pad(x, (0, 0, 0, added))


def _onednn(weight: Tensor, *, repeated: bool = False) -> bool:
    """Return whether oneDNN multiplies by this weight, with the operators that torch.compile uses."""
    if weight.device.type != "cpu" or weight.numel() == 0 or not _onednn_supports(weight.dtype):
        return False
    if weight.dtype != torch.float32:
        return True
    return weight.numel() >= MIN_WEIGHT and (searches_by_onednn() if repeated else trains_by_onednn())


@cache
def _onednn_supports(dtype: torch.dtype) -> bool:
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return False
    if dtype == torch.bfloat16:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return dtype == torch.float32
