"""Products by oneDNN, where it is there, against torch's own."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from attnlab.nn.fused.linear import WORTH_PREPARING, Linear, laid_out, linear, outer, prepare


def layouts() -> dict[str, tuple[Tensor, Tensor]]:
    """Inputs [..., 7] and weights [5, 7] as they come: whole, transposed, and columns of something wider."""
    torch.manual_seed(0)
    return {
        "rows": (torch.randn(3, 7), torch.randn(5, 7)),
        "no rows": (torch.randn(0, 7), torch.randn(5, 7)),
        "one vector": (torch.randn(7), torch.randn(5, 7)),
        "time first": (torch.randn(2, 3, 7).transpose(0, 1), torch.randn(5, 7)),
        "first columns": (torch.randn(3, 7), torch.randn(5, 11)[:, :7]),
        "last columns": (torch.randn(3, 11)[:, 4:], torch.randn(5, 11)[:, 4:]),
        "last columns of many rows": (torch.randn(37, 11)[:, 4:], torch.randn(5, 11)[:, 4:]),
        "transposed": (torch.randn(7, 3).T, torch.randn(7, 5).T),
        "one row again and again": (torch.randn(1, 7).expand(3, 7), torch.randn(5, 7)),
    }


@pytest.mark.parametrize("layout", layouts())
@pytest.mark.parametrize("offset", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_linear_and_its_gradients_are_torch_s(layout: str, offset: bool, dtype: torch.dtype) -> None:
    x, weight = (part.to(dtype) for part in layouts()[layout])
    bias = torch.randn(5, dtype=dtype) if offset else None
    results = []
    for function in (linear, F.linear):
        leaves = [None if part is None else part.detach().requires_grad_() for part in (x, weight, bias)]
        output = function(*leaves)
        output.backward(torch.linspace(-1, 1, output.numel(), dtype=dtype).view_as(output))
        results.append([output, *(leaf.grad for leaf in leaves if leaf is not None)])
    for one, two in zip(*results, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("layout", layouts())
def test_without_gradients(layout: str) -> None:
    x, weight = layouts()[layout]
    with torch.inference_mode():
        torch.testing.assert_close(linear(x, weight), F.linear(x, weight), rtol=1e-5, atol=1e-5)


def test_no_gradient_is_made_that_nothing_asks_for() -> None:
    x, weight = torch.randn(3, 7), torch.randn(5, 7, requires_grad=True)
    linear(x, weight).sum().backward()
    torch.testing.assert_close(weight.grad, x.sum(dim=0).expand(5, 7))
    assert x.grad is None


def test_autocast_is_obeyed() -> None:
    layer = Linear(7, 5)
    with torch.autocast("cpu", torch.bfloat16):
        output = layer(torch.randn(3, 7))
    assert output.dtype == torch.bfloat16


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_outer(dtype: torch.dtype) -> None:
    left, right = torch.randn(11, 5, dtype=dtype), torch.randn(11, 13, dtype=dtype)[:, 2:9]
    torch.testing.assert_close(outer(left, right), left.T @ right, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("transposed", [False, True])
def test_a_weight_laid_out_once(transposed: bool) -> None:
    weight = torch.randn(7, 5).T if transposed else torch.randn(5, 7)
    bias, x = torch.randn(5), torch.randn(3, 7)
    by_weight = prepare(weight, bias, torch.float32)
    torch.testing.assert_close(by_weight(x), F.linear(x, weight, bias), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("layout", layouts())
@pytest.mark.parametrize("offset", [False, True])
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_weights_laid_out_for_many_products(layout: str, offset: bool, mode: type[torch.no_grad]) -> None:
    x, weight = layouts()[layout]
    bias = torch.randn(5) if offset else None
    with mode(), laid_out():
        for rows in (x, torch.cat([x.reshape(-1, 7)] * WORTH_PREPARING), -x):
            expected = F.linear(rows, weight, bias)
            torch.testing.assert_close(linear(rows, weight, bias), expected, rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_weights_laid_out_are_told_apart() -> None:
    weight, bias, x = torch.randn(5, 7), torch.randn(5), torch.randn(WORTH_PREPARING, 7)
    with laid_out():
        for of, offset in [(weight, None), (weight, bias), (weight[:3], None), (weight, bias + 1)]:
            torch.testing.assert_close(linear(x, of, offset), F.linear(x, of, offset), rtol=1e-5, atol=1e-5)
        weight += 1
        bias += 1
        torch.testing.assert_close(linear(x, weight), F.linear(x, weight), rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(linear(x, weight, bias), F.linear(x, weight, bias), rtol=1e-5, atol=1e-5)
        with torch.autocast("cpu", torch.bfloat16):  # by a copy, where the above may be the weight itself
            assert linear(x, weight).dtype == torch.bfloat16
            weight += 1
            torch.testing.assert_close(linear(x, weight), F.linear(x, weight))


@torch.no_grad()
def test_a_weight_at_the_address_of_one_that_is_gone() -> None:
    x = torch.randn(WORTH_PREPARING, 7)
    with laid_out(), torch.autocast("cpu", torch.bfloat16):
        for _ in range(20):
            weight = torch.randn(5, 7)
            torch.testing.assert_close(linear(x, weight), F.linear(x, weight))
            del weight


def test_gradients_inside_and_no_layouts_outside() -> None:
    layer, x = Linear(7, 5), torch.randn(WORTH_PREPARING, 7)
    with laid_out():
        with torch.no_grad():
            layer(x)
        layer(x).sum().backward()
        with laid_out(), torch.no_grad():
            layer(x)
        layer.weight.data = torch.zeros(5, 7)
        with torch.no_grad():
            torch.testing.assert_close(layer(x), layer.bias.expand(len(x), 5))
    torch.testing.assert_close(layer.weight.grad, x.sum(dim=0).expand(5, 7))
