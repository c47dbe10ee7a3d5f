import torch

from attnlab.nn.attention import MultiHead, Shift
from attnlab.nn.bridge import ZeroBridge
from attnlab.nn.decoders import FiniteStateDecoder
from attnlab.nn.encoders import BagEncoder
from networks import SOURCE_WIDTH, TARGET_WIDTH, assemble, random_batch, randomise


def make_decoder(size: int, memory_size: int, **sizes: int) -> FiniteStateDecoder:
    attention = MultiHead(query_size=size, memory_size=memory_size, size=4, heads=2, score=Shift)
    return FiniteStateDecoder(attention=attention, input_size=TARGET_WIDTH, size=size, latches=1 / 3)


def test_steps_equal_the_equations() -> None:
    torch.manual_seed(0)
    encoder = BagEncoder(input_size=SOURCE_WIDTH, size=5)
    network = assemble(encoder, make_decoder(6, 5), bridge=ZeroBridge)
    randomise(network)
    batch = random_batch([4, 2], [3, 5])
    decoder: FiniteStateDecoder = network.decoder  # type: ignore[assignment]
    encoded, state = network.encode(batch)
    embedded = network.target_embedding(batch.inputs)
    output = decoder(embedded, state, encoded.memory, encoded.keys)
    bits, context = torch.zeros(2, 6), torch.zeros(2, 5)
    for step in range(5):
        joined = torch.cat([embedded[:, step], context, bits], dim=1)
        hidden = torch.tanh(joined @ decoder.hidden.weight.T + decoder.hidden.bias)
        kept = torch.cat([bits[:, :2], torch.zeros(2, 4)], dim=1)
        bits = (hidden @ decoder.update.weight.T + decoder.update.bias + kept).sign()
        assert torch.equal(output.states[:, step], bits)
        context = output.contexts[:, step]


def test_gradient_of_a_bit_is_that_of_tanh() -> None:
    decoder = make_decoder(6, 5)
    encoder = BagEncoder(input_size=SOURCE_WIDTH, size=5)
    network = assemble(encoder, decoder, bridge=ZeroBridge)
    randomise(network)
    batch = random_batch([4], [1])
    encoded, state = network.encode(batch)
    embedded = network.target_embedding(batch.inputs)
    decoder(embedded, state, encoded.memory, encoded.keys).states[:, 0].sum().backward()
    joined = torch.cat([embedded[0, 0], torch.zeros(5 + 6)])
    logits = decoder.update(torch.tanh(decoder.hidden(joined)))
    assert decoder.update.bias.grad is not None
    torch.testing.assert_close(decoder.update.bias.grad, 1 - torch.tanh(logits) ** 2)


def test_noise_flips_bits_in_training_only() -> None:
    """A bit whose input is one standard deviation above 0 is 1 with probability Φ(1) = 0.8413."""
    torch.manual_seed(3)
    attention = MultiHead(query_size=4000, memory_size=5, size=4, heads=2, score=Shift)
    decoder = FiniteStateDecoder(attention=attention, input_size=TARGET_WIDTH, size=4000, noise=0.5)
    torch.nn.init.zeros_(decoder.update.weight)
    torch.nn.init.constant_(decoder.update.bias, 0.5)
    network = assemble(BagEncoder(input_size=SOURCE_WIDTH, size=5), decoder, bridge=ZeroBridge)
    batch = random_batch([4], [1])

    def share() -> float:
        encoded, state = network.encode(batch)
        bits = decoder(network.target_embedding(batch.inputs), state, encoded.memory, encoded.keys).states
        return (bits > 0).float().mean().item()

    assert abs(share() - 0.8413) < 0.02  # 3.5 standard errors of 4,000 draws
    network.eval()
    assert share() == 1
