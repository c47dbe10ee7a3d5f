import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from omegaconf import DictConfig
from torch import Tensor

from attnlab.config.construct import construct
from attnlab.errors import UserError
from attnlab.nn.attention import Additive, Dot, Hard
from attnlab.nn.attention.hard import one_hot_argmax
from attnlab.nn.attention.normalisers import Entmax
from attnlab.types import Memory
from networks import attend

LN3 = math.log(3)


def make(scores: list[float], padding: int = 0, **options: Any) -> tuple[Hard, Callable[[], Tensor], Tensor]:
    """Return hard attention, a function that computes its weights [S], and states equal to the scores."""
    attention = Hard(query_size=1, memory_size=1, score=Dot, **options)
    states = torch.tensor([*scores, *[99.0] * padding], dtype=torch.float64)[None, :, None].requires_grad_()
    memory = Memory(states, torch.arange(states.size(1))[None] < len(scores))
    query = torch.ones(1, 1, 1, dtype=torch.float64)

    def weigh() -> Tensor:
        return attend(attention, query, memory)[1][0, 0]

    return attention, weigh, states


def test_evaluation_selects_the_largest_score() -> None:
    attention, weigh, _ = make([0.0, 3.0, 1.0], padding=2)
    attention.eval()
    assert weigh().tolist() == [0, 1, 0, 0, 0]


def test_training_samples_from_the_softmax() -> None:
    """Probabilities 1/4 and 3/4; frequencies in 4,000 samples are within 0.03, four standard deviations."""
    _, weigh, _ = make([0.0, LN3], padding=3)
    samples = torch.stack([weigh() for _ in range(4000)])
    assert torch.equal(samples.sum(dim=-1), torch.ones(4000, dtype=torch.float64))
    assert set(samples.flatten().tolist()) == {0.0, 1.0}  # exact: the soft weights cancel
    assert samples.mean(dim=0).tolist() == pytest.approx([1 / 4, 3 / 4, 0, 0, 0], abs=0.03)


@pytest.mark.parametrize("temperature", [0.5, 2.0])
def test_gradients_equal_those_of_the_soft_weights(temperature: float) -> None:
    _, weigh, states = make([0.3, -0.2, 0.9], temperature=temperature, normaliser=Entmax(temperature=0.7))
    values = torch.tensor([2.0, -1.0, 5.0], dtype=torch.float64)
    torch.manual_seed(3)
    (weigh() @ values).backward()

    torch.manual_seed(3)
    scores = torch.tensor([0.3, -0.2, 0.9], dtype=torch.float64, requires_grad=True)
    gumbel = -torch.empty(1, 1, 3, dtype=torch.float64).exponential_().log()[0, 0]
    (((scores + gumbel) / temperature / 0.7).softmax(dim=-1) @ values).backward()
    torch.testing.assert_close(states.grad[0, :, 0], scores.grad)


def test_evaluation_uses_no_random_numbers() -> None:
    attention, weigh, _ = make([0.3, -0.2, 0.9])
    attention.eval()
    before = torch.get_rng_state()
    assert torch.equal(weigh(), weigh())
    assert torch.equal(torch.get_rng_state(), before)
    assert not weigh().requires_grad


def test_one_hot_argmax_respects_the_mask() -> None:
    scores = torch.tensor([[1.0, 3.0, 2.0], [1.0, 3.0, 2.0], [torch.nan] * 3])
    mask = torch.tensor([[True, True, True], [True, False, True], [False] * 3])
    assert one_hot_argmax(scores, mask).tolist() == [[0, 1, 0], [0, 0, 1], [0, 0, 0]]


def test_configuration_selects_the_inner_mechanism(composed: Callable[..., DictConfig]) -> None:
    sizes = {"query_size": 4, "memory_size": 4}
    assert type(construct(composed("attention=hard").attention, **sizes).inner) is Additive
    config = composed("attention=hard", "attention@attention.score=dot")
    assert type(construct(config.attention, **sizes).inner) is Dot
    config = composed("attention=hard", "attention@attention.score=monotonic")
    with pytest.raises(UserError, match="cannot be Monotonic: the inner mechanism must have scores"):
        construct(config.attention, **sizes)
