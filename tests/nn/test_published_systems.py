"""Published systems: with the same weights, our logits equal theirs to 1e-5.

Each reference is written from its equations alone and reads one unpadded sentence, one target token at a
time; ours reads a padded batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector

from attnlab.nn.attention import Additive, Attention, NoAttention
from attnlab.nn.bridge import CopyBridge, LinearBridge, ZeroBridge
from attnlab.nn.decoders import BahdanauDecoder
from attnlab.nn.encoders import RecurrentEncoder
from attnlab.nn.seq2seq import Seq2Seq
from attnlab.types import PAD, Memory
from networks import assemble, forced_logits, random_batch, randomise, stepwise

V_X, V_Y = 23, 19  # vocabularies
E_X, E_Y = 3, 5  # embeddings
H, A = 7, 13  # encoder units in each direction, attention size
SIZE = 11  # decoder units, where they do not follow from the encoder's


# ------------------------------------------------------------------------------------------- references


class ReferenceAttention(nn.Module):
    """e_j = v·tanh(W_h h_j + b_h + W_s s + b_s) + b_v; α = softmax(e); c = Σ α_j h_j."""

    def __init__(self, memory_size: int, query_size: int, biases: bool) -> None:
        super().__init__()
        self.W_h = nn.Linear(memory_size, A, bias=biases)
        self.W_s = nn.Linear(query_size, A, bias=biases)
        self.v = nn.Linear(A, 1, bias=biases)

    def forward(self, s: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        e = torch.stack([self.v(torch.tanh(self.W_h(h_j) + self.W_s(s)))[0] for h_j in h])  # [S]
        alpha = torch.softmax(e, dim=0)
        return sum(a * h_j for a, h_j in zip(alpha, h, strict=True)), alpha


class Reverse(nn.Module):
    """System of `experiment=reverse_published`: LSTM encoder and decoder with additive attention."""

    def __init__(self, initial: str) -> None:
        super().__init__()
        self.initial = initial
        self.embed_x, self.embed_y = nn.Embedding(V_X, E_X), nn.Embedding(V_Y, E_Y)
        self.encoder = nn.LSTM(E_X, H, bidirectional=True)
        self.start_h, self.start_c = nn.Linear(2 * H, SIZE), nn.Linear(2 * H, SIZE)
        self.attend = ReferenceAttention(2 * H, SIZE, biases=True)
        self.cell = nn.LSTMCell(E_Y + 2 * H, SIZE)
        self.output = nn.Linear(2 * H + SIZE, V_Y)

    def forward(self, source: Tensor, inputs: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        memory, (h_n, c_n) = self.encoder(self.embed_x(source))
        if self.initial == "zero":
            s = cell = torch.zeros(SIZE)
        else:
            s = torch.tanh(self.start_h(torch.cat([h_n[0], h_n[1]])))
            cell = torch.tanh(self.start_c(torch.cat([c_n[0], c_n[1]])))
        for y in inputs:
            c, alpha = self.attend(s, memory)
            s, cell = self.cell(torch.cat([self.embed_y(y), c]), (s, cell))
            yield self.output(torch.cat([c, s])), alpha


class Marathi(nn.Module):
    """System of `experiment=eng_mar`, with attention."""

    def __init__(self) -> None:
        super().__init__()
        self.embed_x, self.embed_y = nn.Embedding(V_X, E_X), nn.Embedding(V_Y, E_Y)
        self.encoder = nn.GRU(E_X, H)
        self.attend = ReferenceAttention(H, H, biases=True)
        self.cell = nn.GRUCell(H + E_Y, H)
        self.output = nn.Linear(H, V_Y)

    def forward(self, source: Tensor, inputs: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        memory, _ = self.encoder(self.embed_x(source))
        s = memory[-1]
        for y in inputs:
            c, alpha = self.attend(s, memory)
            s = self.cell(torch.cat([c, self.embed_y(y)]), s)
            yield self.output(s), alpha


class MarathiBaseline(nn.Module):
    """System of `experiment=eng_mar_baseline`, without attention."""

    def __init__(self) -> None:
        super().__init__()
        self.embed_x, self.embed_y = nn.Embedding(V_X, H), nn.Embedding(V_Y, H)
        self.encoder = nn.LSTM(H, H)
        self.cell = nn.LSTMCell(H, H)
        self.output = nn.Linear(H, V_Y)

    def forward(self, source: Tensor, inputs: Tensor) -> Iterator[tuple[Tensor, None]]:
        _, (h, c) = self.encoder(self.embed_x(source))
        s, cell = h[0], c[0]
        for y in inputs:
            s, cell = self.cell(self.embed_y(y), (s, cell))
            yield self.output(s), None


class CoNaLa(nn.Module):
    """System of `experiment=conala`, with and without attention."""

    def __init__(self, attends: bool) -> None:
        super().__init__()
        self.embed_x, self.embed_y = nn.Embedding(V_X, E_X), nn.Embedding(V_Y, E_Y)
        self.encoder = nn.LSTM(E_X, H, num_layers=2, bidirectional=True)
        self.start_h, self.start_c = nn.Linear(2 * H, SIZE), nn.Linear(2 * H, SIZE)
        self.attend = ReferenceAttention(2 * H, SIZE, biases=False) if attends else None
        self.decoder = nn.LSTM(E_Y + (2 * H if attends else 0), SIZE, num_layers=2)
        self.output = nn.Linear(SIZE, V_Y)

    def forward(self, source: Tensor, inputs: Tensor) -> Iterator[tuple[Tensor, Tensor | None]]:
        memory, (h, c) = self.encoder(self.embed_x(source))  # final states: two layers x two directions
        start_h = self.start_h(torch.cat([h[2], h[3]]))
        start_c = self.start_c(torch.cat([c[2], c[3]]))
        state = torch.stack([start_h, start_h]), torch.stack([start_c, start_c])
        alpha = None
        for y in inputs:
            x = self.embed_y(y)
            if self.attend is not None:
                context, alpha = self.attend(state[0][1], memory)
                x = torch.cat([x, context])
            top, state = self.decoder(x[None], state)
            yield self.output(top[0]), alpha


class German(nn.Module):
    """System of `experiment=eng_deu`, with and without attention."""

    def __init__(self, attends: bool) -> None:
        super().__init__()
        self.embed_x, self.embed_y = nn.Embedding(V_X, E_X), nn.Embedding(V_Y, E_Y)
        self.encoder = nn.GRU(E_X, H, bidirectional=True)
        self.attend = ReferenceAttention(2 * H, 2 * H, biases=False) if attends else None
        self.cell = nn.GRUCell(E_Y + (2 * H if attends else 0), 2 * H)
        self.output = nn.Linear(2 * H, V_Y)

    def forward(self, source: Tensor, inputs: Tensor) -> Iterator[tuple[Tensor, Tensor | None]]:
        memory, final = self.encoder(self.embed_x(source))
        s, alpha = torch.cat([final[0], final[1]]), None
        for y in inputs:
            x = self.embed_y(y)
            if self.attend is not None:
                context, alpha = self.attend(s, memory)
                x = torch.cat([x, context])
            s = self.cell(x, s)
            yield self.output(s), alpha


# ------------------------------------------------------------------------- ours, with the same weights


def copy_weights(
    theirs: Any,
    *,
    encoder: RecurrentEncoder,
    attention: Attention,
    cell: Any,
    size: int,
    layers: int = 1,
    bridge: Callable[..., nn.Module] = CopyBridge,
    bridge_options: dict[str, Any] | None = None,
    parts: tuple[str, ...] = ("state",),
) -> Seq2Seq:
    """Build a network whose embeddings, encoder, attention and output are copied from `theirs`."""
    width_x, width_y = theirs.embed_x.embedding_dim, theirs.embed_y.embedding_dim
    decoder = BahdanauDecoder(input_size=width_y, attention=attention, cell=cell, size=size, layers=layers)
    ours = assemble(
        encoder,
        decoder,
        bridge=partial(bridge, **(bridge_options or {})),
        source_vocabulary_size=V_X,
        source_width=width_x,
        vocabulary_size=V_Y,
        width=width_y,
        parts=parts,
        dropout=0.4,
    )
    ours.source_embedding.table.load_state_dict(theirs.embed_x.state_dict())
    ours.target_embedding.table.load_state_dict(theirs.embed_y.state_dict())
    encoder.network.load_state_dict(theirs.encoder.state_dict())
    if isinstance(attention, Additive):
        attention.key.load_state_dict(theirs.attend.W_h.state_dict())
        attention.query.load_state_dict(theirs.attend.W_s.state_dict())
        attention.energy.weight.data.copy_(theirs.attend.v.weight)
    ours.readout.output.load_state_dict(theirs.output.state_dict())
    return ours.eval()


def reverse(initial: str) -> tuple[nn.Module, Seq2Seq]:
    theirs = Reverse(initial)
    randomise(theirs)
    encoder = RecurrentEncoder(input_size=E_X, size=H)
    ours = copy_weights(
        theirs,
        encoder=encoder,
        attention=Additive(query_size=SIZE, memory_size=2 * H, size=A, bias=True),
        cell="lstm",
        size=SIZE,
        bridge=ZeroBridge if initial == "zero" else LinearBridge,
        bridge_options={} if initial == "zero" else {"activation": "tanh"},
        parts=("context", "state"),
    )
    ours.decoder.cells.cells[0].load_state_dict(theirs.cell.state_dict())
    if initial != "zero":
        ours.bridge.maps[0][0].load_state_dict(theirs.start_h.state_dict())
        ours.bridge.maps[0][1].load_state_dict(theirs.start_c.state_dict())
    return theirs, ours


def marathi() -> tuple[nn.Module, Seq2Seq]:
    theirs = Marathi()
    randomise(theirs)
    ours = copy_weights(
        theirs,
        encoder=RecurrentEncoder(input_size=E_X, cell="gru", size=H, bidirectional=False),
        attention=Additive(query_size=H, memory_size=H, size=A, bias=True),
        cell="gru",
        size=H,
    )
    weights = theirs.cell.state_dict()
    weights["weight_ih"] = weights["weight_ih"].roll(E_Y, dims=1)  # theirs reads [c; y], ours [y; c]
    ours.decoder.cells.cells[0].load_state_dict(weights)
    return theirs, ours


def marathi_baseline() -> tuple[nn.Module, Seq2Seq]:
    theirs = MarathiBaseline()
    randomise(theirs)
    ours = copy_weights(
        theirs,
        encoder=RecurrentEncoder(input_size=H, size=H, bidirectional=False),
        attention=NoAttention(query_size=H, memory_size=H),
        cell="lstm",
        size=H,
    )
    ours.decoder.cells.cells[0].load_state_dict(theirs.cell.state_dict())
    return theirs, ours


def conala(attends: bool) -> tuple[nn.Module, Seq2Seq]:
    theirs = CoNaLa(attends)
    randomise(theirs)
    sizes = {"query_size": SIZE, "memory_size": 2 * H}
    ours = copy_weights(
        theirs,
        encoder=RecurrentEncoder(input_size=E_X, size=H, layers=2),
        attention=Additive(**sizes, size=A) if attends else NoAttention(**sizes),
        cell="lstm",
        size=SIZE,
        layers=2,
        bridge=LinearBridge,
    )
    for layer, cell in enumerate(ours.decoder.cells.cells):
        names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        cell.load_state_dict({name: getattr(theirs.decoder, f"{name}_l{layer}") for name in names})
    ours.bridge.maps[0][0].load_state_dict(theirs.start_h.state_dict())
    ours.bridge.maps[0][1].load_state_dict(theirs.start_c.state_dict())
    return theirs, ours


def german(attends: bool) -> tuple[nn.Module, Seq2Seq]:
    theirs = German(attends)
    randomise(theirs)
    sizes = {"query_size": 2 * H, "memory_size": 2 * H}
    ours = copy_weights(
        theirs,
        encoder=RecurrentEncoder(input_size=E_X, cell="gru", size=H),
        attention=Additive(**sizes, size=A) if attends else NoAttention(**sizes),
        cell="gru",
        size=2 * H,
    )
    ours.decoder.cells.cells[0].load_state_dict(theirs.cell.state_dict())
    return theirs, ours


SYSTEMS: dict[str, Callable[[], tuple[nn.Module, Seq2Seq]]] = {
    "reverse, from zero": lambda: reverse("zero"),
    "reverse, from the final states": lambda: reverse("final"),
    "eng_mar": marathi,
    "eng_mar_baseline": marathi_baseline,
    "conala": lambda: conala(True),
    "conala_baseline": lambda: conala(False),
    "eng_deu": lambda: german(True),
    "eng_deu_baseline": lambda: german(False),
}

# ------------------------------------------------------------------------------------------------ tests


@pytest.mark.parametrize("system", SYSTEMS)
@torch.no_grad()
def test_same_weights_same_logits(system: str) -> None:
    theirs, ours = SYSTEMS[system]()
    batch = random_batch([5, 2, 7, 1], [3, 6, 0, 4])
    forced = forced_logits(ours, batch)  # [B, T, V]
    stepped, weights = stepwise(ours, batch)  # [B, T, V], [B, T, S]
    for row, (length, labels) in enumerate(zip(batch.source_lengths, batch.labels, strict=True)):
        real = int((labels != PAD).sum())
        steps = theirs(batch.source[row, :length], batch.inputs[row, :real])
        logits, alphas = zip(*steps, strict=True)
        torch.testing.assert_close(forced[row, :real], torch.stack(logits), rtol=0, atol=1e-5)
        torch.testing.assert_close(stepped[row, :real], torch.stack(logits), rtol=0, atol=1e-5)
        if alphas[0] is not None:
            torch.testing.assert_close(weights[row, :real, :length], torch.stack(alphas), rtol=0, atol=1e-6)
        assert not weights[row, :real, length:].any()


@pytest.mark.parametrize("system", SYSTEMS)
def test_same_number_of_parameters(system: str) -> None:
    theirs, ours = SYSTEMS[system]()
    # Theirs has a bias on v, which the softmax cancels, and reverse's bridge even if it starts from zero.
    unused = sum(
        parameter.numel()
        for name, parameter in theirs.named_parameters()
        if name == "attend.v.bias" or (name.startswith("start_") and isinstance(ours.bridge, ZeroBridge))
    )
    assert (
        len(parameters_to_vector(ours.parameters()))
        == len(parameters_to_vector(theirs.parameters())) - unused
    )


@torch.no_grad()
def test_both_forms_of_additive_attention_are_equal() -> None:
    """v·tanh(W [s; h]) with W = [W_s, W_h] is v·tanh(W_s s + W_h h), on image regions as on a sentence."""
    regions, query = torch.randn(2, 17, H), torch.randn(2, SIZE)
    mask = torch.ones(2, 17, dtype=torch.bool)
    ours = Additive(query_size=SIZE, memory_size=H, size=A)
    randomise(ours)
    memory = Memory(regions, mask)
    context, weights, _ = ours(query, memory, ours.project(memory))

    W = torch.cat([ours.query.weight, ours.key.weight], dim=1)  # [A, H + D]
    for row in range(2):
        e = torch.stack(
            [ours.energy.weight[0] @ torch.tanh(W @ torch.cat([query[row], h])) for h in regions[row]]
        )
        alpha = e.softmax(dim=0)
        torch.testing.assert_close(weights[row], alpha, rtol=0, atol=1e-6)
        torch.testing.assert_close(context[row], alpha @ regions[row], rtol=0, atol=1e-5)


@torch.no_grad()
def test_readout_of_state_context_and_previous_token() -> None:
    """y_i = g(s_i, c_i, y_{i-1}): the eng_deu network with a linear g of all three."""
    theirs, _ = german(True)
    theirs.output = nn.Linear(2 * H + 2 * H + E_Y, V_Y)
    randomise(theirs)
    ours = copy_weights(
        theirs,
        encoder=RecurrentEncoder(input_size=E_X, cell="gru", size=H),
        attention=Additive(query_size=2 * H, memory_size=2 * H, size=A),
        cell="gru",
        size=2 * H,
        parts=("state", "context", "input"),
    )
    ours.decoder.cells.cells[0].load_state_dict(theirs.cell.state_dict())
    batch = random_batch([5], [6])
    memory, final = theirs.encoder(theirs.embed_x(batch.source[0]))
    s, expected = torch.cat([final[0], final[1]]), []
    for y in batch.inputs[0]:
        c, _ = theirs.attend(s, memory)
        s = theirs.cell(torch.cat([theirs.embed_y(y), c]), s)
        expected.append(theirs.output(torch.cat([s, c, theirs.embed_y(y)])))
    torch.testing.assert_close(forced_logits(ours, batch)[0], torch.stack(expected), rtol=0, atol=1e-5)
