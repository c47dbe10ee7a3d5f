"""Nested encoder: against a recursive evaluation of phrases."""

from collections.abc import Iterator

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from attnlab.nn.encoders import NestedEncoder
from networks import encode, randomise

E, U = 5, 7
MARKS = dict(zip("()", torch.eye(2), strict=True))
"""Of the tokens that open and close a phrase."""


def make(readings: int = 1) -> NestedEncoder:
    torch.manual_seed(1)
    encoder = NestedEncoder(input_size=readings * E + 2, size=U, values=range(readings)).eval()
    randomise(encoder, 1.5)
    return encoder


def embed(text: str) -> Tensor:
    """Embed one letter per token; only brackets are marked."""
    table = torch.randn(128, E, generator=torch.Generator().manual_seed(3))
    return torch.stack([torch.cat([table[ord(c)], MARKS.get(c, torch.zeros(2))]) for c in text])


def read(encoder: NestedEncoder, state: Tensor, vector: Tensor) -> Tensor:
    """Return the state after a symbol, [U], by a sum over all products."""
    transition = encoder.automaton.transition.view(U, E, U)
    logits = sum(state[i] * vector[j] * transition[i, j] for i in range(U) for j in range(E))
    return F.one_hot(logits.argmax(), U).float()


def evaluate(encoder: NestedEncoder, rest: Iterator[str]) -> Tensor:
    """Return the state at the end of a phrase or of the text: a phrase in brackets is evaluated by itself."""
    state = encoder.automaton.start
    for token in rest:
        if token == ")":
            break
        vector = evaluate(encoder, rest) @ encoder.automaton.phrase if token == "(" else embed(token)[0, :E]
        state = read(encoder, state, vector)
    return state


@pytest.mark.parametrize("text", ["abc", "a(bc)d", "((ab)c(d(ef))g)ha", "(a)", "a(b(c(d(e)f)g)h)"])
@torch.no_grad()
def test_a_phrase_is_evaluated_by_itself(text: str) -> None:
    encoder = make()
    memory = encode(encoder, embed(text)[None], [len(text)])
    assert torch.equal(memory.hidden[0, 0], evaluate(encoder, iter(text)))
    assert torch.equal(memory.states[0, -1], memory.hidden[0, 0])


@torch.no_grad()
def test_sentences_of_different_depth_share_a_batch() -> None:
    encoder, texts = make(), ["a(b(cd)e)f(g)", "ab", "(((c)d)e"]
    embedded = torch.randn(3, 13, E + 2)  # any values at padding, also ones that look like brackets
    embedded[..., E:] = 1
    for row, text in enumerate(texts):
        embedded[row, : len(text)] = embed(text)
    memory = encode(encoder, embedded, [len(text) for text in texts])
    for row, text in enumerate(texts):
        alone = encode(encoder, embed(text)[None], [len(text)])
        assert torch.equal(memory.states[row, : len(text)], alone.states[0])
        assert torch.equal(memory.hidden[row], alone.hidden[0])
    assert len({tuple(state.tolist()) for state in memory.states[0]}) > 2


@torch.no_grad()
def test_a_bracket_without_an_opening_one_is_read_in_the_first_state() -> None:
    encoder = make()
    memory = encode(encoder, embed("ab)c")[None], [4])
    closed = read(encoder, encoder.automaton.start, memory.states[0, 1] @ encoder.automaton.phrase)
    assert torch.equal(memory.states[0, 2], closed)
    assert torch.equal(memory.states[0, 3], read(encoder, closed, embed("c")[0, :E]))


@torch.no_grad()
def test_training_has_probabilities_and_noise() -> None:
    encoder = make().train()
    embedded = embed("ab")[None]
    encoder.batches.fill_(encoder.ramp)
    first, second = (encode(encoder, embedded, [2]).states for _ in range(2))
    assert not torch.equal(first, second)
    torch.testing.assert_close(first.sum(dim=-1), torch.ones(1, 2))
    encoder.noise = 0.0
    state = encoder.automaton.start
    for vector, expected in zip(embedded[0, :, :E], encode(encoder, embedded, [2]).states[0], strict=True):
        logits = torch.einsum("i,j,iju->u", state, vector, encoder.automaton.transition.view(U, E, U))
        state = torch.softmax(logits, dim=0)
        torch.testing.assert_close(expected, state)


@torch.no_grad()
def test_noise_grows_with_the_batches_of_training() -> None:
    encoder, embedded = make().train(), embed("a")[None]
    encoder.noise, encoder.ramp = 0.6, 3

    def draw() -> Tensor:
        torch.manual_seed(5)
        logits = encode(encoder, embedded, [1]).states[0, 0].log()
        return logits - logits.mean()

    first, second, third, fourth = (draw() for _ in range(4))
    torch.testing.assert_close(third - second, second - first)
    assert (second - first).abs().max() > 0.1
    assert torch.equal(third, fourth)
    encoder.eval()
    draw()
    assert encoder.batches == 4


@torch.no_grad()
def test_one_of_several_readings_is_selected() -> None:
    encoder, plain, K = make(readings=3), make(), 3
    plain.load_state_dict(encoder.state_dict(), strict=False)
    texts = [["a(bf)cfd", "a(bg)cgd", "a(bh)chd"], ["f(e)", "g(e)", "h(e)"], ["ab"] * 3]
    embedded = torch.randn(3, 8, K * E + 2)
    for row, readings in enumerate(texts):
        each = torch.stack([embed(text) for text in readings], dim=1)  # [S, K, E + 2]
        embedded[row, : len(each)] = torch.cat([each[..., :E].flatten(1), each[:, 0, E:]], dim=-1)
    lengths = [len(readings[0]) for readings in texts]
    memory = encode(encoder, embedded, lengths)
    for row, (readings, length) in enumerate(zip(texts, lengths, strict=True)):
        states = torch.stack(
            [encode(plain, embed(text)[None], [length]).states[0] for text in readings]
        )  # [K, S, U]
        scores = torch.tensor([[state @ encoder.score for state in reading] for reading in states])
        weights = scores.exp() / scores.exp().sum(dim=0)
        selected = sum(weights[k, :, None] * states[k] for k in range(K))
        expected = torch.cat([selected, 10 * weights.T], dim=-1)
        torch.testing.assert_close(memory.states[row, :length], expected)
        torch.testing.assert_close(memory.hidden[row, 0], expected[-1])
    assert memory.hidden[0, 0, U:].std() > 0.01  # the readings differ
    torch.testing.assert_close(memory.hidden[2, 0, U:], torch.full((K,), 10 / K))
