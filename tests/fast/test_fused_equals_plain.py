"""Fused and plain PyTorch give the same results, for every combination of parts that is fused."""

import copy
import pickle
from itertools import product
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnlab.decoding.beam import beam
from attnlab.decoding.search import greedy
from attnlab.fast import accelerate, describe_speed, make_plain
from attnlab.fast.linear import MIN_ROWS, is_few
from attnlab.fast.unroll import ConstantUnroll, FusedUnroll, unsupported
from attnlab.nn.attention import Additive, Dot, Mean
from attnlab.nn.attention.normalisers import Entmax
from attnlab.nn.decoders import BahdanauDecoder, ExactHardDecoder, LuongDecoder, Unroll
from attnlab.nn.encoders import RecurrentEncoder
from attnlab.nn.encoders.bag import BagEncoder
from attnlab.nn.seq2seq import Decoded, Seq2Seq
from attnlab.types import PAD, Batch
from networks import ORDERS, assemble, make_attention, make_network, random_batch, randomise

FUSED_ORDERS = ("bahdanau", "luong with input feeding")
FUSED_ATTENTIONS = ("Additive", "LocationSensitive", "Concat", "Dot", "ScaledDot", "General")
CONSTANT_ATTENTIONS = ("NoAttention", "Final", "Mean")


class HalvingDropout(nn.Dropout):
    """Dropout without randomness, which multiplies by one half."""

    def forward(self, x: Tensor) -> Tensor:
        return x / 2


def set_fused(network: nn.Module, fused: bool) -> None:
    (accelerate if fused else make_plain)(network)


def unroll_of(network: Seq2Seq, batch: Batch) -> Unroll:
    return network.begin_unroll(*network.encode(batch), batch.labels)


def results(
    network: Seq2Seq, batch: Batch, *, fused: bool, forced: Tensor | None = None
) -> tuple[Decoded, dict[str, Tensor]]:
    """Decode a batch; return features and weights at real positions, and the gradients of a loss on both."""
    set_fused(network, fused)
    network.zero_grad()
    torch.manual_seed(1)
    decoded: Decoded = network(batch, forced)
    real = (batch.labels != PAD)[..., None]  # [B, T, 1]
    features, weights = decoded.features * real, decoded.weights * real
    logits = network.logits(decoded, batch.copy_ids)  # [B, T, V]
    loss = F.cross_entropy(logits.float().flatten(0, 1), batch.labels.flatten(), ignore_index=PAD)
    generator = torch.Generator().manual_seed(5)
    for part in (features, weights):
        loss = loss + (part * torch.randn(part.shape, generator=generator)).sum()
    loss.backward()
    gradients = {name: p.grad.clone() for name, p in network.named_parameters() if p.grad is not None}
    return Decoded(features.detach(), weights.detach()), {"loss": loss.detach(), **gradients}


def assert_fused_equals_plain(network: Seq2Seq, batch: Batch) -> None:
    fused, fused_gradients = results(network, batch, fused=True)
    plain, plain_gradients = results(network, batch, fused=False)
    for one, two in zip(fused, plain, strict=True):
        torch.testing.assert_close(one, two, rtol=0, atol=1e-5)
    assert fused_gradients.keys() == plain_gradients.keys()
    for name, gradient in plain_gradients.items():
        atol = max(1e-6, 1e-4 * float(gradient.abs().max()))
        torch.testing.assert_close(fused_gradients[name], gradient, rtol=1e-4, atol=atol, msg=name)


def assert_equal_in_float64(network: Seq2Seq, batch: Batch, forced: Tensor | None) -> None:
    fused, fused_gradients = results(network, batch, fused=True, forced=forced)
    plain, plain_gradients = results(network, batch, fused=False, forced=forced)
    assert fused.features.dtype == torch.float64
    torch.testing.assert_close(fused, plain, rtol=0, atol=1e-12)
    torch.testing.assert_close(fused_gradients, plain_gradients, rtol=1e-9, atol=1e-10)


def assert_search_equals_plain(network: Seq2Seq, batch: Batch, size: int) -> None:
    outcomes = []
    for fused in (True, False):
        set_fused(network, fused)
        outcomes.append(beam(network, batch, size=size, max_length=9))
    found, expected = outcomes
    assert found.tokens == expected.tokens
    torch.testing.assert_close(found.scores, expected.scores, rtol=0, atol=1e-5)
    torch.testing.assert_close(found.weights, expected.weights, rtol=0, atol=1e-5)


def make(order: str, **options: Any) -> Seq2Seq:
    return make_network(order=order, spread=0.7, **options)


def many_sentences() -> tuple[Batch, Tensor]:
    """Draw targets of three lengths, and at which positions [B, T] the reference is read."""
    lengths = [9] * 3 + [6] * 7 + [2] * 10
    batch = random_batch([3 + i % 5 for i in range(len(lengths))], lengths)
    return batch, torch.rand(batch.inputs.shape, generator=torch.Generator().manual_seed(1)) < 0.5


@pytest.mark.slow
@pytest.mark.parametrize(
    ("order", "cell", "layers", "attention"),
    list(product(ORDERS, ["lstm", "gru"], [1, 2], FUSED_ATTENTIONS + CONSTANT_ATTENTIONS)),
)
def test_every_combination_equals_plain(order: str, cell: str, layers: int, attention: str) -> None:
    network = make(order, cell=cell, layers=layers, attention=attention)
    batch = random_batch([3, 7, 1, 5], [4, 2, 5, 3])
    fused = order in FUSED_ORDERS and attention in FUSED_ATTENTIONS
    constant = order == "bahdanau" and attention in CONSTANT_ATTENTIONS
    expected = FusedUnroll if fused else ConstantUnroll if constant else Unroll
    assert type(unroll_of(network, batch)) is expected
    assert_fused_equals_plain(network, batch)


@pytest.mark.parametrize("order", ORDERS)
def test_target_of_one_token(order: str) -> None:
    assert_fused_equals_plain(make(order), random_batch([1, 1], [0, 0]))


@pytest.mark.parametrize(("cell", "layers", "bidirectional"), list(product(["lstm", "gru"], [1, 2], [0, 1])))
def test_encoder_equals_plain(cell: Any, layers: int, bidirectional: bool) -> None:
    encoder = RecurrentEncoder(
        input_size=2, cell=cell, size=3, layers=layers, bidirectional=bool(bidirectional)
    )
    randomise(encoder)
    lengths = torch.tensor([3, 7, 1, 7])
    mask = torch.arange(8) < lengths[:, None]  # [B, S]
    outcomes = []
    for fused in (True, False):
        embedded = torch.randn(4, 8, 2, generator=torch.Generator().manual_seed(1), requires_grad=True)
        encoder.zero_grad()
        set_fused(encoder, fused)
        memory = encoder(embedded, lengths, mask)
        parts = [part for part in (memory.states, memory.hidden, memory.cell) if part is not None]
        torch.autograd.backward(parts, [torch.linspace(-1, 1, part.numel()).view_as(part) for part in parts])
        assert embedded.grad is not None
        assert not memory.states[~mask].any()
        outcomes.append([*parts, embedded.grad, *(p.grad for p in encoder.parameters())])
    for one, two in zip(*outcomes, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-5, atol=1e-5)


def test_dropout_is_drawn_for_every_element() -> None:
    network = make("bahdanau", layers=2).train()
    network.decoder.cells.dropout.p = 0.5
    batch = random_batch([3, 7], [4, 2])
    embedded = network.target_embedding(batch.inputs)
    with torch.no_grad():
        first, second = (unroll_of(network, batch).finish(embedded) for _ in range(2))
    assert not torch.equal(first.states, second.states)


@pytest.mark.parametrize(("order", "cell"), list(product(ORDERS, ["lstm", "gru"])))
def test_layer_norm_and_recurrent_dropout(order: str, cell: str) -> None:
    """Both loops draw the same recurrent dropout from the same seed: no other dropout is active."""
    batch, forced = many_sentences()
    network = make(order, cell=cell, layers=2, recurrent_dropout=0.5).train()
    assert isinstance(unroll_of(network, batch), FusedUnroll) == (order in FUSED_ORDERS)
    assert_fused_equals_plain(network, batch)
    network = make(order, cell=cell, layers=2, recurrent_dropout=0.5, layer_norm=True).train()
    fused, plain = (results(network, batch, fused=fused)[0] for fused in (True, False))
    torch.testing.assert_close(fused, plain, rtol=0, atol=1e-5)
    network.double()  # in fp32, LN of 7 numbers amplifies rounding errors to 1e-4 of a gradient
    for sampled in (None, forced):
        assert_equal_in_float64(network, batch, sampled)
    plain, _ = results(network, batch, fused=False, forced=forced)
    with torch.no_grad():
        torch.manual_seed(1)
        decoded = network.train()(batch, forced)
    real = batch.labels != PAD
    torch.testing.assert_close(decoded.features[real], plain.features[real], rtol=0, atol=1e-12)


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_search_with_layer_norm_equals_plain(cell: str) -> None:
    network = make("bahdanau", cell=cell, layers=2, layer_norm=True, recurrent_dropout=0.5)
    assert_search_equals_plain(network, random_batch([3, 7, 1, 5, 5]), size=3)


def test_only_softmax_is_fused() -> None:
    network = make("bahdanau")
    network.decoder.attention.normaliser = Entmax(2)
    batch = random_batch([3, 7, 1, 5], [4, 2, 5, 3])
    assert not isinstance(unroll_of(network, batch), FusedUnroll)
    assert_fused_equals_plain(network, batch)


class DoubledScores(Additive):
    def score(self, query: Tensor, keys: Tensor, state: Any) -> Tensor:
        return 2 * super().score(query, keys, state)


class Content(Mean):
    def score(self, query: Tensor, keys: Tensor, state: Any) -> Tensor:
        return query.sum(dim=-1, keepdim=True) * keys.sum(dim=-1)[:, None]


class OtherLinear(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(2 * x)


class OtherStep(BahdanauDecoder):
    def step(self, *arguments: Any) -> Any:
        return super().step(*arguments)


def test_subclasses_and_other_parts_are_plain() -> None:
    network = make("bahdanau")
    batch = random_batch([3, 7, 1, 5], [4, 2, 5, 3])
    assert isinstance(unroll_of(network, batch), FusedUnroll)
    additive = network.decoder.attention
    other_linear = Additive(query_size=7, memory_size=4, size=13)
    other_linear.query = OtherLinear(7, 13)
    for attention, reason in (
        (DoubledScores(query_size=7, memory_size=4, size=13), "no fused DoubledScores"),
        (other_linear, "no fused OtherLinear"),
        (make_attention("CoverageSee", 7, 4), "no fused CoverageSee"),
        (Content(query_size=7, memory_size=4), "no fused Content"),
    ):
        network.decoder.attention = attention
        accelerate(network)
        assert type(unroll_of(network, batch)) is Unroll
        assert unsupported(network.decoder) == reason
        assert_fused_equals_plain(network, batch)
    for decoder in (OtherStep, ExactHardDecoder):
        network.decoder = decoder(input_size=5, attention=additive, size=7)
        accelerate(network)
        assert unsupported(network.decoder) == f"no fused {decoder.__name__}"


def test_description_names_what_is_plain_and_why() -> None:
    network = make("bahdanau")
    assert describe_speed(network) == (
        "fast: encoder, decoder loop, 5 linear layers, large products by oneDNN; plain: nothing else"
    )
    network.decoder.attention = DoubledScores(query_size=7, memory_size=4, size=13)
    network.bridge = OtherLinear(2, 2)
    accelerate(network)
    assert describe_speed(network) == (
        "fast: encoder, 3 linear layers, large products by oneDNN; "
        "plain: decoder loop (no fused DoubledScores), OtherLinear (a subclass of Linear)"
    )
    make_plain(network)
    assert describe_speed(network) == "plain: everything"


def test_acceleration_keeps_parameters_and_can_be_undone_copied_and_pickled() -> None:
    network, batch = make("luong", attention="Concat"), random_batch([3, 7, 1], [4, 2, 5])
    classes = [type(part) for part in network.modules()]
    fast = {name: part.data_ptr() for name, part in network.state_dict().items()}
    with torch.no_grad():
        greedy(network, batch, max_length=3)  # stores products
        expected = network(batch)
        for copied in (copy.deepcopy(network), pickle.loads(pickle.dumps(network))):
            torch.testing.assert_close(copied(batch), expected, rtol=0, atol=0)
            products = {id(part.products) for part in copied.modules() if hasattr(part, "products")}
            assert len(products) == 1
            assert products != {id(network.products)}
    make_plain(network)
    assert {name: part.data_ptr() for name, part in network.state_dict().items()} == fast
    plain = [type(part) for part in network.modules()]
    assert all(part.__module__.startswith(("attnlab.nn", "torch")) for part in plain)
    accelerate(network)
    accelerate(network)
    assert [type(part) for part in network.modules()] == classes


@pytest.mark.parametrize(
    ("order", "cell", "attention", "size"),
    [
        (*parts, (1, 3)[i % 2])
        for cells in (["lstm", "gru"], ["gru", "lstm"])
        for i, parts in enumerate(
            (order, cells[j % 2], attention)
            for j, order in enumerate(ORDERS)
            for attention in ("Additive", "General", "NoAttention", "Coverage")
        )
    ],
)
def test_search_equals_plain(order: str, cell: str, attention: str, size: int) -> None:
    network = make(order, cell=cell, attention=attention, layers=2)
    assert_search_equals_plain(network, random_batch([3, 7, 1, 5, 5]), size)


@pytest.mark.usefixtures("default_limits")
@pytest.mark.parametrize("order", FUSED_ORDERS)
@torch.no_grad()
def test_search_of_few_sentences_uses_the_operators_of_the_plain_path(order: str) -> None:
    network, few, outcomes = make(order), random_batch([7, 3, 5]), []
    for fused in (True, False):
        set_fused(network, fused)
        encoded, state = network.encode(few)
        outcomes.append((encoded.memory.states, *network.step(few.source[:, :1], state, encoded)[:2]))
    for one, two in zip(*outcomes, strict=True):
        assert torch.equal(one, two)
    assert is_few(torch.zeros(MIN_ROWS - 1, 1, 2))
    assert not is_few(torch.zeros(1, MIN_ROWS, 2))
    with torch.autocast("cpu", torch.bfloat16):
        assert not is_few(torch.zeros(1, 2))


@pytest.mark.parametrize("attention", ["Additive", "LocationSensitive", "Concat", "General"])
@pytest.mark.parametrize(("order", "cell"), list(product(ORDERS, ["lstm", "gru"])))
@pytest.mark.parametrize("sampled", [False, True])
def test_gradients_in_float64_equal_plain(order: str, cell: str, attention: str, sampled: bool) -> None:
    network = make(order, cell=cell, layers=2, attention=attention).train().double()
    network.decoder.cells.dropout = HalvingDropout(0.5)
    network.decoder.attention.normaliser = Entmax(temperature=0.7)
    batch, forced = many_sentences()
    assert_equal_in_float64(network, batch, forced if sampled else None)


@pytest.mark.parametrize(("order", "cell"), list(product(ORDERS, ["lstm", "gru"])))
@pytest.mark.parametrize("layer_norm", [False, True])
def test_mixed_precision_is_as_accurate_as_plain(order: str, cell: str, layer_norm: bool) -> None:
    """Fused gradients in bf16 deviate from fp32 no more than plain ones do, and are fp32 themselves."""
    # With seed 5, no layer normalisation divides by a standard deviation near 0, which magnifies rounding in
    # either path.
    network = make_network(order=order, cell=cell, spread=0.3, layer_norm=layer_norm, seed=5)
    batch = random_batch([3, 7, 5], [4, 2, 5])
    _, expected = results(network, batch, fused=False)
    errors = {}
    for fused in (True, False):
        with torch.autocast("cpu", torch.bfloat16):
            _, mixed = results(network, batch, fused=fused)
        assert {gradient.dtype for gradient in mixed.values()} == {torch.float32}
        one, two = (torch.cat([part[name].flatten() for name in expected]) for part in (mixed, expected))
        assert one.isfinite().all()
        errors[fused] = float((one - two).norm() / two.norm())
    assert errors[True] < 0.01
    assert errors[True] < 1.5 * errors[False]


@pytest.mark.parametrize("decoder", [BahdanauDecoder, LuongDecoder])
def test_dropout_between_layers_in_mixed_precision_with_keys_in_float32(decoder: type) -> None:
    """The keys of dot products are the memory, which a bag of embeddings leaves in fp32."""
    loop = decoder(input_size=8, attention=Dot(query_size=8, memory_size=8), size=8, layers=2, dropout=0.3)
    network = assemble(BagEncoder(input_size=8, size=8), loop, source_width=8, width=8).train()
    with torch.autocast("cpu", torch.bfloat16):
        _, gradients = results(network, random_batch([3, 7], [4, 2]), fused=True)
    assert all(gradient.isfinite().all() for gradient in gradients.values())


def saved_bytes(network: Seq2Seq, length: int) -> int:
    """Bytes that autograd saves between encoder and readout, without the weights."""
    weights = {parameter.data_ptr() for parameter in network.parameters()}
    saved: dict[int, int] = {}

    def save(tensor: Tensor) -> Tensor:
        if tensor.data_ptr() not in weights:
            saved[tensor.data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(save, lambda tensor: tensor):
        decoded = network(random_batch([length], [length]))
    assert decoded.features.requires_grad
    return sum(saved.values())


@pytest.mark.parametrize("order", ORDERS)
def test_memory_of_additive_scores_grows_linearly_with_the_lengths(order: str) -> None:
    network = make_network(order=order)
    width = 997
    network.decoder.attention = Additive(query_size=7, memory_size=4, size=width)
    accelerate(network)
    short, long = saved_bytes(network, 20), saved_bytes(network, 40)
    assert long < 2.3 * short
    assert short < 20 * 20 * width * 4


@pytest.mark.parametrize("order", FUSED_ORDERS)
def test_results_without_gradients_equal_those_with(order: str) -> None:
    network = make_network(order=order)
    batch = random_batch([3, 7], [4, 2])
    expected = network(batch)
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            decoded = network(batch)
        assert not decoded.features.requires_grad
        torch.testing.assert_close(decoded, expected, rtol=0, atol=1e-6)
