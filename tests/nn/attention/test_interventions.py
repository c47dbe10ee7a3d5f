from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from attnlab.decoding.beam import beam
from attnlab.nn.attention import Attention, Differential, Dot, General, MultiHead, ScaledDot
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
    random_memory,
    randomise,
    stepwise,
    walk,
)

WITHOUT_WEIGHTS = ("Final", "NoAttention")
DIFFERENTIAL = partial(Differential, score=ScaledDot)

all_interventions = pytest.mark.parametrize("intervention", INTERVENTIONS)
with_weights = pytest.mark.parametrize("name", sorted(set(ATTENTIONS) - {*WITHOUT_WEIGHTS, "MultiHead"}))


class QueryWeights(Attention):
    """Mechanism whose weights are the first S numbers of the query, 0 at padding."""

    def score(self, query: Tensor, keys: Tensor, state: None) -> Tensor:
        return query[..., : keys.size(1)]

    def weigh(self, query: Tensor, memory: Memory, keys: Tensor, state: None) -> tuple[Tensor, None]:
        return self.score(query, keys, state) * memory.mask[:, None], None


MASK = torch.tensor([[True, True, True, False], [True, True, False, False], [False] * 4])
FIRST = torch.tensor([[0.5, 0.2, 0.3, 0.0], [0.1, 0.9, 0.0, 0.0], [0.0] * 4])
SECOND = torch.tensor([[0.0, 0.0, 1.0, 0.0], [0.4, 0.6, 0.0, 0.0], [0.0] * 4])


def intervened(intervention: Intervention, *steps: Tensor) -> tuple[Tensor, Tensor]:
    """Return contexts and weights [B, T, …] of weights of T steps; the states are unit vectors."""
    attention = InterventionWrapper(QueryWeights(query_size=4, memory_size=4), intervention)
    memory = Memory(torch.eye(4).expand(3, 4, 4), MASK)
    return walk(attention, torch.stack(steps, dim=1), memory)


@pytest.mark.parametrize(
    ("intervention", "first", "second"),
    [
        ("uniform", [[1 / 3] * 3 + [0], [1 / 2] * 2 + [0] * 2], [[1 / 3] * 3 + [0], [1 / 2] * 2 + [0] * 2]),
        ("argmax", [[1, 0, 0, 0], [0, 1, 0, 0]], [[0, 0, 1, 0], [0, 1, 0, 0]]),
        ("none", [[0] * 4] * 2, [[0] * 4] * 2),
    ],
)
def test_known_values(
    intervention: Intervention, first: list[list[float]], second: list[list[float]]
) -> None:
    contexts, weights = intervened(intervention, FIRST, SECOND)
    torch.testing.assert_close(weights[:2], torch.tensor([first, second]).float().transpose(0, 1))
    assert not weights[2].any()  # a fully masked row
    assert torch.equal(contexts, weights)  # a sum of unit vectors


def test_previous_uses_the_preceding_step() -> None:
    contexts, weights = intervened("previous", FIRST, SECOND, FIRST, FIRST)
    assert torch.equal(weights, torch.stack([FIRST, FIRST, SECOND, FIRST], dim=1))
    assert torch.equal(contexts, weights)


@given(lengths=st.lists(st.integers(0, 9), min_size=1, max_size=4))
def test_shuffle_permutes_the_weights(lengths: list[int]) -> None:
    mask = torch.arange(9) < torch.tensor(lengths)[:, None]
    weights = torch.rand(len(lengths), 3, 9) * mask[:, None]
    permuted = permute_weights(weights, mask[:, None], torch.randint(1, 1000, (len(lengths), 3, 9)))
    assert not permuted.masked_select(~mask[:, None]).any()
    torch.testing.assert_close(permuted.sort(dim=-1).values, weights.sort(dim=-1).values, rtol=0, atol=0)


def test_shuffles_differ_between_steps_and_seeds() -> None:
    weights = torch.rand(1, 1, 12)
    memory = random_memory([12], 5)
    inner = QueryWeights(query_size=12, memory_size=5)

    def steps(seed: int) -> Tensor:
        attention = InterventionWrapper(inner, "shuffled", seed=seed)
        return walk(attention, weights.expand(1, 40, 12), memory)[1][0]

    drawn = steps(0)
    assert torch.equal(drawn, steps(0))
    assert not (drawn == steps(1)).all(dim=-1).any()
    assert len({tuple(row) for row in drawn.tolist()}) == 40
    # Each weight appears at each position 40 / 12 times on average.
    at_position = (drawn[..., None] == weights[0]).sum(dim=0)  # [12, 12]
    assert at_position.sum(dim=0).tolist() == [40] * 12
    assert at_position.max() <= 12


@with_weights
@all_interventions
@torch.no_grad()
def test_inner_mechanism_is_unaffected(name: str, intervention: Intervention) -> None:
    """α' is made of the weights that the inner mechanism has without the intervention."""
    same = issubclass(ATTENTIONS[name], Dot)
    inner = make_attention(name, 11 if same else 7, 11).eval()
    queries = torch.randn(2, 4, inner.query_size)
    memory = random_memory([5, 3], 11)
    _, original = walk(inner, queries, memory)
    contexts, weights = walk(InterventionWrapper(inner, intervention), queries, memory)
    if name != "Differential":  # its context is of signed weights
        torch.testing.assert_close(contexts, torch.bmm(weights, memory.states), rtol=0, atol=1e-6)
    assert not weights.masked_select(~memory.mask[:, None]).any()
    if intervention == "shuffled":
        torch.testing.assert_close(weights.sort(dim=-1).values, original.sort(dim=-1).values)
    elif intervention == "previous":
        torch.testing.assert_close(weights, torch.cat([original[:, :1], original[:, :-1]], dim=1))
    elif intervention == "argmax":
        assert torch.equal(weights.sum(dim=-1), (original.sum(dim=-1) > 0).float())
        torch.testing.assert_close((weights * original).sum(dim=-1), original.amax(dim=-1))


@all_interventions
@given(extra=st.integers(0, 20), row=st.integers(0, 1))
@settings(max_examples=10)
def test_padding_and_batch_do_not_change_results(intervention: Intervention, extra: int, row: int) -> None:
    attention = InterventionWrapper(make_attention("CoverageSee", 7, 11), intervention)
    memory, queries, length = random_memory([5, 3], 11), torch.randn(2, 4, 7), (5, 3)[row]
    _, together = walk(attention, queries, memory)
    padded = random_memory([length], 11, padding=extra)
    padded.states[0, :length] = memory.states[row, :length]
    _, alone = walk(attention, queries[row : row + 1], padded)
    torch.testing.assert_close(alone[0, :, :length], together[row, :, :length], rtol=0, atol=1e-6)
    assert not alone[0, :, length:].any()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("order", "name", "intervention"),
    [
        (ORDERS[(i + j) % len(ORDERS)], name, intervention)
        for i, name in enumerate(("Additive", "CoverageSee", "LocalM", "MultiHead"))
        for j, intervention in enumerate(INTERVENTIONS)
    ],
)
@torch.no_grad()
def test_search_and_teacher_forcing_agree(order: str, name: str, intervention: Intervention) -> None:
    network = make_network(order=order, attention=name)
    network.decoder.attention = intervene(network.decoder.attention, intervention).eval()
    batch = random_batch([3, 7, 5, 1], [4, 2, 5, 3])
    torch.testing.assert_close(forced_logits(network, batch), stepwise(network, batch)[0], rtol=0, atol=1e-5)
    wide, alone = (beam(network, sentences, size=3, max_length=6) for sentences in (batch, only_last(batch)))
    assert wide.tokens[-1:] == alone.tokens
    torch.testing.assert_close(wide.weights[-1], alone.weights[0], rtol=0, atol=1e-6)


def only_last(batch):
    """Return the last sentence of the batch without its padding; it has one token."""
    return random_batch([1])._replace(source=batch.source[-1:, :1])


@all_interventions
def test_interventions_apply_to_each_head(intervention: Intervention) -> None:
    """The weights of each head are replaced separately, and each head keeps its values."""
    attention = MultiHead(query_size=7, memory_size=11, size=6, heads=3, score=ScaledDot)
    changed = intervene(attention, intervention)
    queries = 5 * torch.randn(2, 3, 7)
    memory = random_memory([5, 5], 11)
    contexts, _ = walk(changed, queries, memory)
    heads = []
    for n, head in enumerate(attention.heads):
        rows = slice(2 * n, 2 * n + 2)
        sliced = Memory(memory.states @ attention.key.weight[rows].T, memory.mask)
        _, weights = walk(
            InterventionWrapper(head, intervention), queries @ attention.query.weight[rows].T, sliced
        )
        heads.append(weights @ memory.states @ attention.value.weight[rows].T)
    expected = torch.cat(heads, dim=-1) @ attention.output.weight.T
    torch.testing.assert_close(contexts, expected, rtol=0, atol=1e-5)
    # The original is not modified
    assert not any(isinstance(head, InterventionWrapper) for head in attention.heads)
    assert {*map(id, changed.parameters())} == {*map(id, attention.parameters())}


@pytest.mark.parametrize("heads", [None, 3])
def test_signed_weights_and_their_context_are_replaced(heads: int | None) -> None:
    """At the first position the previous weights are the mechanism's own, some of which are negative."""
    attention: Attention = Differential(query_size=7, memory_size=12, score=General)
    if heads:
        attention = MultiHead(query_size=7, memory_size=12, size=12, heads=heads, score=DIFFERENTIAL)
    randomise(attention)
    memory = random_memory([5, 5], 12)
    queries = torch.randn(2, 1, 7)
    changed = intervene(attention, "previous")
    for own, other in zip(walk(attention, queries, memory), walk(changed, queries, memory), strict=True):
        torch.testing.assert_close(other, own)
    uniform, _ = walk(intervene(attention, "uniform"), queries, memory)
    assert not torch.allclose(uniform, walk(attention, queries, memory)[0], atol=1e-3)


@pytest.mark.parametrize("name", WITHOUT_WEIGHTS)
def test_mechanism_without_weights_is_rejected(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} has no weights for attention_override to replace"):
        intervene(make_attention(name, 7, 11), "uniform")
