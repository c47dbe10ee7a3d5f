import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from attnlab.nn.encoders import DeltaNetEncoder
from attnlab.nn.encoders.delta import DeltaRule
from networks import randomise

B, S, E, N, U = 2, 5, 3, 2, 14
d = U // N


def matrix_recurrence(layer: DeltaRule, x: Tensor) -> Tensor:
    """Return h [S, U] of a single sentence [S, E], with the transition matrices of the papers."""
    parts = [F.silu(part) for part in layer.input(x).chunk(3, dim=-1)]  # q, k, v, each [S, U]
    q, k, v = (part.view(len(x), N, d) for part in parts)
    memory, outputs = [torch.zeros(d, d) for _ in range(N)], []
    for t in range(len(x)):
        read = []
        for head in range(N):
            key = k[t, head] / k[t, head].norm()
            rate = torch.sigmoid(layer.rate(x[t]))[head]
            decay = torch.tensor(1.0)
            if layer.decay is not None:
                decay = torch.exp(-layer.speed[head].exp() * F.softplus(layer.decay(x[t])[head]))
            transition = decay * (torch.eye(d) - rate * torch.outer(key, key))
            memory[head] = memory[head] @ transition + rate * torch.outer(v[t, head], key)
            read.append(layer.norm(memory[head] @ (q[t, head] / q[t, head].norm())))
        outputs.append(layer.residual(x[t]) + layer.output(torch.cat(read)))
    return torch.stack(outputs)


@pytest.mark.parametrize("decay", [False, True])
def test_layer_equals_the_recurrence_of_the_papers(decay: bool) -> None:
    layer = DeltaRule(input_size=E, size=U, heads=N, decay=decay)
    randomise(layer)
    x, lengths = torch.randn(B, S, E), [5, 3]
    outputs = layer(x, torch.arange(S) < torch.tensor(lengths)[:, None])
    for row, length in enumerate(lengths):
        expected = matrix_recurrence(layer, x[row, :length])
        torch.testing.assert_close(outputs[row, :length], expected, rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_directions_read_the_source_from_their_ends() -> None:
    encoder = DeltaNetEncoder(input_size=E, size=U, layers=1, heads=N).eval()
    x = torch.randn(1, S, E)
    memory = encoder(x, torch.tensor([S]), torch.ones(1, S, dtype=torch.bool))
    backward = matrix_recurrence(encoder.parts[1], x[0].flip(0)).flip(0)
    torch.testing.assert_close(memory.states[0, :, U:], backward, rtol=1e-4, atol=1e-5)
    last = torch.cat([memory.states[0, -1, :U], memory.states[0, 0, U:]])
    torch.testing.assert_close(memory.hidden[0, 0], last)


def test_heads_must_divide_the_size() -> None:
    with pytest.raises(ValueError, match=r"encoder\.heads=3 must divide encoder\.size=14"):
        DeltaNetEncoder(input_size=E, size=U, heads=3)
