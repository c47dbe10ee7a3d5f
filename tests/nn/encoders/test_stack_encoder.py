"""Stack encoder: against lists that are pushed and popped, and mixtures written as matrices."""

import pytest
import torch
from torch import Tensor

from attnlab.nn.decoders import LuongDecoder
from attnlab.nn.encoders import StackEncoder
from attnlab.nn.encoders.stack import KEEP, POP, PUSH
from networks import SOURCE_WIDTH, TARGET_WIDTH, assemble, encode, make_attention, random_batch, randomise

E, U = 3, 5
D = E + U


def steps(encoder: StackEncoder, x: Tensor, top: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """Return the next state [U] and the logits of the actions [3]."""
    hidden = torch.tanh(encoder.hidden.weight @ torch.cat([x, top, state]) + encoder.hidden.bias)
    state = (encoder.update.weight @ hidden + encoder.update.bias).sign()
    return state, encoder.action.weight @ hidden + encoder.action.bias


@torch.no_grad()
def test_evaluation_is_a_pushdown_automaton() -> None:
    torch.manual_seed(0)
    encoder = StackEncoder(input_size=E, size=U).eval()
    randomise(encoder, 1.5)
    encoder.action.bias.copy_(torch.tensor([1.0, 0, 0]))
    embedded, lengths = torch.randn(3, 9, E), [9, 4, 6]
    memory = encode(encoder, embedded, lengths)
    seen = set()
    for row, length in enumerate(lengths):
        stack: list[tuple[Tensor, int]] = []  # symbols and the tokens that pushed them, top last
        state = torch.zeros(U)
        for t in range(length):
            top = stack[-1][0] if stack else torch.zeros(D)
            state, logits = steps(encoder, embedded[row, t], top, state)
            action = int(logits.argmax())
            seen.add((action, bool(stack)))
            if action == PUSH:
                stack.append((torch.cat([embedded[row, t], state]), t))
            elif action == POP and stack:
                stack.pop()
        cells = [*reversed(stack), *[(torch.zeros(D), length - 1)] * (length - len(stack))]
        assert torch.equal(memory.states[row, :length], torch.stack([symbol for symbol, _ in cells]))
        assert memory.origin[row, :length].tolist() == [token for _, token in cells]
        assert torch.equal(memory.hidden[row, 0], torch.cat([embedded[row, length - 1], state]))
    assert {(PUSH, True), (POP, True), (KEEP, True)} <= seen


@torch.no_grad()
def test_training_mixes_the_stacks_of_all_actions() -> None:
    torch.manual_seed(0)
    encoder = StackEncoder(input_size=E, size=U, noise=0.0).train()
    randomise(encoder)
    S = 6
    embedded = torch.randn(1, S, E)
    memory = encode(encoder, embedded, [S])
    down = torch.diag(torch.ones(S), -1)  # [S + 1, S + 1]: moves every symbol down
    stack, state = torch.zeros(S + 1, D), torch.zeros(U)
    for t in range(S):
        state, logits = steps(encoder, embedded[0, t], stack[0], state)
        pushed = down @ stack
        pushed[0] = torch.cat([embedded[0, t], state])
        push, pop, keep = logits.softmax(dim=0)
        stack = push * pushed + pop * (down.T @ stack) + keep * stack
    torch.testing.assert_close(memory.states[0], stack[:S], rtol=0, atol=1e-5)


def test_noise_is_only_in_training() -> None:
    encoder = StackEncoder(input_size=E, size=U)
    embedded = torch.randn(2, 7, E)
    assert not torch.equal(*(encode(encoder, embedded, [7, 5]).states for _ in range(2)))
    encoder.eval()
    assert torch.equal(*(encode(encoder, embedded, [7, 5]).states for _ in range(2)))


@pytest.mark.parametrize("training", [True, False])
@torch.no_grad()
def test_weights_of_cells_are_those_of_the_tokens_that_pushed_them(training: bool) -> None:
    torch.manual_seed(4)
    encoder = StackEncoder(input_size=SOURCE_WIDTH, size=4, noise=0.0)
    attention = make_attention("Additive", 7, encoder.memory_size)
    network = assemble(encoder, LuongDecoder(input_size=TARGET_WIDTH, attention=attention, size=7))
    randomise(network)
    network.train(training)
    batch = random_batch([6, 4], [3, 2])
    encoded, state = network.encode(batch)
    embedded = network.target_embedding(batch.inputs)
    cells = network.decoder(embedded, state, encoded.memory, encoded.keys).weights  # [B, T, S]
    tokens = network.decode(encoded, state, batch).weights  # [B, T, S]
    origin = encoded.memory.origin
    for row, target, source in torch.cartesian_prod(torch.arange(2), torch.arange(3), torch.arange(6)):
        expected = cells[row, target, origin[row] == source].sum()
        torch.testing.assert_close(tokens[row, target, source], expected)
    assert not torch.equal(origin[0], torch.arange(6))
