"""Linear layers on oneDNN, against torch's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from attnlab.nn.fused import Kernels
from attnlab.nn.fused.linear import MIN_ROWS_TO_PREPACK, Linear, linear, outer, prepack


@pytest.fixture(autouse=True)
def fused_kernels() -> Iterator[None]:
    with Kernels(fused=True).active():
        yield


def layouts() -> dict[str, tuple[Tensor, Tensor]]:
    """Inputs [..., 7] and weights [5, 7]: contiguous, transposed, and columns of a wider matrix."""
    torch.manual_seed(0)
    return {
        "contiguous": (torch.randn(3, 7), torch.randn(5, 7)),
        "no rows": (torch.randn(0, 7), torch.randn(5, 7)),
        "vector": (torch.randn(7), torch.randn(5, 7)),
        "time first": (torch.randn(2, 3, 7).transpose(0, 1), torch.randn(5, 7)),
        "first columns": (torch.randn(3, 7), torch.randn(5, 11)[:, :7]),
        "last columns": (torch.randn(3, 11)[:, 4:], torch.randn(5, 11)[:, 4:]),
        "last columns of many rows": (torch.randn(37, 11)[:, 4:], torch.randn(5, 11)[:, 4:]),
        "transposed": (torch.randn(7, 3).T, torch.randn(7, 5).T),
        "expanded row": (torch.randn(1, 7).expand(3, 7), torch.randn(5, 7)),
    }


@pytest.mark.parametrize("layout", layouts())
@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_results_and_gradients_equal_those_of_torch(layout: str, with_bias: bool, dtype: torch.dtype) -> None:
    x, weight = (part.to(dtype) for part in layouts()[layout])
    bias = torch.randn(5, dtype=dtype) if with_bias else None
    results = []
    functions: list[Callable[..., Tensor]] = [linear, F.linear]
    for function in functions:
        leaves = [None if part is None else part.detach().requires_grad_() for part in (x, weight, bias)]
        output = function(*leaves)
        output.backward(torch.linspace(-1, 1, output.numel(), dtype=dtype).view_as(output))
        results.append([output, *(leaf.grad for leaf in leaves if leaf is not None)])
    for one, two in zip(*results, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("layout", layouts())
def test_results_without_gradients_equal_those_of_torch(layout: str) -> None:
    x, weight = layouts()[layout]
    with torch.inference_mode():
        torch.testing.assert_close(linear(x, weight), F.linear(x, weight), rtol=1e-5, atol=1e-5)


def test_no_gradient_for_inputs_that_require_none() -> None:
    x, weight = torch.randn(3, 7), torch.randn(5, 7, requires_grad=True)
    linear(x, weight).sum().backward()
    torch.testing.assert_close(weight.grad, x.sum(dim=0).expand(5, 7))
    assert x.grad is None


def test_autocast_gives_bfloat16() -> None:
    layer = Linear(7, 5)
    with torch.autocast("cpu", torch.bfloat16):
        output = layer(torch.randn(3, 7))
    assert output.dtype == torch.bfloat16


def test_plain_kernels_are_torch() -> None:
    layer, x = Linear(512, 512), torch.randn(3, 512)
    with Kernels(fused=False).active():
        assert type(layer(x).grad_fn).__name__ == "AddmmBackward0"
    assert type(layer(x).grad_fn).__name__ != "AddmmBackward0"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_outer_equals_the_matrix_product(dtype: torch.dtype) -> None:
    left, right = torch.randn(11, 5, dtype=dtype), torch.randn(11, 13, dtype=dtype)[:, 2:9]
    torch.testing.assert_close(outer(left, right), left.T @ right, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("transposed", [False, True])
def test_product_with_a_prepacked_weight_equals_linear(transposed: bool) -> None:
    weight = torch.randn(7, 5).T if transposed else torch.randn(5, 7)
    bias, x = torch.randn(5), torch.randn(3, 7)
    product = prepack(weight, bias, torch.float32)
    torch.testing.assert_close(product(x), F.linear(x, weight, bias), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("layout", layouts())
@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_repeated_products_with_prepacked_weights(
    layout: str, with_bias: bool, mode: type[torch.no_grad]
) -> None:
    x, weight = layouts()[layout]
    bias = torch.randn(5) if with_bias else None
    with mode(), Kernels(fused=True, prepack=True).active():
        for rows in (x, torch.cat([x.reshape(-1, 7)] * MIN_ROWS_TO_PREPACK), -x):
            expected = F.linear(rows, weight, bias)
            torch.testing.assert_close(linear(rows, weight, bias), expected, rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_prepacked_weights_follow_changes() -> None:
    weight, bias, x = torch.randn(5, 7), torch.randn(5), torch.randn(MIN_ROWS_TO_PREPACK, 7)
    with Kernels(fused=True, prepack=True).active():
        for matrix, offset in [(weight, None), (weight, bias), (weight[:3], None), (weight, bias + 1)]:
            expected = F.linear(x, matrix, offset)
            torch.testing.assert_close(linear(x, matrix, offset), expected, rtol=1e-5, atol=1e-5)
        weight += 1
        bias += 1
        torch.testing.assert_close(linear(x, weight), F.linear(x, weight), rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(linear(x, weight, bias), F.linear(x, weight, bias), rtol=1e-5, atol=1e-5)
        with torch.autocast("cpu", torch.bfloat16):  # uses a copy, where fp32 may use the weight itself
            assert linear(x, weight).dtype == torch.bfloat16
            weight += 1
            torch.testing.assert_close(linear(x, weight), F.linear(x, weight))


@torch.no_grad()
def test_weight_at_the_address_of_a_deleted_one() -> None:
    x = torch.randn(MIN_ROWS_TO_PREPACK, 7)
    with Kernels(fused=True, prepack=True).active(), torch.autocast("cpu", torch.bfloat16):
        for _ in range(20):
            weight = torch.randn(5, 7)
            torch.testing.assert_close(linear(x, weight), F.linear(x, weight))
            del weight


def test_prepacking_does_not_change_gradients() -> None:
    layer, x = Linear(7, 5), torch.randn(MIN_ROWS_TO_PREPACK, 7)
    kernels = Kernels(fused=True, prepack=True)
    with kernels.active():
        with torch.no_grad():
            layer(x)
        assert kernels.prepacked
        layer(x).sum().backward()
        layer.weight.data = torch.zeros(5, 7)
        with torch.no_grad():
            torch.testing.assert_close(layer(x), layer.bias.expand(len(x), 5))
    torch.testing.assert_close(layer.weight.grad, x.sum(dim=0).expand(5, 7))
