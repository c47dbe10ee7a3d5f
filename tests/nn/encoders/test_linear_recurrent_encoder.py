import pytest
import torch

from attnlab.nn.encoders import MinGRUEncoder
from attnlab.nn.encoders.linear_recurrent import MinGRU
from attnlab.nn.scan import scan
from networks import randomise

B, S, E, U = 2, 7, 3, 5


@torch.no_grad()
def test_mingru_equals_the_equations_of_the_paper() -> None:
    """Appendix B.3: h̃ = g(linear_h(x)), h = (1 - z) h + z h̃."""
    layer = MinGRU(input_size=E, size=U)
    randomise(layer)
    x, h = torch.randn(S, E), torch.zeros(U)
    states = scan(*layer.coefficients(x[None]))[0]
    (W_z, W_h), (b_z, b_h) = layer.input.weight.chunk(2), layer.input.bias.chunk(2)
    for t in range(S):
        z, candidate = torch.sigmoid(W_z @ x[t] + b_z), W_h @ x[t] + b_h
        g = torch.where(candidate >= 0, candidate + 0.5, candidate.sigmoid())
        h = (1 - z) * h + z * g
        torch.testing.assert_close(states[t], h, rtol=0, atol=1e-6)


@torch.no_grad()
def test_mingru_equals_the_published_package() -> None:
    package = pytest.importorskip("minGRU_pytorch.minGRU")
    theirs = package.minGRU(E)
    layer = MinGRU(input_size=E, size=E)
    torch.nn.init.zeros_(layer.input.bias)
    candidate, gate = theirs.to_hidden_and_gate.weight.chunk(2)
    layer.input.weight.copy_(torch.cat([gate, candidate]))
    x = torch.randn(B, S, E)
    torch.testing.assert_close(scan(*layer.coefficients(x)), theirs(x), rtol=0, atol=1e-5)


def test_gradients_are_finite_at_extreme_inputs() -> None:
    network = MinGRUEncoder(input_size=E, size=U)
    embedded = (torch.randn(B, S, E) * 1e4).requires_grad_()
    lengths = torch.tensor([S, 2])
    memory = network(embedded, lengths, torch.arange(S) < lengths[:, None])
    (memory.states.sum() + memory.hidden.sum()).backward()
    assert embedded.grad.isfinite().all()
    assert all(parameter.grad.isfinite().all() for parameter in network.parameters())


@pytest.mark.parametrize("bidirectional", [False, True])
@torch.no_grad()
def test_final_state_is_the_last_forward_and_the_first_backward_output(bidirectional: bool) -> None:
    encoder = MinGRUEncoder(input_size=E, size=U, bidirectional=bidirectional)
    lengths = torch.tensor([4, 7])
    memory = encoder(torch.randn(B, S, E), lengths, torch.arange(S) < lengths[:, None])
    assert memory.hidden.shape == (B, 2, encoder.memory_size)
    for row, length in enumerate(lengths.tolist()):
        top = memory.hidden[row, -1]
        torch.testing.assert_close(top[:U], memory.states[row, length - 1, :U])
        torch.testing.assert_close(top[U:], memory.states[row, 0, U:])
        assert not memory.states[row, length:].any()
