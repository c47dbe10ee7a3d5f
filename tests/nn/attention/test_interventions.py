from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from attnlab.decoding.search import beam, greedy
from attnlab.nn.attention import Attention, Dot, MultiHead, ScaledDot
from attnlab.nn.attention.interventions import (
    INTERVENTIONS,
    Intervention,
    InterventionWrapper,
    intervene,
    permute_weights,
)
from attnlab.types import Memory
from networks import (
    ATTENTIONS,
    ORDERS,
    forced_logits,
    make_attention,
    make_network,
    random_batch,
    stepwise,
    walk,
)

WITHOUT_WEIGHTS = ("Final", "NoAttention")

interventions = pytest.mark.parametrize("how", INTERVENTIONS)
overridable = pytest.mark.parametrize("name", sorted(set(ATTENTIONS) - {*WITHOUT_WEIGHTS, "MultiHead"}))


class Told(Attention):
    """Weights are the query's first S numbers, or 0 at padding: what is replaced is known."""

    def score(self, query: Tensor, keys: Tensor, state: None) -> Tensor:
        return query[..., : keys.size(1)]

    def weigh(self, query: Tensor, memory: Memory, keys: Tensor, state: None) -> Tensor:
        return self.score(query, keys, state) * memory.mask[:, None]


MASK = torch.tensor([[True, True, True, False], [True, True, False, False], [False] * 4])
FIRST = torch.tensor([[0.5, 0.2, 0.3, 0.0], [0.1, 0.9, 0.0, 0.0], [0.0] * 4])
SECOND = torch.tensor([[0.0, 0.0, 1.0, 0.0], [0.4, 0.6, 0.0, 0.0], [0.0] * 4])


def told(how: Intervention) -> tuple[Tensor, Tensor]:
    """Contexts and weights [B, 2, …] of the above, under an intervention; states are unit vectors."""
    attention = InterventionWrapper(Told(query_size=4, memory_size=4), how)
    memory = Memory(torch.eye(4).expand(3, 4, 4), MASK)
    return walk(attention, torch.stack([FIRST, SECOND], dim=1), memory)


@pytest.mark.parametrize(
    ("how", "first", "second"),
    [
        ("uniform", [[1 / 3] * 3 + [0], [1 / 2] * 2 + [0] * 2], [[1 / 3] * 3 + [0], [1 / 2] * 2 + [0] * 2]),
        ("argmax", [[1, 0, 0, 0], [0, 1, 0, 0]], [[0, 0, 1, 0], [0, 1, 0, 0]]),
        ("previous", FIRST[:2].tolist(), FIRST[:2].tolist()),
        ("none", [[0] * 4] * 2, [[0] * 4] * 2),
    ],
)
def test_by_hand(how: Intervention, first: list[list[float]], second: list[list[float]]) -> None:
    contexts, weights = told(how)
    torch.testing.assert_close(weights[:2], torch.tensor([first, second]).float().transpose(0, 1))
    assert not weights[2].any()  # a row masked whole
    assert torch.equal(contexts, weights)  # the sum of unit vectors


def test_previous_is_of_the_step_before_and_not_of_the_first() -> None:
    attention = InterventionWrapper(Told(query_size=4, memory_size=4), "previous")
    memory = Memory(torch.eye(4).expand(3, 4, 4), MASK)
    _, weights = walk(attention, torch.stack([FIRST, SECOND, FIRST, FIRST], dim=1), memory)
    expected = torch.stack([FIRST, FIRST, SECOND, FIRST], dim=1)
    assert torch.equal(weights, expected)


def test_deal_by_hand() -> None:
    """Position 1 is padding; of the others 3 has the lowest number, then 0, then 2."""
    weights = torch.tensor([[[0.5, 0.0, 0.2, 0.3]]])
    mask = torch.tensor([[[True, False, True, True]]])
    dealt = permute_weights(weights, mask, torch.tensor([[[20, 1, 30, 10]]]))
    torch.testing.assert_close(dealt, torch.tensor([[[0.3, 0.0, 0.5, 0.2]]]))


@given(lengths=st.lists(st.integers(0, 9), min_size=1, max_size=4))
def test_a_shuffle_deals_out_the_same_weights(lengths: list[int]) -> None:
    mask = torch.arange(9) < torch.tensor(lengths)[:, None]
    weights = torch.rand(len(lengths), 3, 9) * mask[:, None]
    dealt = permute_weights(weights, mask[:, None], torch.randint(1, 1000, (len(lengths), 3, 9)))
    assert not dealt.masked_select(~mask[:, None]).any()
    torch.testing.assert_close(dealt.sort(dim=-1).values, weights.sort(dim=-1).values, rtol=0, atol=0)


def test_shuffles_differ_from_step_to_step_and_from_seed_to_seed() -> None:
    weights = torch.rand(1, 1, 12)
    memory = Memory(torch.randn(1, 12, 5), torch.ones(1, 12, dtype=torch.bool))
    inner = Told(query_size=12, memory_size=5)

    def steps(seed: int) -> Tensor:
        return walk(InterventionWrapper(inner, "shuffled", seed=seed), weights.expand(1, 40, 12), memory)[1][
            0
        ]

    once = steps(0)
    assert torch.equal(once, steps(0))
    assert not (once == steps(1)).all(dim=-1).any()
    assert len({tuple(row) for row in once.tolist()}) == 40
    # Each weight comes to each position about as often: 40 / 12 times, and never more than half of them.
    at_position = (once[..., None] == weights[0]).sum(dim=0)  # [12, 12]
    assert at_position.sum(dim=0).tolist() == [40] * 12
    assert at_position.max() <= 12


@overridable
@interventions
@torch.no_grad()
def test_the_inner_mechanism_goes_on_as_ever(name: str, how: Intervention) -> None:
    """Its states and so its weights are those it has alone; α' is made of these."""
    same = issubclass(ATTENTIONS[name], Dot)
    inner = make_attention(name, 11 if same else 7, 11).eval()
    queries = torch.randn(2, 4, inner.query_size)
    memory = Memory(torch.randn(2, 5, 11), torch.arange(5) < torch.tensor([[5], [3]]))
    _, own = walk(inner, queries, memory)
    contexts, weights = walk(InterventionWrapper(inner, how), queries, memory)
    torch.testing.assert_close(contexts, torch.bmm(weights, memory.states), rtol=0, atol=1e-6)
    assert not weights.masked_select(~memory.mask[:, None]).any()
    if how == "shuffled":
        torch.testing.assert_close(weights.sort(dim=-1).values, own.sort(dim=-1).values)
    elif how == "previous":
        torch.testing.assert_close(weights, torch.cat([own[:, :1], own[:, :-1]], dim=1))
    elif how == "argmax":
        assert torch.equal(weights.sum(dim=-1), (own.sum(dim=-1) > 0).float())
        torch.testing.assert_close((weights * own).sum(dim=-1), own.amax(dim=-1))


@interventions
@given(extra=st.integers(0, 20), row=st.integers(0, 1))
@settings(max_examples=10)
def test_padding_and_batch_mates_change_nothing(how: Intervention, extra: int, row: int) -> None:
    attention = InterventionWrapper(make_attention("CoverageSee", 7, 11), how)
    lengths, queries, states = [5, 3], torch.randn(2, 4, 7), torch.randn(2, 5, 11)
    _, together = walk(attention, queries, Memory(states, torch.arange(5) < torch.tensor(lengths)[:, None]))
    length = lengths[row]
    padded = torch.cat([states[row, :length], torch.randn(extra, 11)])[None]
    mask = (torch.arange(length + extra) < length)[None]
    _, alone = walk(attention, queries[row : row + 1], Memory(padded, mask))
    torch.testing.assert_close(alone[0, :, :length], together[row, :, :length], rtol=0, atol=1e-6)
    assert not alone[0, :, length:].any()


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", ["Additive", "CoverageSee", "LocalM", "MultiHead"])
@interventions
@torch.no_grad()
def test_forced_is_stepwise_and_a_beam_of_one_is_greedy(order: str, name: str, how: Intervention) -> None:
    network = make_network(order=order, attention=name)
    network.decoder.attention = intervene(network.decoder.attention, how).eval()
    batch = random_batch([3, 7, 1], [4, 2, 5])
    torch.testing.assert_close(forced_logits(network, batch), stepwise(network, batch)[0], rtol=0, atol=1e-5)
    one, many = greedy(network, batch, max_length=6), beam(network, batch, size=1, max_length=6)
    assert one.tokens == many.tokens
    wide, alone = (beam(network, sentences, size=3, max_length=6) for sentences in (batch, only_last(batch)))
    assert wide.tokens[-1:] == alone.tokens
    torch.testing.assert_close(wide.weights[-1], alone.weights[0], rtol=0, atol=1e-6)


def only_last(batch):  # type: ignore[no-untyped-def]
    """The batch's last sentence, of one token: nothing is left of its padding."""
    return random_batch([1])._replace(source=batch.source[-1:, :1])


def test_an_override_is_felt() -> None:
    network = make_network()
    batch = random_batch([5, 7], [4, 4])
    own, logits = network.decoder.attention, forced_logits(network, batch)
    for how in INTERVENTIONS:
        network.decoder.attention = intervene(own, how)
        assert not torch.allclose(forced_logits(network, batch), logits, atol=1e-3), how
    network.decoder.attention = own
    assert torch.equal(forced_logits(network, batch), logits)


@interventions
def test_the_heads_of_multi_head_attention_are_overridden_one_by_one(how: Intervention) -> None:
    """A head's values are its own, and its weights are replaced by what becomes of its own."""
    attention = MultiHead(query_size=7, memory_size=11, size=6, heads=3, score=ScaledDot)
    changed = intervene(attention, how)
    queries = 5 * torch.randn(2, 3, 7)
    memory = Memory(torch.randn(2, 5, 11), torch.ones(2, 5, dtype=torch.bool))
    contexts, _ = walk(changed, queries, memory)
    heads = []
    for n, head in enumerate(attention.heads):
        rows = slice(2 * n, 2 * n + 2)
        sliced = Memory(memory.states @ attention.key.weight[rows].T, memory.mask)
        _, weights = walk(InterventionWrapper(head, how), queries @ attention.query.weight[rows].T, sliced)
        heads.append(weights @ memory.states @ attention.value.weight[rows].T)
    expected = torch.cat(heads, dim=-1) @ attention.output.weight.T
    torch.testing.assert_close(contexts, expected, rtol=0, atol=1e-5)
    assert not any(
        isinstance(head, InterventionWrapper) for head in attention.heads
    )  # the original is as it was


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64], ids=str)
@interventions
def test_any_dtype(how: Intervention, dtype: torch.dtype) -> None:
    attention = InterventionWrapper(make_attention("Additive", 7, 11), how).to(dtype)
    memory = Memory(torch.randn(2, 5, 11, dtype=dtype), torch.arange(5) < torch.tensor([[5], [0]]))
    contexts, weights = walk(attention, torch.randn(2, 3, 7, dtype=dtype), memory)
    assert contexts.dtype == dtype
    assert contexts.isfinite().all()
    assert weights.isfinite().all()
    assert not weights[1].any()


def test_a_query_without_the_q_axis_is_one_query() -> None:
    attention = InterventionWrapper(make_attention("Additive", 7, 11), "shuffled")
    memory = Memory(torch.randn(2, 5, 11), torch.ones(2, 5, dtype=torch.bool))
    query, keys = torch.randn(2, 7), attention.project(memory)
    context, weights, _ = attention(query, memory, keys)
    with_axis = attention(query[:, None], memory, keys, attention.begin(memory))
    assert torch.equal(context, with_axis[0][:, 0])
    assert torch.equal(weights, with_axis[1][:, 0])


@pytest.mark.parametrize("name", WITHOUT_WEIGHTS)
def test_what_has_no_weights_is_named(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} has no weights for attention_override to replace"):
        intervene(make_attention(name, 7, 11), "uniform")
