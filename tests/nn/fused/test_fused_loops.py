"""The loops that are written by hand, against the plain ones: the same numbers, and the same gradients."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.autograd import gradcheck

from attnlab.nn.attention import Additive, Mean
from attnlab.nn.attention.baselines import is_constant
from attnlab.nn.attention.normalisers import Softmax, Sparsemax
from attnlab.nn.decoders.recurrent import BahdanauDecoder
from attnlab.nn.decoders.unroll import DecoderOutput, ReadingByHand
from attnlab.nn.encoders.recurrent import Encoder
from attnlab.nn.fused import Loop, Rows, Scores, Weights, recur, sum_energies
from attnlab.nn.fused.scores import fused_scores
from attnlab.nn.seq2seq import Seq2Seq
from attnlab.types import PAD, Batch
from networks import ORDERS, make_network, random_batch, randomise

B, T, S, D, A, H = 2, 3, 5, 7, 2, 3
MECHANISMS = ("Additive", "Concat", "Dot", "ScaledDot", "General", "NoAttention", "Final", "Mean")
GATES = {"lstm": 4, "gru": 3}
STATES = {"lstm": 2, "gru": 1}


# ---------------------------------------------------------------------------- against the single step


def all_at_once(network: Seq2Seq, batch: Batch) -> DecoderOutput:
    encoded, state = network.encode(batch)
    return network.decoder(network.target_embedding(batch.inputs), state, encoded.memory, encoded.keys)


def step_by_step(network: Seq2Seq, batch: Batch) -> DecoderOutput:
    encoded, state = network.encode(batch)
    outputs = []
    for embedded in network.target_embedding(batch.inputs).split(1, dim=1):
        output, state = network.decoder.step(embedded, state, encoded.memory, encoded.keys)
        outputs.append(output)
    return DecoderOutput(*(torch.cat(parts, dim=1) for parts in zip(*outputs, strict=True)))


def gradients(network: Seq2Seq, output: DecoderOutput) -> dict[str, Tensor]:
    """Of a loss that sees states, contexts and weights alike."""
    network.zero_grad()
    generator = torch.Generator().manual_seed(5)
    loss = sum((part * torch.randn(part.shape, generator=generator)).sum() for part in output)
    assert isinstance(loss, Tensor)
    loss.backward()
    return {name: p.grad.clone() for name, p in network.named_parameters() if p.grad is not None}


def assert_same(network: Seq2Seq, batch: Batch) -> None:
    fast, plain = all_at_once(network, batch), step_by_step(network, batch)
    for one, two in zip(fast, plain, strict=True):
        torch.testing.assert_close(one, two, rtol=0, atol=1e-6)
    by_hand, by_autograd = gradients(network, fast), gradients(network, plain)
    assert by_hand.keys() == by_autograd.keys()
    for name, gradient in by_autograd.items():
        torch.testing.assert_close(
            by_hand[name], gradient, rtol=1e-4, atol=1e-4 * float(gradient.abs().max()), msg=name
        )


@pytest.mark.parametrize(
    ("order", "cell", "layers", "attention"), list(product(ORDERS, ["lstm", "gru"], [1, 2], MECHANISMS))
)
def test_a_target_read_at_once_is_its_steps(order: str, cell: str, layers: int, attention: str) -> None:
    network = make_network(order=order, cell=cell, layers=layers, attention=attention, spread=0.7)
    assert_same(network, random_batch([3, 7, 1], [4, 2, 5]))


@pytest.mark.parametrize(
    ("order", "cell", "layers", "attention", "lengths"),
    list(product(ORDERS, ["lstm", "gru"], [1, 2], ["Additive", "Dot"], [[5, 4, 2], [2, 5, 4]])),
)
def test_sentences_that_have_ended_are_not_read(
    order: str, cell: str, layers: int, attention: str, lengths: list[int]
) -> None:
    network = make_network(order=order, cell=cell, layers=layers, attention=attention, spread=0.7)
    batch = random_batch([3, 7, 1], lengths)
    real = batch.labels != PAD
    counts = [max(step.nonzero()).item() + 1 for step in real.T]
    encoded, state = network.encode(batch)
    reading = network.decoder.reading(state, encoded.memory, encoded.keys, counts)
    found = reading.finish(network.target_embedding(batch.inputs))
    expected = step_by_step(network, batch)
    unread = torch.arange(len(lengths))[:, None] >= torch.tensor(counts)  # [B, T]
    if isinstance(reading, ReadingByHand):
        assert all(not part[unread].any() for part in found)
    kept = [DecoderOutput(*(part * real[..., None] for part in output)) for output in (found, expected)]
    for one, two in zip(*kept, strict=True):
        torch.testing.assert_close(one, two, rtol=0, atol=1e-6)
    by_hand, by_autograd = (gradients(network, output) for output in kept)
    assert by_hand.keys() == by_autograd.keys()
    for name, gradient in by_autograd.items():
        torch.testing.assert_close(
            by_hand[name], gradient, rtol=1e-4, atol=1e-4 * float(gradient.abs().max()), msg=name
        )


@given(counts=st.lists(st.integers(1, 4), min_size=1, max_size=5))
def test_rows_packed_and_padded(counts: list[int]) -> None:
    counts.sort(reverse=True)
    rows = Rows(counts, 4)
    padded = torch.arange(1.0, len(counts) * 4 * 2 + 1).view(len(counts), 4, 2)
    packed = rows.pack(padded)
    assert len(packed) == rows.total == sum(counts)
    for step, count, rows_of_step in zip(padded, counts, rows.slices, strict=True):
        assert torch.equal(packed[rows_of_step], step[:count])
    for step, count, back in zip(padded, counts, rows.pad(packed), strict=True):
        assert torch.equal(back[:count], step[:count])
        assert not back[count:].any()


@pytest.mark.parametrize("order", ORDERS)
def test_a_target_of_one_token(order: str) -> None:
    assert_same(make_network(order=order), random_batch([1, 1], [0, 0]))


@pytest.mark.parametrize("order", ["bahdanau", "luong with input feeding"])
def test_a_temperature(order: str) -> None:
    network = make_network(order=order)
    network.decoder.attention.normaliser = Softmax(temperature=0.3)
    assert_same(network, random_batch([3, 7, 1], [4, 2, 5]))


class Halving(nn.Dropout):
    """A dropout without chance."""

    def forward(self, x: Tensor) -> Tensor:
        return x / 2


@pytest.mark.parametrize("order", ["bahdanau", "luong", "luong with input feeding"])
def test_dropout_between_layers(order: str) -> None:
    network = make_network(order=order, layers=2)
    network.decoder.cells.dropout = Halving(0.5)
    assert_same(network.train(), random_batch([3, 7, 1], [4, 2, 5]))


def test_dropout_is_drawn_anew_for_every_number() -> None:
    decoder = BahdanauDecoder(
        input_size=2, attention=Mean(query_size=H, memory_size=D), size=H, layers=2, dropout=0.5
    )
    assert decoder.cells.dropout.p == 0.5
    network = make_network(order="bahdanau", layers=2).train()
    network.decoder.cells.dropout.p = 0.5
    batch = random_batch([3, 7], [4, 2])
    first, second = all_at_once(network, batch), all_at_once(network, batch)
    assert not torch.equal(first.states, second.states)


def test_only_softmax_is_written_by_hand() -> None:
    network = make_network()
    network.decoder.attention.normaliser = Sparsemax()
    assert fused_scores(network.decoder.attention) is None
    assert_same(network, random_batch([3, 7, 1], [4, 2, 5]))


def test_a_variant_with_scores_of_its_own_is_not_taken_for_its_parent() -> None:
    class Doubled(Additive):
        def score(self, query: Tensor, keys: Tensor, state: Any) -> Tensor:
            return 2 * super().score(query, keys, state)

    class Heavier(Mean):
        def score(self, query: Tensor, keys: Tensor, state: Any) -> Tensor:
            return query.sum(dim=-1, keepdim=True) * keys.sum(dim=-1)[:, None]

    assert fused_scores(Additive(query_size=H, memory_size=D, size=A)) is not None
    assert fused_scores(Doubled(query_size=H, memory_size=D, size=A)) is None
    assert not is_constant(Heavier(query_size=H, memory_size=D))


# -------------------------------------------------------------------------------- against torch's own


@pytest.mark.parametrize(("cell", "layers", "both"), list(product(["lstm", "gru"], [1, 2], [False, True])))
def test_the_encoder_is_torch_s_own_network(cell: Any, layers: int, both: bool) -> None:
    encoder = Encoder(input_size=2, cell=cell, size=H, layers=layers, bidirectional=both)
    randomise(encoder)
    lengths = torch.tensor([3, 7, 1, 7])
    mask = torch.arange(8) < lengths[:, None]
    results = []
    for read in (encoder.read_by_hand, encoder.read_by_torch):
        embedded = torch.randn(4, 8, 2, generator=torch.Generator().manual_seed(1), requires_grad=True)
        encoder.zero_grad()
        states, final = read(embedded, lengths)
        parts = [states, *(final if cell == "lstm" else [final])]
        outer = [torch.linspace(-1, 1, part.numel()).view_as(part) for part in parts]
        torch.autograd.backward(parts, outer)
        assert embedded.grad is not None
        results.append([*parts, embedded.grad, *(p.grad for p in encoder.parameters())])
    assert not results[0][0][~mask].any()
    for one, two in zip(*results, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-5, atol=1e-5)


# --------------------------------------------------------------------------------- the gradients alone


def draw(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


@pytest.mark.parametrize(
    ("kind", "sums", "luong", "layers", "stepped", "counts"),
    list(product(["lstm", "gru"], [True, False], [False, True], [1, 2], [0, 2], [[B] * T, [2, 1, 1]])),
)
def test_gradients_of_the_attentional_loop(
    kind: str, sums: bool, luong: bool, layers: int, stepped: int, counts: list[int]
) -> None:
    torch.manual_seed(0)
    gates = GATES[kind] * H
    query_width = A if sums else H
    mask = torch.arange(S) < torch.tensor([S, 2])[:, None]
    scoring = [draw(A), draw(A, H), draw(A)] if sums else []
    weights = [draw(gates, H if luong else D), draw(gates, H), draw(gates)]
    if layers == 2:
        weights += [draw(gates, H), draw(gates), draw(gates, H), draw(gates)]
    state = [draw(B, H) for _ in range(layers * STATES[kind])]
    combine = [draw(H, D + H)] if luong else []
    rows = Rows(counts, B)
    dropout = [torch.randn(rows.total, H, dtype=torch.float64)] if layers == 2 else []

    def loop(*tensors: Tensor) -> tuple[Tensor, ...]:
        rest = list(tensors)

        def take(count: int) -> list[Tensor]:
            taken, rest[:] = rest[:count], rest[count:]
            return taken

        ahead, memory, keys = take(3)
        first = take(3)
        stack = [Weights(first[0], None, *first[1:])]
        stack += [Weights(*take(4))] if layers == 2 else []
        states = [take(STATES[kind]) for _ in range(layers)]
        mix = take(len(combine))
        loop = Loop(
            kind,
            stack,
            states,
            Scores(0.7, *take(len(scoring))),
            memory,
            keys,
            mask,
            rows,
            combine=mix[0] if mix else None,
            dropout=dropout,
        )
        for step in rows.slices[:stepped]:
            loop.step(ahead[step])
        return loop.finish(ahead)

    tensors = [
        draw(rows.total, gates),
        draw(B, S, D),
        draw(B, S, query_width),
        *weights,
        *state,
        *combine,
        *scoring,
    ]
    assert gradcheck(loop, tensors, fast_mode=True)


@pytest.mark.parametrize(("kind", "reverse"), list(product(["lstm", "gru"], [False, True])))
def test_gradients_of_a_layer_whose_sentences_end(kind: str, reverse: bool) -> None:
    torch.manual_seed(0)
    counts = [3, 3, 2, 1]
    gates = GATES[kind] * H
    tensors = [draw(sum(counts), gates), draw(gates, H), draw(gates)]
    tensors += [draw(3, H) for _ in range(STATES[kind])]

    def layer(gates: Tensor, weight: Tensor, bias: Tensor, *state: Tensor) -> tuple[Tensor, ...]:
        return recur(kind, gates, weight, bias, state, counts, reverse=reverse)

    assert gradcheck(layer, tensors)


def test_gradients_of_sums_for_many_queries() -> None:
    torch.manual_seed(0)
    assert gradcheck(sum_energies, [draw(2, 11, 3), draw(2, 5, 3), draw(3)])


# ---------------------------------------------------------------------------------------------- memory


def bytes_kept(network: Seq2Seq, length: int) -> int:
    """By what lies between the encoder and the readout, weights left out."""
    weights = {parameter.data_ptr() for parameter in network.parameters()}
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        if tensor.data_ptr() not in weights:
            kept[tensor.data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        output = all_at_once(network, random_batch([length], [length]))
    assert output.states.requires_grad
    return sum(kept.values())


@pytest.mark.parametrize("order", ORDERS)
def test_what_sums_keep_grows_with_the_lengths_and_not_with_their_product(order: str) -> None:
    network = make_network(order=order)
    width = 997
    network.decoder.attention = Additive(query_size=7, memory_size=4, size=width)
    short, long = bytes_kept(network, 20), bytes_kept(network, 40)
    assert long < 2.3 * short
    assert short < 20 * 20 * width * 4


@pytest.mark.parametrize("order", ["bahdanau", "luong with input feeding"])
def test_nothing_is_kept_where_no_gradient_is_asked_for(order: str) -> None:
    network = make_network(order=order)
    batch = random_batch([3, 7], [4, 2])
    expected = all_at_once(network, batch)
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            output = all_at_once(network, batch)
        assert not output.states.requires_grad
        for one, two in zip(output, expected, strict=True):
            torch.testing.assert_close(one, two, rtol=0, atol=1e-6)


# ------------------------------------------------------------------------------------- mixed precision


@pytest.mark.parametrize(("order", "cell"), list(product(ORDERS, ["lstm", "gru"])))
def test_gradients_in_mixed_precision(order: str, cell: str) -> None:
    network = make_network(order=order, cell=cell, spread=0.3)
    batch = random_batch([3, 7, 5], [4, 2, 5])
    expected = gradients(network, all_at_once(network, batch))
    with torch.autocast("cpu", torch.bfloat16):
        output = all_at_once(network, batch)
    assert output.weights.dtype == torch.float32
    mixed = gradients(network, DecoderOutput(*(part.float() for part in output)))
    assert {gradient.dtype for gradient in mixed.values()} == {torch.float32}
    one, two = (torch.cat([part[name].flatten() for name in expected]) for part in (mixed, expected))
    assert one.isfinite().all()
    assert torch.cosine_similarity(one, two, dim=0) > 0.999
    torch.testing.assert_close(one.norm(), two.norm(), rtol=0.02, atol=0)
