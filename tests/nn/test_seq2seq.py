from typing import NamedTuple

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from attnlab.decoding.search import greedy
from attnlab.nn.seq2seq import select
from attnlab.types import PAD
from networks import (
    DECIDING,
    MIXED,
    ORDERS,
    SOURCE_WORDS,
    TARGET_WORDS,
    assert_sampled_inputs_are_those_of_greedy_search,
    assert_sentences_are_independent,
    forced_logits,
    make_network,
    random_batch,
    random_rows,
    stepwise,
)

SENTENCES = st.lists(st.tuples(st.integers(1, 7), st.integers(0, 5)), min_size=1, max_size=4)


@pytest.mark.parametrize(("order", "attention"), MIXED)
@given(lengths=SENTENCES, extra=st.integers(0, 3), seed=st.integers(0, 1000))
@settings(max_examples=4)
@torch.no_grad()
def test_padding_and_other_sentences_change_no_logit(
    order: str, attention: str, lengths: list[tuple[int, int]], extra: int, seed: int
) -> None:
    network = make_network(order=order, attention=attention, seed=seed)
    sources = random_rows([length for length, _ in lengths], SOURCE_WORDS)
    targets = random_rows([length for _, length in lengths], TARGET_WORDS)
    assert_sentences_are_independent(network, sources, targets, padding=extra)


@torch.no_grad()
def test_logits_of_selected_positions() -> None:
    network = make_network()
    batch = random_batch([3, 7], [4, 2])
    decoded, real = network(batch), batch.labels != PAD
    assert real.sum() == 8  # with EOS
    expected = network.logits(decoded, None)[real]
    torch.testing.assert_close(network.logits(decoded, None, real), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize(("order", "attention"), MIXED)
def test_every_parameter_gets_a_gradient(order: str, attention: str) -> None:
    network = make_network(order=order, attention=attention, layers=2, spread=0.5).train()
    forced_logits(network, random_batch([3, 7, 5], [4, 2, 5])).square().sum().backward()
    idle = {name for name, parameter in network.named_parameters() if not parameter.grad.any()}
    assert idle == set()


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("seed", range(5))
@torch.no_grad()
def test_sampling_probability_one_equals_greedy_search(order: str, seed: int) -> None:
    network = make_network(order=order, seed=seed)
    assert_sampled_inputs_are_those_of_greedy_search(network, random_batch([3, 7, 5], [6, 6, 6]))


@pytest.mark.parametrize("order", ORDERS)
def test_sampled_tokens_are_read_under_the_same_embedding_dropout(order: str) -> None:
    network = make_network(order=order, layers=2)
    network.target_embedding.dropout.p = 0.5
    batch = random_batch([3, 7, 5], [4, 2, 5])
    seen: list[Tensor] = []
    network.target_embedding.register_forward_hook(lambda module, inputs, output: seen.append(output))
    network(batch, torch.zeros_like(batch.inputs, dtype=torch.bool))
    *one_by_one, whole = seen
    torch.testing.assert_close(torch.cat(one_by_one, dim=1), whole[:, : len(one_by_one)], rtol=0, atol=0)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("cell", ["lstm", "gru"])
@pytest.mark.parametrize("lengths", [[4, 2, 5], [9] * 3 + [6] * 7 + [2] * 10])
def test_sampling_equals_the_stepwise_loop_with_gradients(order: str, cell: str, lengths: list[int]) -> None:
    network = make_network(order=order, cell=cell, layers=2)
    batch = random_batch([3 + 3 * i % 5 for i in range(len(lengths))], lengths)
    forced = torch.rand(batch.inputs.shape, generator=torch.Generator().manual_seed(1)) < 0.5
    results = []
    for logits in (network.readout(network(batch, forced).features), stepwise(network, batch, forced)[0]):
        network.zero_grad()
        loss = F.cross_entropy(logits.flatten(0, 1), batch.labels.flatten(), ignore_index=PAD)
        loss.backward()
        results.append([loss.detach(), *(p.grad.clone() for p in network.parameters() if p.grad is not None)])
    assert len(results[0]) == len(results[1])
    for one, two in zip(*results, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-4, atol=max(1e-6, 1e-4 * float(two.abs().max())))


def test_sampling_in_mixed_precision_keeps_every_gradient() -> None:
    network = make_network()
    batch = random_batch([3, 5], [4, 4])
    with torch.autocast("cpu", torch.bfloat16):
        decoded = network(batch, torch.zeros_like(batch.inputs, dtype=torch.bool))
        loss = network.readout(decoded.features).float().square().sum()
    loss.backward()
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in network.parameters())


class Pair(NamedTuple):
    left: Tensor
    right: tuple[Tensor, None]


def test_select_keeps_the_structure() -> None:
    tree = Pair(torch.arange(3), (torch.arange(6).view(3, 2), None))
    kept = select(tree, torch.tensor([2, 0]))
    assert isinstance(kept, Pair)
    assert kept.left.tolist() == [2, 0]
    assert kept.right[0].tolist() == [[4, 5], [0, 1]]
    assert kept.right[1] is None


def test_select_by_sentence_and_hypothesis() -> None:
    (kept,) = select((torch.arange(6).view(2, 3),), torch.tensor([[1], [0]]), torch.tensor([[2, 2], [0, 1]]))
    assert kept.tolist() == [[5, 5], [0, 1]]


@pytest.mark.parametrize(("order", "attention"), MIXED)
def test_mixed_precision(order: str, attention: str) -> None:
    cell = "gru" if order == "luong" else "lstm"
    network = make_network(order=order, attention=attention, cell=cell, spread=0.5)
    batch = random_batch([3, 7, 5], [4, 2, 5])
    with torch.autocast("cpu", torch.bfloat16):
        decoded = network(batch)
        sampled = network(batch, torch.ones_like(batch.inputs, dtype=torch.bool))
        logits = network.readout(decoded.features)
        hypotheses = greedy(network, batch, max_length=5)
    assert logits.dtype == torch.bfloat16
    torch.testing.assert_close(logits.float(), forced_logits(network, batch), rtol=0, atol=0.1)
    torch.testing.assert_close(decoded.features.float(), sampled.features.float(), rtol=0, atol=0.1)
    assert len(hypotheses.tokens) == 3
    logits.float().square().sum().backward()
    gradients = [parameter.grad for parameter in network.parameters()]
    assert attention in DECIDING or None not in gradients
    assert all(gradient.isfinite().all() for gradient in gradients if gradient is not None)
