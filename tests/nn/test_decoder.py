from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from attnlab.nn.seq2seq import Seq2Seq, select
from networks import ATTENTIONS, ORDERS, forced_logits, make_network, random_batch, stepwise

every_decoder = pytest.mark.parametrize(
    ("order", "cell", "layers", "attention"), list(product(ORDERS, ["lstm", "gru"], [1, 2], ATTENTIONS))
)


@every_decoder
@torch.no_grad()
def test_forced_is_stepwise(order: str, cell: str, layers: int, attention: str) -> None:
    network = make_network(order=order, cell=cell, layers=layers, attention=attention)
    batch = random_batch([3, 7, 1], [4, 2, 5])
    decoded = network(batch.source, batch.source_lengths, batch.source_mask, batch.inputs)
    logits, weights = stepwise(network, batch)
    torch.testing.assert_close(network.readout(decoded.features), logits, rtol=0, atol=1e-5)
    torch.testing.assert_close(decoded.weights, weights, rtol=0, atol=1e-6)


@every_decoder
@torch.no_grad()
def test_hypotheses_of_a_sentence_do_not_meet(order: str, cell: str, layers: int, attention: str) -> None:
    """Q hypotheses in one step are Q steps of one, also once their states differ."""
    network = make_network(order=order, cell=cell, layers=layers, attention=attention)
    batch = random_batch([3, 5])
    encoded, first = network.encode(batch.source, batch.source_lengths, batch.source_mask)
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


@pytest.mark.parametrize("attention", ATTENTIONS)
@pytest.mark.parametrize("order", ORDERS)
@torch.no_grad()
def test_permuting_a_batch_permutes_the_results(order: str, attention: str) -> None:
    network = make_network(order=order, attention=attention, layers=2)
    batch = random_batch([3, 7, 1, 5], [4, 2, 5, 0])
    permutation = torch.tensor([2, 0, 3, 1])
    permuted = type(batch)(*(tensor[permutation] for tensor in batch))
    torch.testing.assert_close(
        forced_logits(network, permuted), forced_logits(network, batch)[permutation], rtol=0, atol=1e-5
    )


# ----------------------------------------------------------------------- Bahdanau's order and Luong's


def first_weights(network: Seq2Seq, token: int) -> Tensor:
    batch = random_batch([5])
    encoded, state = network.encode(torch.full_like(batch.source, 7), batch.source_lengths, batch.source_mask)
    return network.step(torch.tensor([[token]]), state, encoded)[1]


@torch.no_grad()
def test_bahdanau_attends_before_it_reads_the_token() -> None:
    network = make_network(order="bahdanau")
    assert torch.equal(first_weights(network, 4), first_weights(network, 5))


@pytest.mark.parametrize("order", ["luong", "luong with input feeding"])
@torch.no_grad()
def test_luong_attends_after_it_has_read_the_token(order: str) -> None:
    network = make_network(order=order)
    assert not torch.allclose(first_weights(network, 4), first_weights(network, 5))


@pytest.mark.parametrize("feeding", [False, True])
@torch.no_grad()
def test_luong_from_his_equations(feeding: bool) -> None:
    """Section 3, "general": h_t = LSTM([y; h̃]), c_t = Σ α h̄, h̃_t = tanh(W_c [c_t; h_t]), W_s h̃_t."""
    network = make_network(
        order="luong with input feeding" if feeding else "luong", attention="General", parts=("state",)
    )
    decoder: Any = network.decoder
    batch = random_batch([5], [4])
    encoded, state = network.encode(batch.source, batch.source_lengths, batch.source_mask)
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


def test_dropout_goes_between_layers_and_only_in_training() -> None:
    network = make_network(layers=2)
    network.decoder.cells.dropout.p = 0.5
    batch = random_batch([5], [4])
    assert torch.equal(forced_logits(network, batch), forced_logits(network, batch))
    network.train()
    assert not torch.equal(forced_logits(network, batch), forced_logits(network, batch))
