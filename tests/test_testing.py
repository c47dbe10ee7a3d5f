"""Checks of parts from outside: attnlab's own parts pass, and typical slips are named with their line."""

import runpy
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from attnlab.nn.attention import Additive, Attention
from attnlab.nn.encoders import Encoder
from attnlab.testing import PartError, check_attention, check_decoder, check_encoder
from attnlab.types import Memory
from custom_parts import ConvolutionalEncoder, ElmanDecoder
from networks import ATTENTIONS, make_attention, same_sizes

COSINE = """
import torch
from torch import nn
from torch.nn.functional import normalize

from attnlab.nn.attention import Attention


class Cosine(Attention):
    def __init__(self, *, temperature=0.1, **sizes):
        super().__init__(**sizes)
        self.map = nn.Linear(self.query_size, self.memory_size, bias=False)
        self.temperature = temperature

    def project(self, memory):
        return normalize(memory.states, dim=-1)

    def score(self, query, keys, state):
        query = normalize(self.map(query), dim=-1)
        return torch.bmm(query, keys.transpose(1, 2)) / self.temperature
"""
MAPPED = "query = normalize(self.map(query), dim=-1)"
PRODUCT = "torch.bmm(query, keys.transpose(1, 2))"
SLIPS = {
    "no base constructor": (
        "super().__init__(**sizes)",
        "pass",
        r"Cosine\.__init__ .*Call super\(\)\.__init__",
    ),
    "no base class": ("(Attention)", "(nn.Module)", r"Cosine\.__init__ .*raises TypeError"),
    "no transpose": ("keys.transpose(1, 2)", "keys", r"Cosine\.score \(cosine\.py:18\) raises .*, line 20: "),
    "swapped sizes": (
        "(self.query_size, self.memory_size",
        "(self.memory_size, self.query_size",
        r"Cosine\.score .*raises RuntimeError.*, line 19: .*scores \[B, Q, S\] = \[3, 2, 5\]",
    ),
    "swapped axes": (
        PRODUCT,
        "torch.bmm(keys, query.transpose(1, 2))",
        r"Cosine\.score .*shape \[3, 5, 2\], expected \[B, Q, S\] = \[3, 2, 5\]",
    ),
    "another name": (
        "def score",
        "def scores",
        r"Cosine \(cosine\.py\) has no method score.*It has 'scores'",
    ),
    "score without return": ("return torch.bmm", "torch.bmm", r"Cosine\.score .*returns None"),
    "no tensor": ("return torch.bmm", "return 0, torch.bmm", r"Cosine\.score .*returns tuple"),
    "constant": (
        "/ self.temperature",
        "* 0",
        r"Cosine\.score .*same weights for every query and every memory",
    ),
    "detached": (MAPPED, "query = self.map(query).detach()", r"trains none of its parameters, map\.weight"),
    "softmax": (f"{PRODUCT} /", f"{PRODUCT}.softmax(-1) * 10 *", r"Cosine\.score .*weights that sum to 1"),
    "NaN": ("/ self.temperature", "* float('nan')", r"Cosine\.score .*NaN"),
    "padded length": (
        "/ self.temperature",
        "* keys.shape[1]",
        r"Cosine\.score .*keys\.size\(1\) is the padded",
    ),
    "softmax over queries": (MAPPED, "query = self.map(query).softmax(1)", r"Cosine\.forward .*among others"),
    "mean over padding": (
        "return normalize(memory.states, dim=-1)",
        "return memory.states * memory.states.mean(1, keepdim=True)",
        r"Cosine\.score .*depends on the values at padding",
    ),
    "state on the module": (
        MAPPED,
        "self.last = query = self.map(query) + getattr(self, 'last', 0)",
        r"Cosine\.forward .*second call: return state, store none",
    ),
}


@pytest.mark.parametrize("name", ATTENTIONS)
def test_every_mechanism_of_attnlab_passes(name: str) -> None:
    sizes = {"query_size": 12 if same_sizes(name) else 8, "memory_size": 12}
    check_attention(lambda query_size, memory_size: make_attention(name, query_size, memory_size), **sizes)


def test_custom_parts_pass() -> None:
    check_encoder(partial(ConvolutionalEncoder, size=8))
    check_decoder(partial(ElmanDecoder, size=8), Additive(query_size=8, memory_size=12, size=5))


def test_correct_mechanism_passes_and_leaves_the_random_state(tmp_path: Path) -> None:
    state = torch.get_rng_state()
    check_attention(write_cosine(tmp_path, COSINE))
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("slip", SLIPS)
def test_slip_is_named(tmp_path: Path, slip: str) -> None:
    right, wrong, message = SLIPS[slip]
    assert COSINE.count(right) == 1
    with pytest.raises(PartError, match=message):
        check_attention(write_cosine(tmp_path, COSINE.replace(right, wrong)))


def write_cosine(folder: Path, source: str) -> type:
    path = folder / "cosine.py"
    path.write_text(source)
    return runpy.run_path(str(path))["Cosine"]


class Scaled(Additive):
    """Additive attention with a parameter that is not trained."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.scale = nn.Parameter(torch.tensor(2.0), requires_grad=False)

    def score(self, query: Tensor, keys: Tensor, state: Any) -> Tensor:
        return super().score(query, keys, state) * self.scale


def test_unused_parameter_is_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    right, wrong = "self.temperature = temperature", "self.temperature, self.scale = 0.1, nn.Linear(2, 3)"
    check_attention(write_cosine(tmp_path, COSINE.replace(right, wrong)))
    assert "Cosine.forward (cosine.py) does not train scale.weight, scale.bias: no gradient" in caplog.text


class Experts(Additive):
    """Additive attention with a bias for each of more positions than the batch has, and a frozen table."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.bias = nn.ParameterList([nn.Parameter(torch.zeros(())) for _ in range(9)])
        self.table = nn.Parameter(torch.arange(9), requires_grad=False)

    def score(self, query: Tensor, keys: Tensor, state: Any) -> Tensor:
        biases = torch.stack([self.bias[int(place)] for place in self.table[: keys.size(1)]])
        return super().score(query, keys, state) + biases


def test_mechanism_that_chooses_among_its_parameters_passes(caplog: pytest.LogCaptureFixture) -> None:
    check_attention(partial(Experts, size=6))
    assert caplog.text == ""


class Bare(Attention):
    """Has no parameters, and does not call the constructor of its base class."""

    def __init__(self, **settings: Any) -> None:
        self.settings = settings


def test_missing_base_constructor_without_parameters_is_named() -> None:
    with pytest.raises(PartError, match=r"Bare\.__init__ .*does not call super\(\)\.__init__"):
        check_attention(Bare)


def test_mechanism_with_a_frozen_parameter_passes() -> None:
    check_attention(partial(Scaled, size=6))


class PaddedMean(Encoder):
    """Adds the mean over all positions, padding included."""

    def __init__(self, *, input_size: int) -> None:
        super().__init__(memory_size=input_size)

    def forward(self, embedded: Tensor, lengths: Tensor, mask: Tensor) -> Memory:
        return Memory(embedded + embedded.mean(dim=1, keepdim=True), mask)


class StepwiseElman(ElmanDecoder):
    """Its whole pass forgets the last token."""

    def forward(self, embedded: Tensor, *rest: object) -> object:
        return super().forward(torch.cat([embedded[:, :-1], embedded[:, :1]], dim=1), *rest)


def test_encoder_that_reads_padding_is_named() -> None:
    with pytest.raises(PartError, match=r"PaddedMean\.forward .*depends on the values at padding"):
        check_encoder(PaddedMean)


def test_decoder_with_two_different_passes_is_named() -> None:
    with pytest.raises(PartError, match=r"StepwiseElman\.forward .*differs from one call of step"):
        check_decoder(partial(StepwiseElman, size=8), Additive(query_size=8, memory_size=12, size=5))
