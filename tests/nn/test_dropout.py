import pytest
import torch

from attnlab.nn.dropout import Dropout


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_dropout_rate_and_scale(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x = torch.ones(200, 500, dtype=dtype, requires_grad=True)
    dropped = Dropout(0.2).train()(x)
    assert dropped.dtype == dtype
    assert dropped.unique().tolist() == [0.0, 1.25]
    # 100,000 draws: five standard deviations are 0.0063
    assert (dropped == 0).float().mean().item() == pytest.approx(0.2, abs=0.0064)
    dropped.sum().backward()
    assert torch.equal(x.grad, dropped.detach())


@pytest.mark.parametrize("p", [0.0, 1.0])
def test_probabilities_zero_and_one(p: float) -> None:
    x = torch.ones(3, 5)
    assert torch.equal(Dropout(p).train()(x), x * (1 - p))


def test_no_dropout_in_evaluation() -> None:
    x = torch.ones(3, 5)
    assert torch.equal(Dropout(0.5).eval()(x), x)


def test_same_seed_gives_the_same_dropout() -> None:
    results = []
    for _ in range(2):
        torch.manual_seed(3)
        results.append(Dropout(0.5).train()(torch.ones(7, 11)))
    assert torch.equal(*results)


def test_dropout_on_a_cpu_compares_uniform_numbers_with_p() -> None:
    x = torch.arange(1.0, 13.0)
    torch.manual_seed(5)
    dropped = Dropout(0.25).train()(x)
    torch.manual_seed(5)
    torch.testing.assert_close(dropped, torch.where(torch.rand(12) >= 0.25, x / 0.75, 0.0))
