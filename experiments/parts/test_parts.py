"""Networks for formal languages and long inputs: against automata, stacks and equations."""

import math
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from attnlab_parts.entropy import Entropy
from attnlab_parts.finite_state import FiniteStateDecoder
from attnlab_parts.flip_flop import FlipFlop, FlipFlopEncoder
from attnlab_parts.gnmt import GNMTDecoder
from attnlab_parts.heads import ShiftHeads
from attnlab_parts.nested import NestedEncoder, PhraseEmbedding
from attnlab_parts.stack import KEEP, POP, PUSH, StackEncoder
from lightning import Trainer
from torch import Tensor, nn

import attnlab
from attnlab.config.compose import compose_run
from attnlab.config.options import config_dirs
from attnlab.data.tokenization.tokenizer import Tokenizer
from attnlab.data.tokenization.train import whitespace
from attnlab.jobs.preflight import any_token, build_on_meta
from attnlab.nn.attention import General, MultiHead, Shift
from attnlab.nn.decoders import DecoderState
from attnlab.nn.encoders import Encoder
from attnlab.testing import check_decoder, check_encoder
from attnlab.training.losses.base import Outputs
from attnlab.training.own_parts import check_parts
from attnlab.types import EOS, PAD, SOS, Batch, Memory

B, S, E, U = 2, 6, 5, 7
D = E + U
MARKS = dict(zip("()", torch.eye(2), strict=True))
"""Of the tokens that open and close a phrase."""

TINY = (
    *("embedding.size=8", "encoder.size=8", "decoder.size=8", "trainer.max_epochs=1", "logger=none"),
    *("data.val_size=4", "data.test_size=4", "trainer.accelerator=cpu", "search.max_length=8"),
    "callbacks.attention_figures.count=0",
)


def encode(encoder: Encoder, embedded: Tensor, lengths: list[int]) -> Memory:
    """Encode embeddings [B, S, E], of which the first `lengths` of each row are real."""
    mask = torch.arange(embedded.size(1)) < torch.tensor(lengths)[:, None]  # [B, S]
    memory: Memory = encoder(embedded, torch.tensor(lengths), mask)
    return memory


@torch.no_grad()
def randomise(module: nn.Module, spread: float = 1.0) -> None:
    """Set large weights."""
    for parameter in module.parameters():
        parameter.uniform_(-spread, spread)


def nested(readings: int = 1) -> NestedEncoder:
    torch.manual_seed(1)
    encoder = NestedEncoder(input_size=readings * E + 2, size=U, values=range(readings)).eval()
    randomise(encoder, 1.5)
    return encoder


def embed(text: str) -> Tensor:
    """Embed one letter per token; only brackets are marked."""
    table = torch.randn(128, E, generator=torch.Generator().manual_seed(3))
    return torch.stack([torch.cat([table[ord(c)], MARKS.get(c, torch.zeros(2))]) for c in text])


def read(encoder: NestedEncoder, state: Tensor, vector: Tensor) -> Tensor:
    """Return the state after a symbol, [U], by a sum over all products."""
    transition = encoder.automaton.transition.view(U, E, U)
    logits = sum(state[i] * vector[j] * transition[i, j] for i in range(U) for j in range(E))
    return F.one_hot(logits.argmax(), U).float()


def evaluate(encoder: NestedEncoder, rest: Iterator[str]) -> Tensor:
    """Return the state at the end of a phrase or of the text: a phrase in brackets is evaluated by itself."""
    state = encoder.automaton.start
    for token in rest:
        if token == ")":
            break
        vector = evaluate(encoder, rest) @ encoder.automaton.phrase if token == "(" else embed(token)[0, :E]
        state = read(encoder, state, vector)
    return state


@pytest.mark.parametrize("text", ["abc", "a(bc)d", "((ab)c(d(ef))g)ha", "(a)", "a(b(c(d(e)f)g)h)"])
@torch.no_grad()
def test_a_phrase_is_evaluated_by_itself(text: str) -> None:
    encoder = nested()
    memory = encode(encoder, embed(text)[None], [len(text)])
    assert torch.equal(memory.hidden[0, 0], evaluate(encoder, iter(text)))
    assert torch.equal(memory.states[0, -1], memory.hidden[0, 0])


@torch.no_grad()
def test_sentences_of_different_depth_share_a_batch() -> None:
    encoder, texts = nested(), ["a(b(cd)e)f(g)", "ab", "(((c)d)e"]
    embedded = torch.randn(3, 13, E + 2)  # any values at padding, also ones that look like brackets
    embedded[..., E:] = 1
    for row, text in enumerate(texts):
        embedded[row, : len(text)] = embed(text)
    memory = encode(encoder, embedded, [len(text) for text in texts])
    for row, text in enumerate(texts):
        alone = encode(encoder, embed(text)[None], [len(text)])
        assert torch.equal(memory.states[row, : len(text)], alone.states[0])
        assert torch.equal(memory.hidden[row], alone.hidden[0])
    assert len({tuple(state.tolist()) for state in memory.states[0]}) > 2


@torch.no_grad()
def test_a_bracket_without_an_opening_one_is_read_in_the_first_state() -> None:
    encoder = nested()
    memory = encode(encoder, embed("ab)c")[None], [4])
    closed = read(encoder, encoder.automaton.start, memory.states[0, 1] @ encoder.automaton.phrase)
    assert torch.equal(memory.states[0, 2], closed)
    assert torch.equal(memory.states[0, 3], read(encoder, closed, embed("c")[0, :E]))


@torch.no_grad()
def test_training_has_probabilities_and_noise() -> None:
    encoder = nested().train()
    embedded = embed("ab")[None]
    encoder.batches.fill_(encoder.ramp)
    first, second = (encode(encoder, embedded, [2]).states for _ in range(2))
    assert not torch.equal(first, second)
    torch.testing.assert_close(first.sum(dim=-1), torch.ones(1, 2))
    encoder.noise = 0.0
    state = encoder.automaton.start
    for vector, expected in zip(embedded[0, :, :E], encode(encoder, embedded, [2]).states[0], strict=True):
        logits = torch.einsum("i,j,iju->u", state, vector, encoder.automaton.transition.view(U, E, U))
        state = torch.softmax(logits, dim=0)
        torch.testing.assert_close(expected, state)


@torch.no_grad()
def test_noise_grows_with_the_batches_of_training() -> None:
    encoder, embedded = nested().train(), embed("a")[None]
    encoder.noise, encoder.ramp = 0.6, 3

    def draw() -> Tensor:
        torch.manual_seed(5)
        logits = encode(encoder, embedded, [1]).states[0, 0].log()
        return logits - logits.mean()

    first, second, third, fourth = (draw() for _ in range(4))
    torch.testing.assert_close(third - second, second - first)
    assert (second - first).abs().max() > 0.1
    assert torch.equal(third, fourth)
    encoder.eval()
    draw()
    assert encoder.batches == 4


@torch.no_grad()
def test_one_of_several_readings_is_selected() -> None:
    encoder, plain, K = nested(readings=3), nested(), 3
    plain.load_state_dict(encoder.state_dict(), strict=False)
    texts = [["a(bf)cfd", "a(bg)cgd", "a(bh)chd"], ["f(e)", "g(e)", "h(e)"], ["ab"] * 3]
    embedded = torch.randn(3, 8, K * E + 2)
    for row, readings in enumerate(texts):
        each = torch.stack([embed(text) for text in readings], dim=1)  # [S, K, E + 2]
        embedded[row, : len(each)] = torch.cat([each[..., :E].flatten(1), each[:, 0, E:]], dim=-1)
    lengths = [len(readings[0]) for readings in texts]
    memory = encode(encoder, embedded, lengths)
    for row, (readings, length) in enumerate(zip(texts, lengths, strict=True)):
        states = torch.stack(
            [encode(plain, embed(text)[None], [length]).states[0] for text in readings]
        )  # [K, S, U]
        scores = torch.tensor([[state @ encoder.score for state in reading] for reading in states])
        weights = scores.exp() / scores.exp().sum(dim=0)
        selected = sum(weights[k, :, None] * states[k] for k in range(K))
        expected = torch.cat([selected, 10 * weights.T], dim=-1)
        torch.testing.assert_close(memory.states[row, :length], expected)
        torch.testing.assert_close(memory.hidden[row, 0], expected[-1])
    assert memory.hidden[0, 0, U:].std() > 0.01  # the readings differ
    torch.testing.assert_close(memory.hidden[2, 0, U:], torch.full((K,), 10 / K))


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return whitespace(["( x + 3 ) = 1 4"])


def test_brackets_and_values_of_an_unknown_are_embedded(tokenizer: Tokenizer) -> None:
    settings = {"vocabulary_size": tokenizer.size, "size": 9, "word_dropout": 0.5}
    embedding = PhraseEmbedding(tokenizer=tokenizer, unknown="x", values=[3, 1, 4], **settings).eval()
    embedded = embedding(torch.tensor([tokenizer.encode("( x + 3 ) = 1")]))[0]  # [S, 3·E + 2]
    assert embedding.width == embedded.size(1) == 3 * 9 + 2
    for k, value in enumerate("314"):
        expected = embedding.table.weight[tokenizer.encode(f"( {value} + 3 ) = 1")]
        assert torch.equal(embedded[:, 9 * k : 9 * (k + 1)], expected)
    assert embedded[:, -2:].tolist() == [[1, 0], [0, 0], [0, 0], [0, 0], [0, 1], [0, 0], [0, 0]]
    plus = torch.tensor([tokenizer.encode("+ (")])
    factors = torch.tensor([0.0, 2.0])[None, :, None].expand(1, 2, 9)
    dropped = embedding(plus, factors)[0]
    assert torch.equal(dropped[:, :-2], torch.tensor([[0.0], [2.0]]) * embedding(plus)[0, :, :-2])
    assert dropped[1, -2:].tolist() == [1, 0]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"brackets": ["[", ")"]}, r"brackets: the training sources have no '\['"),
        ({"brackets": ["("]}, "must be two tokens"),
        ({"unknown": "x"}, "set both or none"),
        ({"values": [3, 4]}, "set both or none"),
        ({"unknown": "y", "values": [3]}, "unknown: the training sources have no 'y'"),
        ({"unknown": "x", "values": [3, 7]}, "values: the training sources have no '7'"),
    ],
)
def test_tokens_that_cannot_be_marked_are_refused(
    settings: dict[str, Any], message: str, tokenizer: Tokenizer
) -> None:
    with pytest.raises(ValueError, match=message):
        PhraseEmbedding(tokenizer=tokenizer, vocabulary_size=tokenizer.size, size=2, **settings)


def stack_step(encoder: StackEncoder, x: Tensor, top: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """Return the next state [U] and the logits of the actions [3]."""
    hidden = torch.tanh(encoder.hidden.weight @ torch.cat([x, top, state]) + encoder.hidden.bias)
    state = (encoder.update.weight @ hidden + encoder.update.bias).sign()
    return state, encoder.action.weight @ hidden + encoder.action.bias


@torch.no_grad()
def test_evaluation_is_a_pushdown_automaton() -> None:
    torch.manual_seed(1)
    encoder = StackEncoder(input_size=E, size=U).eval()
    randomise(encoder, 1.5)
    encoder.action.bias.copy_(torch.tensor([1.0, 0, 0]))
    embedded, lengths = torch.randn(3, 9, E), [9, 4, 6]
    memory = encode(encoder, embedded, lengths)
    seen = set()
    for row, length in enumerate(lengths):
        stack: list[Tensor] = []  # top last
        state = torch.zeros(U)
        for t in range(length):
            top = stack[-1] if stack else torch.zeros(D)
            state, logits = stack_step(encoder, embedded[row, t], top, state)
            action = int(logits.argmax())
            seen.add((action, bool(stack)))
            if action == PUSH:
                stack.append(torch.cat([embedded[row, t], state]))
            elif action == POP and stack:
                stack.pop()
        cells = [*reversed(stack), *[torch.zeros(D)] * (length - len(stack))]
        assert torch.equal(memory.states[row, :length], torch.stack(cells))
        assert torch.equal(memory.hidden[row, 0], torch.cat([embedded[row, length - 1], state]))
    assert {(PUSH, True), (POP, True), (KEEP, True)} <= seen


@torch.no_grad()
def test_training_mixes_the_stacks_of_all_actions() -> None:
    torch.manual_seed(0)
    encoder = StackEncoder(input_size=E, size=U, noise=0.0).train()
    randomise(encoder)
    S = 6
    embedded = torch.randn(1, S, E)
    memory = encode(encoder, embedded, [S])
    down = torch.diag(torch.ones(S), -1)  # [S + 1, S + 1]: moves every symbol down
    stack, state = torch.zeros(S + 1, D), torch.zeros(U)
    for t in range(S):
        state, logits = stack_step(encoder, embedded[0, t], stack[0], state)
        pushed = down @ stack
        pushed[0] = torch.cat([embedded[0, t], state])
        push, pop, keep = logits.softmax(dim=0)
        stack = push * pushed + pop * (down.T @ stack) + keep * stack
    torch.testing.assert_close(memory.states[0], stack[:S], rtol=0, atol=1e-5)


def test_noise_is_only_in_training() -> None:
    encoder = StackEncoder(input_size=E, size=U)
    embedded = torch.randn(2, 7, E)
    assert not torch.equal(*(encode(encoder, embedded, [7, 5]).states for _ in range(2)))
    encoder.eval()
    assert torch.equal(*(encode(encoder, embedded, [7, 5]).states for _ in range(2)))


@torch.no_grad()
def test_flip_flops_hold_set_reset_and_toggle() -> None:
    encoder = FlipFlopEncoder(input_size=E, size=U, layers=1).eval()
    randomise(encoder, 1.5)
    lengths = [S, 4]
    embedded = torch.randn(B, S, E)
    states = encode(encoder, embedded, lengths).states
    actions = set()
    for part, backward in zip(encoder.parts, (False, True), strict=True):
        for row, length in enumerate(lengths):
            bits, previous = [0] * U, torch.zeros(E)
            positions = range(length - 1, -1, -1) if backward else range(length)
            for t in positions:
                sets, resets = (part.input(torch.cat([previous, embedded[row, t]])) > 0).chunk(2)
                previous = embedded[row, t]
                for unit, action in enumerate(zip(sets.tolist(), resets.tolist(), strict=True)):
                    match action:
                        case (True, False):
                            bits[unit] = 1
                        case (False, True):
                            bits[unit] = -1
                        case (True, True):
                            bits[unit] = -bits[unit]
                    actions.add((action, bits[unit] != 0))
                assert states[row, t].chunk(2)[backward].tolist() == bits
    assert {(action, True) for action in product((False, True), repeat=2)} <= actions


def test_flip_flops_have_a_straight_through_gradient() -> None:
    layer = FlipFlop(input_size=E, size=1)
    x = torch.randn(1, 1, E)
    bit = layer(x, torch.ones(1, 1, dtype=torch.bool)).sum()  # J - K, as there is no state before
    bit.backward()
    logits = layer.input(torch.cat([0 * x, x], dim=-1))[0, 0].detach()  # [2]
    torch.testing.assert_close(
        layer.input.bias.grad, (1 - torch.tanh(logits) ** 2) * torch.tensor([0.5, -0.5])
    )


def finite_state(size: int = 6, **settings: float) -> FiniteStateDecoder:
    torch.manual_seed(0)
    attention = MultiHead(query_size=size, memory_size=5, size=4, heads=2, score=Shift)
    decoder = FiniteStateDecoder(attention=attention, input_size=E, size=size, **settings)
    randomise(decoder)
    return decoder


def memory_of(lengths: list[int]) -> Memory:
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    return Memory(torch.randn(len(lengths), max(lengths), 5), mask)


def begin(decoder: FiniteStateDecoder, memory: Memory) -> tuple[DecoderState, Tensor]:
    """Return the initial state, with bits of 0, and the keys."""
    layers = ((torch.zeros(len(memory.states), 1, decoder.output_size),),)
    return decoder.begin(layers, memory), decoder.attention.project(memory)


@pytest.mark.parametrize(("share", "latches"), [(0.0, 0), (1 / 3, 2), (0.4, 3), (1.0, 6)])
def test_share_of_latches_is_rounded_up(share: float, latches: int) -> None:
    assert finite_state(latches=share).kept.tolist() == [1.0] * latches + [0.0] * (6 - latches)


@torch.no_grad()
def test_bits_and_latches_equal_the_equations() -> None:
    decoder, memory = finite_state(latches=1 / 3), memory_of([4, 2])
    state, keys = begin(decoder, memory)
    bits, context = torch.zeros(2, 6), torch.zeros(2, 5)
    for _ in range(5):
        inputs = torch.randn(2, E)
        joined = torch.cat([inputs, context, bits], dim=1)
        hidden = torch.tanh(joined @ decoder.hidden.weight.T + decoder.hidden.bias)
        kept = torch.cat([bits[:, :2], torch.zeros(2, 4)], dim=1)
        bits = (hidden @ decoder.update.weight.T + decoder.update.bias + kept).sign()
        output, state = decoder.step(inputs[:, None], state, memory, keys)
        assert torch.equal(output.states[:, 0], bits)
        context = output.contexts[:, 0]


def test_gradient_of_a_bit_is_that_of_tanh() -> None:
    decoder, memory, inputs = finite_state(), memory_of([4]), torch.randn(1, 1, E)
    state, keys = begin(decoder, memory)
    decoder.step(inputs, state, memory, keys)[0].states.sum().backward()
    joined = torch.cat([inputs[0, 0], torch.zeros(5 + 6)])
    logits = decoder.update(torch.tanh(decoder.hidden(joined)))
    assert decoder.update.bias.grad is not None
    torch.testing.assert_close(decoder.update.bias.grad, 1 - torch.tanh(logits) ** 2)


@torch.no_grad()
def test_noise_flips_bits_in_training_only() -> None:
    """A bit whose input is one standard deviation above 0 is 1 with probability Φ(1) = 0.8413."""
    decoder, memory = finite_state(4000, noise=0.5), memory_of([4])
    torch.nn.init.zeros_(decoder.update.weight)
    torch.nn.init.constant_(decoder.update.bias, 0.5)

    def share() -> float:
        state, keys = begin(decoder, memory)
        return (decoder.step(torch.randn(1, 1, E), state, memory, keys)[0].states > 0).float().mean().item()

    assert abs(share() - 0.8413) < 0.02  # 3.5 standard errors of 4,000 draws
    decoder.eval()
    assert share() == 1


def test_weight_of_the_entropy_grows_with_the_square_of_the_progress() -> None:
    target = torch.tensor([[SOS, 4, EOS], [SOS, EOS, PAD]])
    batch = Batch(torch.zeros(2, 3), torch.tensor([3, 3]), target, torch.arange(2))
    weights = torch.tensor([[[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]], [[0.25, 0.25, 0.5], [0.2, 0.3, 0.5]]])
    mean = 2.5 * math.log(2) / 3  # of the entropies ln 2, 0 and 1.5 ln 2 of the real tokens
    outputs = Outputs(weights, torch.empty(0), torch.empty(0))
    values = [Entropy(weight=2.0)(outputs, batch, progress).item() for progress in (0.0, 0.5, 1.0)]
    assert values == pytest.approx([0.0, 0.5 * mean, 2 * mean])


def test_flip_flops_keep_the_contract_of_encoders() -> None:
    check_encoder(partial(FlipFlopEncoder, size=4))


@pytest.mark.parametrize("cell", ["lstm", "gru"])
@pytest.mark.parametrize("residual", [False, True])
@torch.no_grad()
def test_gnmt_equals_torch_layers_over_whole_targets(cell: str, residual: bool) -> None:
    """NVIDIA's loop: x = rnn¹(y), c = attend(x), x = rnnˡ([x; c]), from the third on residual."""
    layers, H = 4, 6
    attention = General(query_size=H, memory_size=5)
    options: dict[str, Any] = {"cell": cell, "layers": layers, "residual": residual}
    decoder = GNMTDecoder(attention=attention, input_size=E, size=H, **options)
    randomise(decoder)
    memory, embedded = memory_of([4, 2]), torch.randn(2, 6, E)
    states = tuple(
        tuple(torch.randn(2, 1, H) for _ in range(decoder.state_shape.states_per_layer))
        for _ in range(layers)
    )
    keys = attention.project(memory)
    x = embedded
    for layer, first in enumerate(states):
        theirs = (nn.LSTM if cell == "lstm" else nn.GRU)(x.size(2), H, batch_first=True)
        ours = decoder.cells[layer].state_dict()
        theirs.load_state_dict({f"{name}_l0": parameter for name, parameter in ours.items()})
        begin = tuple(part.transpose(0, 1) for part in first)  # [1, B, H]
        read = x[..., :H]
        x, _ = theirs(x, begin if cell == "lstm" else begin[0])
        if layer == 0:
            contexts, _, _ = attention(x, memory, keys, None)
        if residual and layer >= 2:
            x = x + read
        top, x = x, torch.cat([x, contexts], dim=-1)
    output = decoder(embedded, decoder.begin(states, memory), memory, keys)
    torch.testing.assert_close(output.states, top, rtol=0, atol=1e-5)


def test_heads_start_at_different_places() -> None:
    """Shares e³ : 1 : 1 of the first position, the last one and content, for heads 0, 1 and 2 and again."""
    heads = ShiftHeads(query_size=3, memory_size=4, size=10, heads=5, start_bias=3.0)
    large, small = (torch.tensor([math.e**3, 1.0]) / (math.e**3 + 2)).tolist()
    for number, head in enumerate(heads.heads):
        expected = [large if place == number % 3 else small for place in range(3)]
        assert head.start.softmax(0).tolist() == pytest.approx(expected)


def test_decoders_keep_the_contract() -> None:
    check_decoder(partial(FiniteStateDecoder, size=6), Shift(query_size=6, memory_size=5))
    check_decoder(partial(GNMTDecoder, size=6), Shift(query_size=6, memory_size=5))


OPTIONS = str(Path(__file__).parent / "conf")

EQUATIONS = ("data.task=solve_equation", "embedding.unknown=x", "embedding.values=[0,1,2,3,4]")


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        ("experiment=lengths",),
        ("experiment=formal", "encoder=stack", "~encoder.layers", "~encoder.positions"),
        ("experiment=formal", "encoder=flip_flop", "~encoder.positions"),
        ("experiment=expressions",),
        ("experiment=expressions", *EQUATIONS),
        ("data.task=sort", "decoder=gnmt", "decoder.layers=2"),
    ],
    ids=lambda settings: settings[-1],
)
def test_parts_keep_their_contracts_with_the_settings_of_their_experiments(settings: tuple[str, ...]) -> None:
    with config_dirs([OPTIONS]):
        config = compose_run([*settings, "attention_size=12"])
        assert [*check_parts(config, build_on_meta(config), any_token())]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::lightning.fabric.utilities.warnings.PossibleUserWarning")
@pytest.mark.parametrize(
    "overrides",
    [
        [
            *("experiment=formal", "data.task=duplicate_string", "data.train_size=64"),
            *("encoder=stack", "~encoder.layers", "~encoder.positions"),
        ],
        ["experiment=lengths", "data.task=reverse", "data.train_size=64", "longer_lengths=[12,12]"],
    ],
    ids=["formal", "lengths"],
)
def test_experiments_train(overrides: list[str], tmp_path: Path) -> None:
    with config_dirs([OPTIONS]):
        module, data = attnlab.build([*overrides, *TINY])
    arguments: dict[str, Any] = {"default_root_dir": tmp_path, "logger": False, "enable_progress_bar": False}
    trainer = Trainer(accelerator="cpu", max_epochs=1, **arguments)
    before = [parameter.clone() for parameter in module.parameters()]
    trainer.fit(module, data)
    trainer.test(module, data, verbose=False)
    assert [*tmp_path.glob("checkpoints/*.ckpt")]
    assert any(not value.equal(after) for value, after in zip(before, module.parameters(), strict=True))


@pytest.mark.slow
def test_experiment_trains_by_the_command_with_the_folder_of_options(tmp_path: Path) -> None:
    program = [sys.executable, "-c", "from attnlab.cli.main import main; main()", "train"]
    options = ["--config-dir", OPTIONS, "experiment=expressions", "data.train_size=64", *TINY]
    done = subprocess.run([*program, *options], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert len([*tmp_path.glob("outputs/*/*/checkpoints/best.ckpt")]) == 1
