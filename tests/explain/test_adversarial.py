"""Adversarial weights: hand values of divergences, networks that do not need their weights."""

import pytest
import torch

from attnlab.explain.adversarial import MovedWeights, attack, jensen_shannon
from attnlab.nn.attention import Differential, Dot
from attnlab.nn.attention.interventions import intervene
from attnlab.types import Memory
from networks import forced_logits, make_attention, make_network, random_batch, randomise


def test_divergence_by_hand() -> None:
    first = torch.tensor([[1.0, 0.0], [0.5, 0.5], [2.0, 2.0], [1.0, 0.0]])
    second = torch.tensor([[0.0, 1.0], [0.5, 0.5], [1.0, 0.0], [0.5, 0.5]])
    # H(¾, ¼) - ½ H(½, ½) = 0.8113 - 0.5 bits
    expected = [1.0, 0.0, 0.311278, 0.311278]
    assert jensen_shannon(first, second).tolist() == pytest.approx(expected, abs=1e-6)


def test_weights_are_moved_towards_candidates() -> None:
    inner = make_attention("Dot", 7, 7)
    memory = Memory(torch.randn(1, 3, 7), torch.ones(1, 3, dtype=torch.bool))
    query = torch.randn(1, 1, 7)
    _, own, _ = inner(query, memory, inner.project(memory), None)
    moved = MovedWeights(inner, torch.tensor([[0.75]]), torch.tensor([[[0.0, 0.25, 0.0]]]))
    context, weights, _ = moved(query, memory, inner.project(memory), None)
    torch.testing.assert_close(weights, 0.75 * own + 0.25 * torch.tensor([0.0, 1.0, 0.0]))
    torch.testing.assert_close(context, weights @ memory.states)


def test_weights_that_are_not_moved_give_the_same_context() -> None:
    inner = Differential(query_size=7, memory_size=7, score=Dot)
    randomise(inner)
    memory = Memory(torch.randn(1, 3, 7), torch.ones(1, 3, dtype=torch.bool))
    query, keys = torch.randn(1, 1, 7), inner.project(memory)
    same = MovedWeights(inner, torch.ones(1, 1), torch.zeros(1, 1, 3))
    for moved, own in zip(
        same(query, memory, keys, None)[:2], inner(query, memory, keys, None)[:2], strict=True
    ):
        torch.testing.assert_close(moved, own)


def test_network_that_ignores_its_context_has_the_largest_divergence() -> None:
    network = make_network(attention="Mean", order="luong", parts=("input",))
    batch = random_batch([2, 4], [2, 3])
    result = attack(network, batch, epsilon=0.0)
    assert result.uniform_distance.tolist() == [0.0] * 5
    # of a uniform distribution over S from one of its tokens: H of the mean - ½ ln S
    of_two, of_four = 0.311278, 0.548795
    assert result.divergence.tolist() == pytest.approx([of_two] * 2 + [of_four] * 3, abs=1e-6)


def test_distance_with_uniform_weights_equals_that_of_the_intervention() -> None:
    """Without input feeding, the weights of one position do not change the outputs of another."""
    network = make_network(attention="Additive", order="luong")
    batch = random_batch([5, 3], [3, 2])
    own = forced_logits(network, batch).softmax(dim=-1)
    result = attack(network, batch, epsilon=0.1)
    network.decoder.attention = intervene(network.decoder.attention, "uniform")
    uniform = forced_logits(network, batch).softmax(dim=-1)
    expected = (own - uniform).abs().sum(dim=-1)[batch.target_text] / 2
    torch.testing.assert_close(result.uniform_distance, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("attention", "order"), [("Additive", "bahdanau"), ("MultiHead", "luong"), ("LocationSensitive", "gnmt")]
)
def test_larger_tolerance_gives_larger_divergence(
    attention: str, order: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = make_network(attention=attention, order=order)
    batch = random_batch([5, 3], [3, 2])
    own = network.decoder.attention
    strict, loose, unlimited = (attack(network, batch, epsilon=e) for e in (0.0, 0.1, 1.0))
    assert network.decoder.attention is own
    assert (strict.divergence <= loose.divergence).all()
    assert (loose.divergence <= unlimited.divergence).all()
    assert (unlimited.divergence > 0).all()
    monkeypatch.setattr("attnlab.explain.adversarial.MAX_OUTPUTS", 1)  # one sentence at a time
    split = attack(network, batch, epsilon=0.1)
    torch.testing.assert_close(split.divergence, loose.divergence, rtol=1e-4, atol=1e-5)
    assert (unlimited.uniform_distance > 0).any()
    alone = attack(network, batch._replace(**{  # the second sentence without padding
        "source": batch.source[1:, :3], "source_lengths": batch.source_lengths[1:],
        "target": batch.target[1:, :4], "indices": batch.indices[1:],
    }), epsilon=0.1)  # fmt: skip
    torch.testing.assert_close(alone.divergence, loose.divergence[3:], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(alone.uniform_distance, loose.uniform_distance[3:], rtol=1e-4, atol=1e-5)
