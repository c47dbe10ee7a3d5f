"""Published systems: with the same weights, the logits of the shipped experiments equal theirs to 1e-5.

Each reference is written from its equations alone and reads one unpadded sentence, one target token at a
time; ours is built from the composed `experiment=…` with tiny sizes and reads a padded batch.
"""

from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch
from omegaconf import DictConfig, OmegaConf
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector

from attnlab.errors import UserError
from attnlab.nn.bridge import ZeroBridge
from attnlab.nn.seq2seq import Seq2Seq
from attnlab.training.build import build_network
from attnlab.types import PAD
from networks import forced_logits, random_batch, randomise, stepwise

V_X, V_Y = 23, 19  # vocabularies
E = 5  # embeddings
H, A = 7, 13  # encoder units in each direction, attention size
SIZE = 11  # decoder units, where they do not follow from the encoder's
WIDTH = 3  # maxout units


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
        self.embed_x, self.embed_y = nn.Embedding(V_X, E), nn.Embedding(V_Y, E)
        self.encoder = nn.LSTM(E, H, bidirectional=True)
        self.start_h, self.start_c = nn.Linear(2 * H, SIZE), nn.Linear(2 * H, SIZE)
        self.attend = ReferenceAttention(2 * H, SIZE, biases=True)
        self.cell = nn.LSTMCell(E + 2 * H, SIZE)
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
        self.embed_x, self.embed_y = nn.Embedding(V_X, E), nn.Embedding(V_Y, E)
        self.encoder = nn.GRU(E, H)
        self.attend = ReferenceAttention(H, H, biases=True)
        self.cell = nn.GRUCell(H + E, H)
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
        self.embed_x, self.embed_y = nn.Embedding(V_X, E), nn.Embedding(V_Y, E)
        self.encoder = nn.LSTM(E, H, num_layers=2, bidirectional=True)
        self.start_h, self.start_c = nn.Linear(2 * H, SIZE), nn.Linear(2 * H, SIZE)
        self.attend = ReferenceAttention(2 * H, SIZE, biases=False) if attends else None
        self.decoder = nn.LSTM(E + (2 * H if attends else 0), SIZE, num_layers=2)
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
        self.embed_x, self.embed_y = nn.Embedding(V_X, E), nn.Embedding(V_Y, E)
        self.encoder = nn.GRU(E, H, bidirectional=True)
        self.attend = ReferenceAttention(2 * H, 2 * H, biases=False) if attends else None
        self.cell = nn.GRUCell(E + (2 * H if attends else 0), 2 * H)
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


class RNNsearch(nn.Module):
    """System of `experiment=rnnsearch`: Bahdanau et al. (2014), section A, with torch's reset gates.

    s_0 = tanh(W_s ←h_1), t̃_i = U s_{i-1} + V E y_{i-1} + C c_i, t_i = max of pairs of t̃_i, logits W t_i.
    """

    def __init__(self) -> None:
        super().__init__()
        self.embed_x, self.embed_y = nn.Embedding(V_X, E), nn.Embedding(V_Y, E)
        self.encoder = nn.GRU(E, H, bidirectional=True)
        self.start_h = nn.Linear(H, SIZE)
        self.attend = ReferenceAttention(2 * H, SIZE, biases=False)
        self.cell = nn.GRUCell(E + 2 * H, SIZE)
        self.deep = nn.Linear(SIZE + 2 * H + E, 2 * WIDTH)
        self.output = nn.Linear(WIDTH, V_Y)

    def forward(self, source: Tensor, inputs: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        memory, _ = self.encoder(self.embed_x(source))
        s = torch.tanh(self.start_h(memory[0, H:]))  # the backward state at the first word
        for y in inputs:
            x = self.embed_y(y)
            context, alpha = self.attend(s, memory)
            pairs = self.deep(torch.cat([s, context, x])).view(WIDTH, 2)
            s = self.cell(torch.cat([x, context]), s)
            yield self.output(pairs.max(dim=1).values), alpha


# ------------------------------------------------------------------------- ours, with the same weights


class System(NamedTuple):
    """A published system, and the settings of `attnlab train` for the same system with tiny sizes."""

    theirs: nn.Module
    settings: tuple[str, ...]


def sizes(**settings: int) -> tuple[str, ...]:
    return tuple(f"{name.replace('_of_', '.')}={value}" for name, value in settings.items())


def compose_network(settings: Sequence[str], composed: Callable[..., DictConfig]) -> Seq2Seq:
    """Build the network of the composed configuration, for the vocabularies of the references."""
    source = SimpleNamespace(size=V_X, tokens=lambda ids: ["x"] * len(ids))  # none is a feature
    vocabularies: Any = SimpleNamespace(source=source, target=SimpleNamespace(size=V_Y))
    return build_network(composed(*settings), vocabularies)


def copy_weights(theirs: Any, ours: Any) -> None:
    """Copy the weights of a reference to our network; fails if our network has other parts or sizes."""
    ours.source_embedding.table.load_state_dict(theirs.embed_x.state_dict())
    ours.target_embedding.table.load_state_dict(theirs.embed_y.state_dict())
    ours.encoder.network.load_state_dict(theirs.encoder.state_dict())
    if (attend := getattr(theirs, "attend", None)) is not None:
        attention = ours.decoder.attention
        attention.key.load_state_dict(attend.W_h.state_dict())
        attention.query.load_state_dict(attend.W_s.state_dict())
        attention.energy.weight.data.copy_(attend.v.weight)
    if hasattr(theirs, "deep"):
        ours.readout.maxout.load_state_dict(theirs.deep.state_dict())
    output = theirs.output.state_dict()
    if isinstance(theirs, Reverse):  # theirs reads [c; s], ours [s; c]
        output["weight"] = output["weight"].roll(SIZE, dims=1)
    ours.readout.output.load_state_dict(output)
    cells = ours.decoder.cells.cells
    if isinstance(theirs, CoNaLa):
        for layer, cell in enumerate(cells):
            names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
            cell.load_state_dict({name: getattr(theirs.decoder, f"{name}_l{layer}") for name in names})
    else:
        weights = theirs.cell.state_dict()
        if isinstance(theirs, Marathi):  # theirs reads [c; y], ours [y; c]
            weights["weight_ih"] = weights["weight_ih"].roll(theirs.embed_y.embedding_dim, dims=1)
        cells[0].load_state_dict(weights)
    if getattr(theirs, "initial", None) != "zero" and hasattr(theirs, "start_h"):
        starts = [theirs.start_h, *([theirs.start_c] if hasattr(theirs, "start_c") else [])]
        for ours_map, their_map in zip(ours.bridge.maps[0], starts, strict=True):
            ours_map.load_state_dict(their_map.state_dict())


SMALL = sizes(embedding_of_size=E, encoder_of_size=H, attention_size=A)
REVERSE = ("experiment=reverse_published", *SMALL, f"decoder.size={SIZE}")
CONALA = ("experiment=conala", *SMALL, f"decoder.size={SIZE}")
GERMAN = ("experiment=eng_deu", *SMALL, f"decoder.size={2 * H}")
SYSTEMS: dict[str, Callable[[], System]] = {
    "reverse, from zero": lambda: System(Reverse("zero"), REVERSE),
    "reverse, from the final states": lambda: System(Reverse("final"), (*REVERSE, "bridge=linear")),
    "eng_mar": lambda: System(Marathi(), ("experiment=eng_mar", *SMALL, f"decoder.size={H}")),
    "eng_mar_baseline": lambda: System(
        MarathiBaseline(), ("experiment=eng_mar_baseline", f"embedding.size={H}")
    ),
    "conala": lambda: System(CoNaLa(True), CONALA),
    "conala_baseline": lambda: System(CoNaLa(False), (*CONALA, "attention=none")),
    "eng_deu": lambda: System(German(True), GERMAN),
    "eng_deu_baseline": lambda: System(German(False), (*GERMAN, "attention=none")),
    "rnnsearch": lambda: System(
        RNNsearch(), ("experiment=rnnsearch", *SMALL, f"decoder.size={SIZE}", f"readout.maxout={WIDTH}")
    ),
}
RECIPES: dict[str, dict[str, Any]] = {
    "reverse_published": {
        **{"embedding.size": 64, "encoder.size": 128, "attention_size": 64, "decoder.size": 128},
        **{"readout.dropout": 0.4, "optimizer._target_": "torch.optim.Adam", "optimizer.lr": 1e-3},
        **{"trainer.gradient_clip_val": 1.0, "trainer.max_epochs": 10, "teacher_forcing.start": 0.5},
        **{"teacher_forcing.per": "step", "batching.batch_size": 64, "batching.source_eos": False},
        **{"data.train_size": 10000, "data.train_lengths": [3, 12], "data.symbols": 47},
        **{"search.beam_size": 1, "loss.terms": {}, "batching.bucket_by_length": False},
    },
    "eng_mar": {
        **{"embedding.size": 256, "encoder.size": 1024, "attention_size": 1024, "decoder.size": 1024},
        **{"optimizer._target_": "torch.optim.Adam", "batching.batch_size": 64, "trainer.max_epochs": 10},
        **{"teacher_forcing.start": 1.0, "readout.dropout": 0.0, "loss.terms": {}},
        **{"data.test_fraction": 0.1, "tokenizer.lowercase": True, "tokenizer.max_size": None},
    },
    "eng_mar_baseline": {
        **{"embedding.size": 50, "encoder.size": 50, "decoder.size": 50, "batching.batch_size": 128},
        **{"optimizer._target_": "torch.optim.RMSprop", "trainer.max_epochs": 50},
        **{"teacher_forcing.start": 1.0, "data.test_fraction": 0.1},
    },
    "conala": {
        **{"embedding.size": 256, "encoder.size": 512, "encoder.layers": 2, "attention_size": 512},
        **{"decoder.size": 512, "decoder.layers": 2, "optimizer._target_": "torch.optim.SGD"},
        **{"optimizer.lr": 0.7, "trainer.gradient_clip_val": 1.0, "trainer.max_epochs": 15},
        **{"teacher_forcing.start": 1.0, "batching.batch_size": 32, "batching.source_eos": True},
        **{"shared_vocabulary": True, "tokenizer.max_size": 8000, "data.max_tokens": 50},
        **{"data.val_fraction": 0.2, "data.keep_unrewritten": False, "loss.terms": {}},
    },
    "eng_deu": {
        **{"embedding.size": 128, "encoder.size": 128, "attention_size": 512, "decoder.size": 256},
        **{"optimizer._target_": "torch.optim.Adam", "batching.batch_size": 64, "trainer.max_epochs": 5},
        **{"teacher_forcing.start": 1.0, "trainer.gradient_clip_val": None, "data.limit": 50000},
        **{"data.val_fraction": 0.1, "data.test_fraction": 0.1, "tokenizer.max_size": 9996},
        **{"tokenizer.lowercase": True, "tokenizer.drop": ["punctuation"], "readout.dropout": 0.0},
        **{"batching.max_source_length": 20, "batching.max_target_length": 21},
        **{"batching.bucket_by_length": False},
    },
    "rnnsearch": {
        **{"embedding.size": 620, "encoder.size": 1000, "attention_size": 1000, "decoder.size": 1000},
        **{"readout.maxout": 500, "optimizer._target_": "torch.optim.Adadelta", "optimizer.rho": 0.95},
        **{"optimizer.eps": 1e-6, "trainer.gradient_clip_val": 1.0, "batching.batch_size": 80},
        **{"batching.pool": 20, "tokenizer.max_size": 30000, "batching.max_source_length": 50},
        **{"batching.max_target_length": 50, "teacher_forcing.start": 1.0, "readout.dropout": 0.0},
    },
}
"""Settings of the published recipes, besides the architecture."""

# ------------------------------------------------------------------------------------------------ tests


@pytest.mark.parametrize("system", SYSTEMS)
@torch.no_grad()
def test_same_weights_same_logits(system: str, composed: Callable[..., DictConfig]) -> None:
    theirs, settings = SYSTEMS[system]()
    randomise(theirs)
    ours = compose_network(settings, composed).eval()
    copy_weights(theirs, ours)
    # Theirs has a bias on v, which the softmax cancels, and reverse's bridge even if it starts from zero.
    unused = sum(
        parameter.numel()
        for name, parameter in theirs.named_parameters()
        if name == "attend.v.bias" or (name.startswith("start_") and isinstance(ours.bridge, ZeroBridge))
    )
    theirs_size = len(parameters_to_vector(theirs.parameters()))
    assert len(parameters_to_vector(ours.parameters())) == theirs_size - unused
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


@pytest.mark.parametrize("name", RECIPES)
def test_recipe_is_the_published_one(name: str, composed: Callable[..., DictConfig]) -> None:
    config = composed(f"experiment={name}")
    assert {setting: OmegaConf.select(config, setting) for setting in RECIPES[name]} == RECIPES[name]


def test_deep_output_of_previous_states_needs_bahdanaus_order(composed: Callable[..., DictConfig]) -> None:
    settings = (*REVERSE, "decoder=luong", "bridge=linear", "readout.parts=[previous_state]")
    with pytest.raises(UserError, match="previous_state is defined for Bahdanau's order only"):
        compose_network(settings, composed)


@torch.no_grad()
def test_sampled_inputs_of_the_deep_output_equal_greedy_search(composed: Callable[..., DictConfig]) -> None:
    ours = compose_network(SYSTEMS["rnnsearch"]().settings, composed).eval()
    randomise(ours)
    batch = random_batch([5, 2], [6, 6])
    forced = torch.zeros_like(batch.inputs, dtype=torch.bool)
    sampled = ours.logits(ours(batch, forced), None)  # [B, T, V]
    torch.testing.assert_close(sampled, stepwise(ours, batch, forced)[0], rtol=0, atol=1e-5)
