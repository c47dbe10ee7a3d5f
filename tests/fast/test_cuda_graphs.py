"""Graphs of the decoder's loop, with a capture on the CPU that repeats the recorded operations."""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from test_fused_equals_plain import results
from torch import Tensor

from attnlab.fast import Kernels, dispatch
from attnlab.fast.graphs import GraphedUnroll, LoopGraphs, Tensors
from attnlab.nn.seq2seq import Seq2Seq
from attnlab.types import Memory
from captures import CaptureSafety, Function, record
from networks import STATE, TARGET_WIDTH, UNITS, make_network, random_batch


def make(order: str, cell: str = "lstm", **settings: Any) -> Seq2Seq:
    network = make_network(order=order, cell=cell, layers=2, spread=0.7, **settings).double().train()
    network.graphs = LoopGraphs(record, device="cpu")
    return network


def assert_equals_plain(network: Seq2Seq, batch: Any, forced: Tensor | None = None) -> None:
    (graphed, graphed_gradients), (plain, plain_gradients) = (
        results(network, batch, fused=fused, forced=forced) for fused in (True, False)
    )
    torch.testing.assert_close(graphed, plain, rtol=0, atol=1e-12)
    torch.testing.assert_close(graphed_gradients, plain_gradients, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize(("order", "cell"), [("bahdanau", "lstm"), ("luong with input feeding", "gru")])
def test_replayed_loop_equals_plain(order: str, cell: str) -> None:
    network = make(order, cell, layer_norm=True, recurrent_dropout=0.5)
    for sources, targets in (([3, 7, 1], [4, 5, 2]), ([2, 8], [6, 6]), ([5, 5, 5], [4, 5, 2])):
        assert_equals_plain(network, random_batch(sources, targets))
    assert network.graphs is not None
    assert len(network.graphs.loops) == 1  # all three are padded to 8 x 8 x 8
    assert_equals_plain(network, random_batch([9, 2], [9, 1]))
    assert len(network.graphs.loops) == 2
    batch = random_batch([3, 7, 1], [4, 5, 2])
    assert_equals_plain(network, batch, torch.rand(batch.inputs.shape) < 0.5)
    with torch.no_grad():
        torch.manual_seed(1)
        first = network(batch).features
        torch.manual_seed(1)
        network.graphs = None
        torch.testing.assert_close(network(batch).features, first, rtol=0, atol=1e-12)


def test_training_replays_a_loop_that_was_captured_in_validation() -> None:
    network, batch = make("bahdanau"), random_batch([3, 7], [4, 2])
    with torch.inference_mode():
        network(batch)
    assert_equals_plain(network, batch)
    assert network.graphs is not None
    assert len(network.graphs.loops) == 1


def test_second_forward_pass_before_the_backward_pass_is_not_replayed() -> None:
    """The tensors saved by the first forward pass stay valid."""
    network = make("bahdanau")
    batches = random_batch([3, 7], [4, 2]), random_batch([3, 7], [4, 2])
    weights = list(network.parameters())
    expected = []
    for batch in batches:
        loss = network(batch).features.square().sum()
        expected.append(torch.autograd.grad(loss, weights, allow_unused=True))
    losses = [network(batch).features.square().sum() for batch in batches]
    for loss, gradients in zip(losses, expected, strict=True):
        torch.testing.assert_close(torch.autograd.grad(loss, weights, allow_unused=True), gradients)
    assert network.graphs is not None
    assert network.graphs.waiting is None
    discarded = network(batches[0]).features
    assert network.graphs.waiting is not None
    del discarded  # without a backward pass
    assert network.graphs.waiting() is None


def test_copies_have_no_graphs() -> None:
    network = make("bahdanau")
    network(random_batch([3], [4]))
    copied = copy.deepcopy(network)
    assert network.graphs is not None
    assert network.graphs.loops
    assert copied.graphs is not None
    assert not copied.graphs.loops


def test_capture_safety_refuses_reads_and_copies() -> None:
    x = torch.ones(3)
    for unsafe in (lambda: x.sum().item(), lambda: x[x > 0], lambda: x.nonzero(), lambda: x.to("meta")):
        with CaptureSafety(), pytest.raises(AssertionError):
            unsafe()


@pytest.mark.parametrize(
    ("order", "cell", "attention"),
    [("bahdanau", "lstm", "Additive"), ("luong with input feeding", "gru", "General")],
)
def test_captured_loop_never_reads_a_tensor_on_the_host(
    order: str, cell: str, attention: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the meta device, whose tensors have no values; it has no autocast."""
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: nullcontext())
    captured = []

    def capture(function: Function) -> tuple[Callable[[], None], Tensors]:
        with CaptureSafety():
            results = function()
        captured.append(len(results))
        return lambda: None, results

    settings = {"layer_norm": True, "recurrent_dropout": 0.5}
    network = make_network(order=order, cell=cell, attention=attention, layers=2, **settings).train()
    decoder, width = network.decoder.to("meta"), 2 * UNITS
    B, S, T = 3, 5, 4
    states, mask = torch.zeros(B, S, width, device="meta"), torch.ones(B, S, dtype=torch.bool, device="meta")
    memory = Memory(states=states, mask=mask, hidden=None, cell=None)
    shape = decoder.state_shape
    zeros = torch.zeros(B, 1, STATE, device="meta")
    state = decoder.begin(((zeros,) * shape.states_per_layer,) * shape.layers, memory)
    labels = torch.ones(B, T, dtype=torch.int64, device="meta")
    with Kernels(fused=True, graphs=LoopGraphs(capture, device="meta")).active():
        unroll = dispatch.unroll(decoder, state, memory, decoder.attention.project(memory), labels)
        assert isinstance(unroll, GraphedUnroll)
        output = unroll.finish(torch.zeros(B, T, TARGET_WIDTH, device="meta"))
    assert output.states.shape == (B, T, STATE)
    output.states.sum().backward()
    assert len(captured) == 2
