import pytest
import torch
from torch import Tensor

from attnlab.nn.scan import scan

B, U = 2, 5


def sequential(decays: Tensor, inputs: Tensor) -> Tensor:
    state, states = torch.zeros_like(inputs[:, 0]), []
    for decay, value in zip(decays.unbind(1), inputs.unbind(1), strict=True):
        state = decay * state + value
        states.append(state)
    return torch.stack(states, dim=1)


@pytest.mark.parametrize("steps", [1, 2, 5, 8, 300])
def test_scan_equals_the_loop(steps: int) -> None:
    decays, inputs = torch.rand(B, steps, U), torch.randn(B, steps, U)
    torch.testing.assert_close(scan(decays, inputs), sequential(decays, inputs), rtol=1e-5, atol=1e-5)


def test_scan_is_exact_where_the_sum_of_logarithms_is_not() -> None:
    """Gates near 1 make the products of decays vanish, which logarithms would have to subtract again."""
    decays, inputs = torch.rand(B, 512, U) * 1e-3, torch.rand(B, 512, U)
    exact = sequential(decays.double(), inputs.double())
    torch.testing.assert_close(scan(decays, inputs).double(), exact, rtol=1e-6, atol=1e-6)
