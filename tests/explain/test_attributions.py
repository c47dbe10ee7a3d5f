"""Gradients, integrated gradients and erasure: hand values, completeness, batching and padding."""

import math

import pytest
import torch
from torch import Tensor
from torch.nn.functional import pad

from attnlab.explain.attributions import (
    METHODS,
    attribute,
    erased,
    gradient_norms,
    integrated_gradients,
    leave_one_out,
    relevance_map,
)
from attnlab.explain.units import Units, units_of
from attnlab.nn.seq2seq import Seq2Seq
from attnlab.types import PAD, Batch
from logistic_network import TOKEN, Toy, toy_batch
from networks import make_batch, make_network, random_batch


def sigmoid(z: float) -> float:
    return 1 / (1 + math.exp(-z))


Z, SHARES = 3.1, (2.0, 0.6, 0.5)
"""z of the toy batch, and what each token adds to it."""


def test_attributions_of_a_linear_network_equal_hand_values() -> None:
    network = Toy()
    units = units_of(network, toy_batch())
    assert units.tokens.tolist() == [TOKEN]
    assert units.log_p.exp().tolist() == pytest.approx([sigmoid(Z)])
    assert units.weights.tolist() == [pytest.approx([0.5, 0.3, 0.2])]

    # ∂ log σ(z) / ∂x_j = (1 - σ(z)) α_j w, and ‖w‖ = 5
    expected = [(1 - sigmoid(Z)) * alpha * 5 for alpha in (0.5, 0.3, 0.2)]
    assert gradient_norms(network, units).tolist() == [pytest.approx(expected)]

    # along u x, ∂f / ∂x_j is proportional to α_j w: a_j is a share of f(x) - f(0) = log σ(z) - log ½
    gain = math.log(sigmoid(Z)) - math.log(0.5)
    values = integrated_gradients(network, units, steps=8)
    assert values.tolist() == [pytest.approx([gain * share / Z for share in SHARES], rel=1e-5)]

    expected = [sigmoid(Z) - sigmoid(Z - share) for share in SHARES]
    assert leave_one_out(network, units).tolist() == [pytest.approx(expected, rel=1e-5)]
    assert all(parameter.requires_grad for parameter in network.parameters())


def test_map_of_a_target_has_shares_or_drops_of_the_given_tokens() -> None:
    network, batch = Toy(), toy_batch()
    for method in ("gradient", "integrated_gradients", "erasure"):
        values = relevance_map(network, batch, method)
        assert values.shape == (2, 3)  # the token and EOS
        if method == "erasure":
            # without a token z falls, and p(EOS) = σ(-z) rises
            assert values[0].tolist() == pytest.approx(
                [sigmoid(Z) - sigmoid(Z - share) for share in SHARES], rel=1e-5
            )
            assert values[1].tolist() == [0.0] * 3
        else:
            shares = [0.5, 0.3, 0.2] if method == "gradient" else [share / Z for share in SHARES]
            assert values.tolist() == [pytest.approx(shares, rel=1e-4)] * 2


def with_padding(batch: Batch, source: int, target: int) -> Batch:
    return batch._replace(
        source=pad(batch.source, (0, source), value=PAD), target=pad(batch.target, (0, target), value=PAD)
    )


def measured(network: Seq2Seq, units: Units) -> list[Tensor]:
    return [attribute(network, units, method, steps=2) for method in METHODS]


@pytest.mark.parametrize(
    ("attention", "order", "cell"),
    [
        ("Additive", "bahdanau", "lstm"),
        ("MultiHead", "luong", "gru"),
        ("Shift", "luong with input feeding", "lstm"),
    ],
)
def test_batch_mates_and_padding_change_nothing(attention: str, order: str, cell: str) -> None:
    network = make_network(attention=attention, order=order, cell=cell)
    batch = random_batch([3, 5, 2, 4], [2, 4, 1, 3])
    units = units_of(network, with_padding(batch, 2, 1))
    together = measured(network, units)
    for row in range(4):
        S, T = int(batch.source_lengths[row]), int(batch.target_text[row].sum())
        alone = make_batch([batch.source[row, :S].tolist()], [batch.target[row, 1 : T + 1].tolist()])
        single = units_of(network, alone)
        places = (units.batch.indices == row).nonzero()[:, 0]
        assert units.positions[places].tolist() == single.positions.tolist() == list(range(T))[::-1]
        for ours, theirs in zip(together, measured(network, single), strict=True):
            ours = ours[places]
            if ours.dim() == 2:
                assert not ours[:, S:].any()
                ours = ours[:, :S]
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_integrated_gradients_of_a_network_are_complete() -> None:
    network = make_network(spread=0.5)
    units = units_of(network, random_batch([5, 3], [3, 2]))
    values = integrated_gradients(network, units, steps=16)
    assert values.abs().sum() > 0.01
    erased_source = erased(network, units, torch.zeros_like(units.mask)[:, None])[:, 0].log()
    torch.testing.assert_close(values.sum(dim=-1), units.log_p - erased_source, rtol=0, atol=1e-4)
