from itertools import permutations

import pytest
import torch
from torch import nn

from attnlab.nn.decoders import DecoderOutput
from attnlab.nn.readout import Readout
from networks import randomise

B, T, H, D, E, V, S = 2, 3, 5, 7, 11, 13, 17
SIZES = {"state_size": H, "context_size": D, "input_size": E, "vocabulary_size": V}


def decoded() -> tuple[DecoderOutput, torch.Tensor]:
    output = DecoderOutput(torch.randn(B, T, H), torch.randn(B, T, D), torch.randn(B, T, S))
    return output, torch.randn(B, T, E)


@pytest.mark.parametrize(
    "parts", [p for n in (1, 2, 3) for p in permutations(["state", "context", "input"], n)]
)
@torch.no_grad()
def test_parts_are_concatenated_in_order(parts: tuple[str, ...]) -> None:
    readout = Readout(**SIZES, parts=parts)
    output, embedded = decoded()
    seen = {"state": output.states, "context": output.contexts, "input": embedded}
    features = readout.features(output, embedded)
    assert torch.equal(features, torch.cat([seen[part] for part in parts], dim=-1))
    logits = readout(features)
    assert logits.shape == (B, T, V)
    expected = features @ readout.output.weight.T + readout.output.bias
    torch.testing.assert_close(logits, expected, rtol=0, atol=1e-5)


def test_parts_without_any_width_are_rejected() -> None:
    with pytest.raises(ValueError, match=r"readout.parts=\[context\] is empty: without attention"):
        Readout(**SIZES | {"context_size": 0}, parts=("context",))
    assert Readout(**SIZES | {"context_size": 1}, parts=("context",)).output.in_features == 1


def test_context_of_width_zero_adds_nothing() -> None:
    readout = Readout(**SIZES | {"context_size": 0}, parts=("state", "context"))
    assert readout.output.in_features == H


@torch.no_grad()
def test_maxout_on_a_small_example() -> None:
    """t = (4, -1), U t + b' = (4, -1, 4 - 1, 1 + 1): the maxima of the pairs are 4 and 3, and W doubles."""
    readout = Readout(state_size=2, context_size=0, input_size=1, vocabulary_size=2, maxout=2)
    readout.maxout.weight.copy_(torch.tensor([[1.0, 0], [0, 1], [1, 1], [0, -1]]))
    readout.maxout.bias.copy_(torch.tensor([0.0, 0, 0, 1]))
    readout.output.weight.copy_(2 * torch.eye(2))
    readout.output.bias.zero_()
    output = DecoderOutput(torch.tensor([[[4.0, -1.0]]]), torch.zeros(1, 1, 0), torch.zeros(1, 1, S))
    features = readout.features(output, torch.zeros(1, 1, 1))
    assert features.tolist() == [[[4, 3]]]
    assert readout(features).tolist() == [[[8, 6]]]


def test_dropout_of_the_parts_only_in_training() -> None:
    readout = Readout(**SIZES, parts=("context", "state"), dropout=0.5)
    output, embedded = decoded()
    whole = torch.cat([output.contexts, output.states], dim=-1)
    features = readout.features(output, embedded)
    dropped = features == 0
    assert 0 < dropped.sum() < dropped.numel()
    torch.testing.assert_close(features[~dropped], 2 * whole[~dropped])
    assert torch.equal(readout.eval().features(output, embedded), whole)


def test_tied_weights_share_one_parameter() -> None:
    table = nn.Embedding(V, E)
    readout = Readout(**SIZES | {"state_size": E}, parts=("state",), tied=True, embedding=table)
    assert readout.output.weight is table.weight
    assert isinstance(readout.resize, nn.Identity)
    output = DecoderOutput(torch.randn(B, T, E), torch.randn(B, T, D), torch.randn(B, T, S))
    logits = readout(readout.features(output, torch.randn(B, T, E)))
    torch.testing.assert_close(
        logits, output.states @ table.weight.T + readout.output.bias, rtol=0, atol=1e-5
    )
    logits.sum().backward()
    assert table.weight.grad is not None


@pytest.mark.parametrize(("maxout", "width"), [(None, H + D), (19, 19)])
def test_tied_weights_of_another_width_need_a_linear_map(maxout: int | None, width: int) -> None:
    table = nn.Embedding(V, E)
    readout = Readout(**SIZES, parts=("state", "context"), maxout=maxout, tied=True, embedding=table)
    randomise(readout)
    assert readout.output.weight is table.weight
    assert isinstance(readout.resize, nn.Linear)
    assert readout.resize.weight.shape == (E, width)
    assert readout.resize.bias is None
    assert readout(readout.features(*decoded())).shape == (B, T, V)
