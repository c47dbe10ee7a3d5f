"""Linear layers on oneDNN, against torch's own."""

from collections.abc import Callable
from importlib import import_module

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from attnlab.fast import accelerate
from attnlab.fast.linear import MIN_ROWS_TO_PREPACK, Linear, Products, outer, prepack, round_rows
from networks import make_network


def make_layer(inputs: int, outputs: int) -> Linear:
    layer = Linear(inputs, outputs)
    layer.products = Products()
    return layer


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
    functions: list[Callable[..., Tensor]] = [Products().linear, F.linear]
    for function in functions:
        leaves = [None if part is None else part.detach().requires_grad_() for part in (x, weight, bias)]
        output = function(*leaves)
        output.backward(torch.linspace(-1, 1, output.numel(), dtype=dtype).view_as(output))
        results.append([output, *(leaf.grad for leaf in leaves if leaf is not None)])
    for one, two in zip(*results, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-5, atol=1e-5)


def test_no_gradient_for_inputs_that_require_none() -> None:
    x, weight = torch.randn(3, 7), torch.randn(5, 7, requires_grad=True)
    Products().linear(x, weight).sum().backward()
    torch.testing.assert_close(weight.grad, x.sum(dim=0).expand(5, 7))
    assert x.grad is None


def test_autocast_gives_bfloat16() -> None:
    layer = make_layer(7, 5)
    with torch.autocast("cpu", torch.bfloat16):
        output = layer(torch.randn(3, 7))
    assert output.dtype == torch.bfloat16


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_outer_equals_the_matrix_product(dtype: torch.dtype) -> None:
    left, right = torch.randn(11, 5, dtype=dtype), torch.randn(11, 13, dtype=dtype)[:, 2:9]
    torch.testing.assert_close(outer(left, right), left.T @ right, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("layout", layouts())
@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_repeated_products_with_prepacked_weights(
    layout: str, with_bias: bool, mode: type[torch.no_grad]
) -> None:
    x, weight = layouts()[layout]
    bias = torch.randn(5) if with_bias else None
    linear = Products().linear
    with mode():
        for rows in (x, torch.cat([x.reshape(-1, 7)] * MIN_ROWS_TO_PREPACK), -x):
            expected = F.linear(rows, weight, bias)
            torch.testing.assert_close(linear(rows, weight, bias), expected, rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_weight_is_prepacked_at_its_second_use_and_after_changes() -> None:
    products = Products()
    weight, bias, x = torch.randn(5, 7), torch.randn(5), torch.randn(MIN_ROWS_TO_PREPACK, 7)

    def assert_equal(matrix: Tensor, offset: Tensor | None) -> None:
        for prepacked in (False, True, True):
            expected = F.linear(x, matrix, offset)
            torch.testing.assert_close(products.linear(x, matrix, offset), expected, rtol=1e-5, atol=1e-5)
            _, product, _ = list(products.uses.values())[-1]
            assert (product is not None) == prepacked

    for matrix, offset in [(weight, None), (weight, bias), (weight[:3], None), (weight, bias + 1)]:
        assert_equal(matrix, offset)
    weight += 1
    bias += 1
    assert_equal(weight, None)
    assert_equal(weight, bias)
    with torch.autocast("cpu", torch.bfloat16):  # uses a copy, where fp32 may use the weight itself
        assert products.linear(x, weight).dtype == torch.bfloat16
        weight += 1
        for _ in range(3):
            torch.testing.assert_close(products.linear(x, weight), F.linear(x, weight))
    matrices = len([1 for _, product, _ in products.uses.values() if product is not None])
    products.begin()  # a search with the same weights: those that changed are dropped
    assert 0 < len(products.uses) < matrices
    torch.testing.assert_close(products.linear(x, weight), F.linear(x, weight), rtol=1e-5, atol=1e-5)
    weight.data.mul_(2)  # not counted by PyTorch
    products.begin()
    assert_equal(weight, None)
    with torch.enable_grad():
        products.begin()
    assert not products.uses


@torch.no_grad()
def test_weight_at_the_address_of_a_deleted_one() -> None:
    x, linear = torch.randn(MIN_ROWS_TO_PREPACK, 7), Products().linear
    with torch.autocast("cpu", torch.bfloat16):
        for _ in range(20):
            weight = torch.randn(5, 7)
            for _ in range(2):
                torch.testing.assert_close(linear(x, weight), F.linear(x, weight))
            del weight


def test_prepacking_does_not_change_gradients() -> None:
    layer, x = make_layer(7, 5), torch.randn(MIN_ROWS_TO_PREPACK, 7)
    with torch.no_grad():
        layer(x), layer(x)
    assert layer.products.uses
    layer(x).sum().backward()
    layer.weight.data = torch.zeros(5, 7)
    with torch.no_grad():
        torch.testing.assert_close(layer(x), layer.bias.expand(len(x), 5))
    torch.testing.assert_close(layer.weight.grad, x.sum(dim=0).expand(5, 7))


@pytest.mark.usefixtures("default_limits")
@torch.no_grad()
def test_products_in_int8_round_weights_by_output_and_inputs_by_row() -> None:
    products, plain = Products(), Products()
    torch.manual_seed(3)
    weight = torch.randint(-127, 128, (521, 509)).float()
    x = torch.randint(-63, 64, (67, 509)).float()
    weight[:, 0], x[:, 0], bias = 127, -63, torch.randn(521)
    weight, x = weight * 2.0 ** (torch.arange(521)[:, None] % 5), x / 2.0 ** (torch.arange(67)[:, None] % 7)
    x[5] = 0
    products.int8 = True
    _, repeated = (products.linear(x, weight, bias) for _ in range(2))  # the second one is in int8
    expected = F.linear(x.double(), weight.double(), bias.double()).float()
    torch.testing.assert_close(repeated, expected, rtol=1e-5, atol=0.05)
    alone = products.linear(x[11:13] * 1.01, weight, bias)
    torch.testing.assert_close(alone, products.linear(x * 1.01, weight, bias)[11:13], rtol=1e-5, atol=0.01)
    noise = torch.randn(67, 509)
    rounded = products.linear(noise, weight, bias)
    exact = plain.linear(noise, weight, bias)
    assert 0.001 < (rounded - exact).norm() / exact.norm() < 0.02
    products.int8 = False
    torch.testing.assert_close(products.linear(noise, weight, bias), exact)


@pytest.mark.usefixtures("default_limits")
@pytest.mark.parametrize(
    ("rows", "elements", "stored"), [(2, 2**18, 0), (40, 2**17, 0), (40, 2**18, 1), (2, 2**19, 1)]
)
@torch.no_grad()
def test_which_weights_are_stored(rows: int, elements: int, stored: int) -> None:
    products, weight = Products(), torch.zeros(elements // 256, 256)
    for _ in range(2):
        products.linear(torch.zeros(rows, 256), weight)
    assert len([1 for _, product, _ in products.uses.values() if product is not None]) == stored


@pytest.mark.usefixtures("default_limits")
def test_few_products_are_compiled_for_many_batch_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    """oneDNN keeps half a megabyte per compiled product: small weights use MKL, others few row counts."""
    module, products = import_module("attnlab.fast.linear"), set()
    product = module._onednn_product

    def record(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        products.add((x.shape, weight.shape))
        result: Tensor = product(x, weight, bias)
        return result

    monkeypatch.setattr(module, "_onednn_product", record)
    small, large = make_layer(8, 16), make_layer(512, 1024)
    for rows in range(65, 512, 37):
        small(torch.randn(rows, 8)).sum().backward()
    assert not products
    for rows in range(65, 512, 7):
        large(torch.randn(rows, 512)).sum().backward()
    assert len(products) <= 3 * 8 * 3


@pytest.mark.usefixtures("default_limits")
def test_bfloat16_products_have_few_numbers_of_rows() -> None:
    layer, weight = make_layer(16, 8), torch.randn(8, 16).bfloat16()
    for rows in (65, 71):
        x = torch.randn(rows, 1, 16)
        with torch.autocast("cpu", torch.bfloat16):
            output = layer(x)
        assert output.shape == (rows, 1, 8)
        torch.testing.assert_close(
            output.float(), F.linear(x, layer.weight, layer.bias), rtol=0.02, atol=0.02
        )
        left = torch.randn(rows, 8).bfloat16()
        expected = left.float().T @ x[:, 0].bfloat16().float()
        torch.testing.assert_close(outer(left, x[:, 0].bfloat16()).float(), expected, rtol=0.02, atol=0.1)
        assert prepack(weight, None, torch.bfloat16)(x[:, 0].bfloat16()).shape == (rows, 8)


def test_rounded_rows_are_few_and_close() -> None:
    rounded = [round_rows(rows) for rows in range(4097)]
    assert all(rows <= after <= 1.125 * rows + 1 for rows, after in enumerate(rounded))
    assert len({after for after in rounded if after > 64}) == 8 * 6
    assert [round_rows(rows) for rows in (0, 1, 64, 65, 72, 73, 1000)] == [0, 1, 64, 72, 72, 80, 1024]


@torch.no_grad()
def test_shared_rows_are_multiplied_once_until_they_change() -> None:
    x, weight, products = torch.randn(2, 3, 7), torch.randn(5, 7), Products()
    linear = products.linear
    # rows differ: one of each number is used
    products.share_rows(((x,), None), torch.tensor([[3, 1, 3], [0, 3, 3]]))
    for _ in range(3):  # also by prepacked weights
        output = linear(x, weight)
        assert torch.equal(output[0, 0], output[0, 2])
        assert torch.equal(output[0, 0], output[1, 1])
        different = output[[0, 0, 1], [0, 1, 0]]
        assert len(different.unique(dim=0)) == 3
    torch.testing.assert_close(output[[0, 1], [1, 0]], F.linear(x, weight)[[0, 1], [1, 0]])
    torch.testing.assert_close(linear(x.clone(), weight), F.linear(x, weight))  # another tensor
    x.add_(1)
    torch.testing.assert_close(linear(x, weight), F.linear(x, weight))


@torch.no_grad()
def test_reordered_hypotheses_share_their_rows() -> None:
    network = make_network()
    accelerate(network)
    tree = torch.randn(3, 2, 4), ((torch.randn(3, 2),), None)
    sentences, hypotheses = torch.tensor([0, 2]), torch.tensor([[1, 0, 1], [0, 0, 0]])
    selected = network.reorder(tree, sentences, hypotheses)
    assert torch.equal(selected[0], tree[0][sentences[:, None], hypotheses])
    assert torch.equal(selected[1][0][0], tree[1][0][0][sentences[:, None], hypotheses])
    assert selected[1][1] is None
    output = network.products.linear(selected[0], torch.randn(5, 4))
    assert torch.equal(output[0, 0], output[0, 2])
    assert len(network.products.distinct[0].unique()) == 3  # of six rows
    first = network.reorder(torch.randn(3, 1, 5), sentences, torch.zeros(2, 3, dtype=torch.int64))
    assert first.shape == (2, 3, 5)
