"""Custom mechanisms outside the package: a score is enough, and wrong arguments are errors."""

from functools import partial
from typing import Any, Unpack

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnlab.nn.attention import Attention
from attnlab.nn.attention.base import Sizes
from attnlab.types import PAD, Memory
from networks import (
    ARGUMENTS,
    ATTENTIONS,
    ORDERS,
    forced_logits,
    make_attention,
    make_network,
    random_batch,
    same_sizes,
    stepwise,
)


class Sums(Attention):
    """Scores that are products of sums: no constructor, no parameters, any sizes."""

    def score(self, query: Tensor, keys: Tensor, state: Any) -> Tensor:
        return query.sum(dim=-1, keepdim=True) * keys.sum(dim=-1)[:, None]


class Scaled(Attention):
    """Mechanism with an additional parameter and constructor argument."""

    def __init__(self, *, scale: float, **sizes: Unpack[Sizes]) -> None:
        super().__init__(**sizes)
        self.key = nn.Linear(self.memory_size, self.query_size, bias=False)
        self.scale = scale

    def project(self, memory: Memory) -> Tensor:
        return self.key(memory.states)

    def score(self, query: Tensor, keys: Tensor, state: Any) -> Tensor:
        return self.scale * torch.bmm(query, keys.transpose(1, 2))


def make(name: str) -> Attention:
    sizes: Sizes = {"query_size": 7, "memory_size": 4}
    return Sums(**sizes) if name == "Sums" else Scaled(scale=0.5, **sizes)


custom = pytest.mark.parametrize("name", ["Sums", "Scaled"])


@custom
@pytest.mark.parametrize("order", ORDERS)
def test_custom_mechanism_trains_and_decodes_in_every_decoder(name: str, order: str) -> None:
    network = make_network(order=order)
    network.decoder.attention = make(name).eval()
    batch = random_batch([3, 7, 1, 5], [4, 2, 5, 3])
    logits = forced_logits(network, batch)
    torch.testing.assert_close(logits, stepwise(network, batch)[0], rtol=0, atol=1e-5)
    F.cross_entropy(logits.flatten(0, 1), batch.labels.flatten(), ignore_index=PAD).backward()
    assert all(parameter.grad.any() for parameter in network.decoder.parameters())


UNSUITABLE = {
    "Forward": ["Monotonic"],
    "Hard": ["NoAttention", "Final", "Monotonic", "Hard"],
    **{name: ["Final", "CoverageSee", "LocalP"] for name in ("LocalM", "LocalP", "Shift")},
    "MultiHead": ["NoAttention", "Final", "MultiHead"],
}
"""Mechanisms over the scores of another one, and mechanisms without scores, with a state or other weights."""


@pytest.mark.parametrize(
    ("name", "inner"), [(name, inner) for name in UNSUITABLE for inner in UNSUITABLE[name]]
)
def test_unsuitable_inner_mechanism_is_rejected(name: str, inner: str) -> None:
    score = partial(ATTENTIONS[inner], **ARGUMENTS.get(inner, {}))
    with pytest.raises(ValueError, match=rf"attention\.score cannot be {inner}: "):
        ATTENTIONS[name](query_size=4, memory_size=4, **{**ARGUMENTS.get(name, {}), "score": score})


@pytest.mark.parametrize("name", ATTENTIONS)
def test_unknown_argument_is_an_error_that_names_it(name: str) -> None:
    attention = make_attention(name, 11 if same_sizes(name) else 7, 11)
    arguments = {"query_size": attention.query_size, "memory_size": 11, "normalizer": None}
    with pytest.raises(TypeError, match="normalizer"):
        ATTENTIONS[name](**arguments, **ARGUMENTS.get(name, {}))
