"""Searches whose steps are replayed, against the ordinary ones, with a recording in place of a CUDA graph."""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from itertools import product
from typing import Any

import pytest
import torch

from attnlab.decoding.beam import beam
from attnlab.decoding.constraints import Constraints
from attnlab.decoding.replay import CHECK
from attnlab.decoding.sampling import Sampler
from attnlab.decoding.search import greedy, sample
from attnlab.fast.graphs import LoopGraphs, Tensors
from attnlab.nn.ensemble import Ensemble
from attnlab.nn.readout import PointerGenerator
from attnlab.nn.seq2seq import Seq2Seq, map_tensors
from attnlab.types import Batch, Hypotheses
from captures import CaptureSafety, Function, record
from networks import ATTENTIONS, ORDERS, TARGET_WORDS, make_network, random_batch, randomise
from plain_search import make

Search = Callable[..., Hypotheses]

SUPPORTED = ("Additive", "Concat", "Dot", "ScaledDot", "General")
SEARCHES: list[Search] = [
    greedy,
    partial(beam, size=1),
    partial(beam, size=3, length_penalty=0.6),
]


def assert_replayed(
    network: Seq2Seq, search: Search, *batches: Batch, searches: int = 1, atol: float = 1e-5
) -> None:
    """Compare searches with recorded steps with ordinary ones, and count the recordings."""
    network.graphs = None
    expected = [search(network, batch) for batch in batches]
    kind = batches[0].source.device.type
    network.graphs = LoopGraphs(record if kind == "cpu" else None, device=kind)
    for batch, ordinary in zip(batches, expected, strict=True):
        assert_equal(search(network, batch), ordinary, atol)
    assert len(network.graphs.searches) == searches


def assert_equal(one: Hypotheses, two: Hypotheses, atol: float = 1e-5) -> None:
    assert one.tokens == two.tokens
    for scores, expected in zip(one.scores, two.scores, strict=True):
        assert scores == pytest.approx(expected, abs=atol)
    for weights, others in zip(one.weights, two.weights, strict=True):
        for rows, expected_rows in zip(weights, others, strict=True):
            torch.testing.assert_close(rows, expected_rows, rtol=0, atol=atol)


@pytest.mark.parametrize("order", ORDERS)
def test_replayed_search_equals_the_ordinary_one(order: str) -> None:
    """Two batches have the same padded size; the third is longer."""
    parts = zip(product(SUPPORTED, ("lstm", "gru")), SEARCHES * 4, strict=False)
    for seed, ((attention, cell), search) in enumerate(parts):
        network = make(seed, ends=seed % 3, order=order, cell=cell, attention=attention, spread=0.5)
        batches = [random_batch(lengths) for lengths in ([3, 7, 1], [6, 2], [9, 4, 4])]
        assert_replayed(network, partial(search, max_length=9), *batches, searches=2)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("order", ORDERS)
def test_replayed_on_a_gpu(order: str) -> None:
    network = make(0, ends=1.0, order=order, spread=0.5).to("cuda")
    batches = [random_batch(lengths).to("cuda") for lengths in ([3, 7, 1], [6, 2], [9, 4, 4])]
    for search in SEARCHES:
        assert_replayed(network, partial(search, max_length=9), *batches, searches=2)
    with torch.no_grad():
        for weight in network.parameters():
            weight *= 0.5
    assert_replayed(network, partial(beam, size=3, max_length=9), *batches, searches=2)


def test_replayed_groups_tiny_vocabularies_and_short_outputs() -> None:
    batches = random_batch([3, 7, 1]), random_batch([2, 5])
    for seed, vocabulary_size, options in (
        (0, TARGET_WORDS, {"size": 4, "groups": 2, "diversity_penalty": 0.5, "max_length": 5}),
        (1, 5, {"size": 7, "max_length": 4}),
        (2, 5, {"size": 6, "groups": 3, "diversity_penalty": 1.0, "max_length": 4, "length_penalty": 0.0}),
        (3, TARGET_WORDS, {"size": 2, "max_length": 1}),
        (4, TARGET_WORDS, {"size": 2, "max_length": 0}),
    ):
        network = make(seed, ends=1.0, vocabulary_size=vocabulary_size)
        assert_replayed(network, partial(beam, **options), *batches)


def test_replayed_search_copies_source_tokens() -> None:
    network = make_network()
    network.readout = PointerGenerator(
        state_size=network.decoder.output_size,
        context_size=network.decoder.context_size,
        input_size=network.target_embedding.size,
        vocabulary_size=TARGET_WORDS,
    )
    randomise(network)
    batches = [random_batch(lengths) for lengths in ([3, 7, 1], [2, 5])]
    batches = [batch._replace(copy_ids=batch.source % 5 + TARGET_WORDS - 2) for batch in batches]
    for size in (1, 2):
        assert_replayed(network.eval(), partial(beam, size=size, max_length=5), *batches)


def test_replayed_in_inference_mode_and_in_mixed_precision() -> None:
    network, batch = make(0, ends=1.0), random_batch([3, 7, 1])
    search = partial(beam, size=3, max_length=5)
    assert_replayed(network, search, batch)
    assert network.graphs is not None
    with torch.inference_mode():
        hypotheses = search(network, batch)
    assert_equal(hypotheses, search(network, batch))
    assert len(network.graphs.searches) == 1
    with torch.autocast("cpu", torch.bfloat16):  # the first state is in bf16, and in a replayed step in fp32
        assert_replayed(network, search, batch, batch, atol=5e-3)


def test_search_ends_when_all_sentences_are_finished() -> None:
    """Rows of padding count as finished."""
    steps = []

    def capture(function: Function) -> tuple[Callable[[], None], Tensors]:
        replay, results = record(function)
        return lambda: (replay(), steps.append(1))[1], results

    network = make(0, ends=50.0)
    network.graphs = LoopGraphs(capture, device="cpu")
    assert greedy(network, random_batch([3, 7, 1]), max_length=50).tokens == [[[]], [[]], [[]]]
    assert len(steps) == CHECK


def test_changed_weights_are_used() -> None:
    network, batch = make(0), random_batch([3, 7, 1])
    search = partial(beam, size=3, max_length=5)
    network.graphs = graphs = LoopGraphs(record, device="cpu")
    for scale in (1.0, 0.5):
        with torch.no_grad():
            for weight in network.parameters():
                weight *= scale
        hypotheses = search(network, batch)
        network.graphs = None
        assert_equal(hypotheses, search(network, batch))
        network.graphs = graphs
    assert len(graphs.searches) == 1


def test_hypotheses_of_an_earlier_batch_stay() -> None:
    """They are no views of the buffers."""
    network, batches = make(0), (random_batch([3, 7, 1]), random_batch([3, 7, 1]))
    network.graphs = LoopGraphs(record, device="cpu")
    first = beam(network, batches[0], size=2, max_length=5)
    before = copy.deepcopy(first)
    beam(network, batches[1], size=2, max_length=5)
    assert_equal(first, before)


def test_other_searches_are_not_replayed() -> None:
    """Other mechanisms, restrictions, plain loops, ensembles, and a device without graphs."""
    batch = random_batch([3, 7, 1])
    search = partial(beam, size=2, max_length=4)
    for attention in set(ATTENTIONS) - set(SUPPORTED):
        assert make(0, attention=attention).search_graphs is None
    assert_replayed(make(0, attention="Coverage"), search, batch, searches=0)
    network = make(0)
    for constraints in (Constraints(min_length=2), Constraints(no_repeat_ngram_size=1)):
        assert_replayed(network, partial(search, constraints=constraints), batch, searches=0)
        greedy_search = partial(greedy, max_length=4, constraints=constraints)
        assert_replayed(network, greedy_search, batch, searches=0)
    assert_replayed(make(0), partial(sample, sampler=Sampler(), max_length=4), batch, searches=0)
    network.fused = False
    assert_replayed(network, search, batch, searches=0)
    network.fused = True
    network.graphs = LoopGraphs(record, device="cuda")
    beam(network, batch, size=2, max_length=4)
    assert not network.graphs.searches
    assert Ensemble([network, network]).search_graphs is None


@pytest.mark.parametrize("order", ORDERS)
def test_captured_step_never_reads_a_tensor_on_the_host(order: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the meta device, whose tensors have no values; it has no autocast."""
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: nullcontext())
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda *_: False)
    monkeypatch.setattr(torch, "get_autocast_dtype", lambda *_: None)
    search = partial(beam, size=4, groups=2, max_length=3)

    class CapturedError(Exception):
        pass

    def capture(function: Function) -> tuple[Callable[[], None], Tensors]:
        with CaptureSafety():
            function()
        raise CapturedError

    for attention in SUPPORTED:
        network = make_network(order=order, attention=attention, layers=2)
        network.graphs = LoopGraphs(capture, device="meta")
        batch = random_batch([3, 7])
        encoded = to_meta(network.encode(batch))
        with pytest.raises(CapturedError):
            search(network.to("meta"), batch.to("meta"), encoded=encoded)


def to_meta(tree: Any) -> Any:
    """Move every tensor of a nested tuple to the meta device."""
    return map_tensors(lambda part: part.to("meta"), tree)
