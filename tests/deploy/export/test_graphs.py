"""The ONNX graphs of networks; `export` itself compares each graph with its network.

Tests of `attnlab export` cover convolutions, features, copying, and monotonic, shifting, location-based and
hard attention.
"""

from collections.abc import Callable, Sequence
from typing import Any

import onnx
import pytest
import torch
from omegaconf import DictConfig
from torch import Tensor

from attnlab.data.tokenization.train import whitespace
from attnlab.data.tokenization.vocabularies import Vocabularies
from attnlab.deploy.export import graphs
from attnlab.errors import UserError
from attnlab.nn.attention import Additive
from attnlab.training.build import build_network
from networks import make_network
from tiny_runs import TINY


@pytest.mark.slow
@pytest.mark.parametrize("others", [("encoder=transformer", "bridge=zero", "attention=markov"), ()])
def test_graphs_of_self_attention_and_exact_hard_attention(
    others: Sequence[str], composed: Callable[..., DictConfig]
) -> None:
    words = whitespace(["a b c d e f g h"], max_size=None)
    network = build_network(composed(*TINY, "decoder=exact_hard", *others), Vocabularies(words, words)).eval()
    for graph in graphs.export(network):
        onnx.checker.check_model(graph)


@pytest.mark.parametrize("encoder", ["encoder=mingru", "encoder=deltanet", "encoder.layer_norm=true"])
def test_encoders_without_an_operator_are_refused(encoder: str, composed: Callable[..., DictConfig]) -> None:
    words = whitespace(["a b c d e f g h"], max_size=None)
    network = build_network(composed(*TINY, encoder), Vocabularies(words, words)).eval()
    with pytest.raises(UserError, match=r"cannot be exported to ONNX: (the rounds|ONNX has no)"):
        graphs.export(network)


class _Branching(Additive):
    """A mechanism that depends on a value, which tracing cannot follow."""

    def score(self, query: Tensor, keys: Tensor, state: Any) -> Tensor:
        scores = super().score(query, keys, state)
        return scores if float(scores.sum()) > 0 else scores * 2


@pytest.mark.slow
def test_error_names_the_parts_of_a_network_that_cannot_be_traced() -> None:
    network = make_network()
    attention = network.decoder.attention
    traced = _Branching(
        query_size=attention.query_size, memory_size=attention.memory_size, size=13, bias=True
    )
    traced.load_state_dict(attention.state_dict())
    network.decoder.attention = traced
    with pytest.raises(UserError, match=r"_Branching.* cannot be exported to ONNX: ") as raised:
        graphs.export(network)
    assert "\n" not in str(raised.value)


def test_error_states_that_graphs_differ_from_the_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphs, "_trace_encoder", lambda *_: None)
    monkeypatch.setattr(graphs, "_trace_step", lambda *_: None)
    monkeypatch.setattr(graphs, "_difference", lambda *_: float("nan"))
    with torch.no_grad(), pytest.raises(UserError, match="the graphs differ from it by nan"):
        graphs.export(make_network())
