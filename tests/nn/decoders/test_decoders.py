from typing import Any

import pytest
import torch
from torch import Tensor, nn

from attnlab.nn.seq2seq import Seq2Seq, select
from networks import (
    ATTENTIONS,
    ORDERS,
    assert_teacher_forcing_equals_steps,
    forced_logits,
    make_network,
    random_batch,
)

CELLS = [("lstm", 1), ("gru", 2), ("gru", 1), ("lstm", 2)]
every_decoder = pytest.mark.parametrize(
    ("order", "attention", "cell", "layers"),
    [
        (order, attention, *CELLS[(i + j) % len(CELLS)])
        for i, order in enumerate(ORDERS)
        for j, attention in enumerate(ATTENTIONS)
    ],
)
"""Every mechanism in every order, and both with every cell and number of layers."""


@every_decoder
@torch.no_grad()
def test_teacher_forcing_equals_steps(order: str, cell: str, layers: int, attention: str) -> None:
    network = make_network(order=order, cell=cell, layers=layers, attention=attention)
    assert_teacher_forcing_equals_steps(network, random_batch([3, 7, 1, 5], [4, 2, 5, 3]))


@pytest.mark.slow
@every_decoder
@torch.no_grad()
def test_hypotheses_of_a_sentence_are_independent(order: str, cell: str, layers: int, attention: str) -> None:
    """One step of Q hypotheses equals Q steps of one, also when their states differ."""
    network = make_network(order=order, cell=cell, layers=layers, attention=attention)
    batch = random_batch([3, 5])
    encoded, first = network.encode(batch)
    Q = 3
    tokens = torch.randint(4, 19, (2, Q, 2))  # two tokens for each hypothesis
    beams = torch.zeros(2, Q, dtype=torch.int64)
    state = select(first, torch.arange(2)[:, None], beams)  # each hypothesis starts as the first
    for i in range(2):
        logits, weights, state = network.step(tokens[..., i], state, encoded)
    for q in range(Q):
        alone = first
        for i in range(2):
            logits_q, weights_q, alone = network.step(tokens[:, q : q + 1, i], alone, encoded)
        torch.testing.assert_close(logits[:, q : q + 1], logits_q, rtol=0, atol=1e-5)
        torch.testing.assert_close(weights[:, q : q + 1], weights_q, rtol=0, atol=1e-6)


def first_weights(network: Seq2Seq, token: int) -> Tensor:
    batch = random_batch([5])
    encoded, state = network.encode(batch._replace(source=torch.full_like(batch.source, 7)))
    return network.step(torch.tensor([[token]]), state, encoded)[1]


@pytest.mark.parametrize("order", ORDERS)
@torch.no_grad()
def test_only_bahdanau_attends_before_reading_the_token(order: str) -> None:
    network = make_network(order=order)
    one, two = (first_weights(network, token) for token in (4, 5))
    assert torch.equal(one, two) if order == "bahdanau" else not torch.allclose(one, two)


@pytest.mark.parametrize("feeding", [False, True])
@torch.no_grad()
def test_luong_equals_the_equations_of_the_paper(feeding: bool) -> None:
    """Section 3, "general": h_t = LSTM([y; h̃]), c_t = Σ α h̄, h̃_t = tanh(W_c [c_t; h_t]), W_s h̃_t."""
    network = make_network(
        order="luong with input feeding" if feeding else "luong", attention="General", parts=("state",)
    )
    decoder: Any = network.decoder
    batch = random_batch([5], [4])
    encoded, state = network.encode(batch)
    h_bar = encoded.memory.states[0]  # [S, D]
    h, c = (part[0] for part in state.layers[0])  # [1, H]
    W_a, W_c, W_s = decoder.attention.key.weight, decoder.combine.weight, network.readout.output

    cell = nn.LSTMCell(decoder.cells.cells[0].input_size, h.size(1))
    cell.load_state_dict(decoder.cells.cells[0].state_dict())
    h_tilde, expected = torch.zeros_like(h), []
    for y in batch.inputs[0]:
        x = network.target_embedding.table.weight[y][None]
        h, c = cell(torch.cat([x, h_tilde], dim=1) if feeding else x, (h, c))
        alpha = torch.softmax(h_bar @ W_a.T @ h[0], dim=0)
        h_tilde = torch.tanh(torch.cat([alpha @ h_bar, h[0]]) @ W_c.T)[None]
        expected.append(W_s(h_tilde[0]))
    torch.testing.assert_close(forced_logits(network, batch)[0], torch.stack(expected), rtol=0, atol=1e-5)


def test_dropout_is_between_layers_and_only_in_training() -> None:
    network = make_network(layers=2)
    [dropout] = [part for part in network.decoder.modules() if isinstance(part, nn.Dropout)]
    dropout.p = 0.5
    batch = random_batch([5], [4])
    assert torch.equal(forced_logits(network, batch), forced_logits(network, batch))
    network.train()
    assert not torch.equal(forced_logits(network, batch), forced_logits(network, batch))


@pytest.mark.parametrize("attention", ["Additive", "Mean", "Coverage"])
@pytest.mark.parametrize("cell", ["lstm", "gru"])
@pytest.mark.parametrize("order", ORDERS)
@torch.no_grad()
def test_teacher_forcing_equals_steps_with_layer_norm_and_dropout(
    order: str, cell: str, attention: str
) -> None:
    network = make_network(
        attention=attention, order=order, cell=cell, layers=2, layer_norm=True, recurrent_dropout=0.5
    ).train()
    batch = random_batch([4, 2], [5, 3])
    encoded, state = network.encode(batch)
    assert len(state.dropout) == len(state.layers)
    embedded = network.target_embedding(batch.inputs)
    forced = network.decoder(embedded, state, encoded.memory, encoded.keys)
    for i in range(embedded.size(1)):
        inputs = network.decoder.project(embedded[:, i : i + 1])
        output, state = network.decoder.step(inputs, state, encoded.memory, encoded.keys)
        for one, whole in zip(output, forced, strict=True):
            torch.testing.assert_close(one[:, 0], whole[:, i], rtol=0, atol=1e-5)
    network.eval()
    assert network.encode(batch)[1].dropout == ()
