"""CUDA graphs give the results of the same code without graphs. These tests need a GPU."""

import copy
from collections.abc import Iterator

import pytest
import torch
import torch.nn.functional as F

from attnlab.decoding.beam import beam
from attnlab.decoding.search import greedy
from attnlab.fast import graphs, make_plain
from attnlab.nn.seq2seq import Seq2Seq
from attnlab.types import PAD, Batch
from networks import make_network, random_batch

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

SYSTEMS = [
    ("bahdanau", "Additive", "lstm"),
    ("luong with input feeding", "Dot", "gru"),
    ("luong", "General", "lstm"),
]
LENGTHS = ([7, 5, 6, 3], [6, 2, 5, 4])


@pytest.fixture(autouse=True)
def exact(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    graphs.TRAINING.clear()
    yield
    graphs.TRAINING.clear()


def plain_copy(network: Seq2Seq) -> Seq2Seq:
    plain = copy.deepcopy(network)
    make_plain(plain)
    for part in plain.modules():
        if isinstance(part, torch.nn.RNNBase):
            part.flatten_parameters()  # cuDNN warns of copied weights, which do not lie side by side
    return plain


def loss_of(network: Seq2Seq, batch: Batch) -> torch.Tensor:
    logits = network.logits(network(batch), batch.copy_ids)
    return F.cross_entropy(logits.flatten(0, 1), batch.labels.flatten(), ignore_index=PAD)


@pytest.mark.parametrize(("order", "attention", "cell"), SYSTEMS)
def test_training_with_graphs_equals_plain_training(order: str, attention: str, cell: str) -> None:
    network = make_network(attention=attention, order=order, cell=cell, layers=3, spread=0.3).cuda().train()
    plain = plain_copy(network)
    losses = {}
    for name, trained in {"graphs": network, "plain": plain}.items():
        torch.manual_seed(3)
        optimizer = torch.optim.SGD(trained.parameters(), lr=0.05)
        losses[name] = []
        for _ in range(7):
            first, second = (random_batch(*LENGTHS).to("cuda") for _ in range(2))
            # two passes of the same shapes before one backward pass
            loss = loss_of(trained, first) + 2 * loss_of(trained, second)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses[name].append(loss.item())
    assert sum(graph is not None for graph in graphs.TRAINING.graphs.values()) >= 2
    torch.testing.assert_close(losses["graphs"], losses["plain"], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(network.state_dict(), plain.state_dict(), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(("order", "attention", "cell"), SYSTEMS)
@pytest.mark.parametrize("size", [1, 3])
def test_search_with_graphs_equals_plain_search(size: int, order: str, attention: str, cell: str) -> None:
    network = make_network(attention=attention, order=order, cell=cell, layers=2).cuda().eval()
    plain = plain_copy(network)
    for seed in range(4):
        batch = random_batch([7, 5, 6, 3, 4]).to("cuda")
        with torch.no_grad():
            for part, other in zip(network.parameters(), plain.parameters(), strict=True):
                torch.manual_seed(seed)
                part += 0.1 * torch.randn_like(part)
                other.copy_(part)
        found, expected = (beam(searched, batch, size=size, max_length=9) for searched in (network, plain))
        assert found.tokens == expected.tokens
        torch.testing.assert_close(found.scores, expected.scores, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(found.weights, expected.weights, rtol=1e-4, atol=1e-4)
    recorded = network.products.graphs.cache.graphs  # type: ignore[union-attr]
    assert any(graph is not None for graph in recorded.values())


def test_moved_weights_are_read_where_they_are() -> None:
    network = make_network(attention="Additive").cuda().eval()
    batch = random_batch([7, 5, 6, 3]).to("cuda")
    greedy(network, batch, max_length=9)
    with torch.no_grad():
        for part in network.parameters():
            part.data = -part.data
    plain = plain_copy(network)
    assert greedy(network, batch, max_length=9).tokens == greedy(plain, batch, max_length=9).tokens
