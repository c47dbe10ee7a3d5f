import itertools
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from attnlab.decoding.beam import beam
from attnlab.decoding.targets import score, with_posterior_weights
from attnlab.fast import make_plain
from attnlab.nn.attention import Additive, Attention, LocationSensitive, Markov
from attnlab.nn.cells import Kind
from attnlab.nn.decoders import ExactHardDecoder
from attnlab.nn.encoders import RecurrentEncoder
from attnlab.nn.ensemble import Ensemble
from attnlab.nn.marginal import Marginal, MarginalSeq2Seq
from attnlab.types import PAD, UNK, Batch, Memory
from networks import (
    ENERGY,
    SOURCE_WIDTH,
    SOURCE_WORDS,
    STATE,
    TARGET_WIDTH,
    UNITS,
    assemble,
    assert_sampled_inputs_are_those_of_greedy_search,
    assert_sentences_are_independent,
    let_copy,
    make_batch,
    random_rows,
    randomise,
    stepwise,
)
from networks import make_network as make_seq2seq

V = 6  # special tokens and two others
ADDITIVE = partial(Additive, size=ENERGY)
MECHANISMS: dict[str, Any] = {
    "0th": ADDITIVE,
    "0th with state": partial(LocationSensitive, size=ENERGY, channels=2, kernel=3),
    "1st": partial(Markov, score=ADDITIVE, window=2, monotonic=False),
    "1st monotonic": partial(Markov, score=ADDITIVE, window=2),
}
every_mechanism = pytest.mark.parametrize("name", MECHANISMS)


def make_network(
    name: str, *, layers: int = 1, cell: Kind = "lstm", seed: int = 0, dropout: float = 0.0
) -> MarginalSeq2Seq:
    torch.manual_seed(seed)
    encoder = RecurrentEncoder(input_size=SOURCE_WIDTH, size=UNITS)
    attention = MECHANISMS[name](query_size=STATE, memory_size=encoder.memory_size)
    decoder = ExactHardDecoder(
        input_size=TARGET_WIDTH, attention=attention, size=STATE, layers=layers, cell=cell
    )
    readout = partial(Marginal, dropout=dropout)
    network = assemble(encoder, decoder, vocabulary_size=V, kind=MarginalSeq2Seq, readout=readout)
    randomise(network)
    return network.eval()


def batch_of(source_lengths: list[int], target_lengths: list[int]) -> Batch:
    return make_batch(random_rows(source_lengths, SOURCE_WORDS), random_rows(target_lengths, V))


def transition(network: MarginalSeq2Seq, state: Tensor, memory: Memory, came_from: int) -> Tensor:
    """Return p(a_i | a_{i-1} = came_from) [S] of a state [1, 1, H], in a loop over the positions."""
    attention: Attention = network.decoder.attention
    content = attention.inner.score(state, attention.inner.project(memory), None)[0, 0]  # [S]
    jumps = attention.query(state)[0, 0] + attention.key(memory.states)[0, came_from]  # [W]
    scores = torch.full_like(content, -torch.inf)
    for jump in range(-attention.back, attention.jumps - attention.back):
        if 0 <= came_from + jump < len(scores):
            scores[came_from + jump] = content[came_from + jump] + jumps[jump + attention.back]
    return scores.softmax(dim=0)


def enumerate_alignments(network: MarginalSeq2Seq, batch: Batch) -> tuple[Tensor, Tensor]:
    """Return p(y | x) and p(a | y, x) [T, S] of a single sentence, summed over all S^T alignments."""
    encoded, first = network.encode(batch)
    memory, attention = encoded.memory, network.decoder.attention
    states = network.decoder.states(network.target_embedding(batch.inputs), first.decoder)  # [1, T, H]
    S, labels = batch.source.size(1), batch.labels[0].tolist()
    readout = network.readout
    logits = readout.state(states)[0][:, None] + readout.memory(memory.states)[0]  # [T, S, V]
    emissions = logits.softmax(dim=-1)
    independent = attention(states, memory, encoded.keys, None)[1][0] if not attention.stateful else None
    total, posterior = torch.tensor(0.0), torch.zeros(len(labels), S)
    for alignment in itertools.product(range(S), repeat=len(labels)):
        p, before = torch.tensor(1.0), 0
        for i, (j, label) in enumerate(zip(alignment, labels, strict=True)):
            if independent is None:
                p = p * transition(network, states[:, i : i + 1], memory, before)[j]
            else:
                p = p * independent[i, j]
            p, before = p * emissions[i, j, label], j
        total = total + p
        for i, j in enumerate(alignment):
            posterior[i, j] += p
    return total, posterior / total


@pytest.mark.parametrize("name", ["0th", "1st"])
def test_search_equals_plain(name: str) -> None:
    network, batch = make_network(name), batch_of([4, 2, 3, 4, 1], [1] * 5)
    fast = beam(network, batch, size=3, max_length=6)
    make_plain(network)
    plain = beam(network, batch, size=3, max_length=6)
    assert fast.tokens == plain.tokens
    torch.testing.assert_close(fast.scores, plain.scores, rtol=0, atol=1e-5)


@torch.no_grad()
def test_opposing_scores_of_state_and_memory_are_exact() -> None:
    """The state prefers token 4 by 40 nats, the memory token 5 by 45: p(5) = 1 / (1 + exp(-5))."""
    readout = Marginal(state_size=1, context_size=1, input_size=1, vocabulary_size=V)
    for layer, token, nats in ((readout.state, 4, 40.0), (readout.memory, 5, 45.0)):
        layer.weight.fill_(-100.0)
        layer.weight[token] = 0.0
        layer.weight[9 - token] = -nats
    readout.memory.bias.zero_()
    emissions = readout.emissions(torch.ones(1, 1, 1), Memory(torch.ones(1, 2, 1), torch.ones(1, 2).bool()))
    log_p = readout.mix(emissions, torch.tensor([[[0.3, 0.7]]]))[0, 0]
    torch.testing.assert_close(log_p[4:].exp(), torch.tensor([-5.0, 5.0]).sigmoid())
    likelihood = readout.log_likelihood(emissions, torch.tensor([[5]]))
    torch.testing.assert_close(likelihood[0, 0], torch.tensor([5.0, 5.0]).sigmoid().log())


@pytest.mark.parametrize("name", ["0th", "1st", "1st monotonic"])
@pytest.mark.parametrize("seed", range(3))
@torch.no_grad()
def test_probability_and_posterior_equal_sums_over_all_alignments(name: str, seed: int) -> None:
    network = make_network(name, seed=seed)
    batch = batch_of([4], [2])  # 4^3 alignments, with jumps beyond the window
    total, posterior = enumerate_alignments(network, batch)
    torch.testing.assert_close(score(network, batch).sum(), total.log(), rtol=0, atol=1e-5)
    torch.testing.assert_close(network(batch).weights[0], posterior, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", ["0th", "1st", "1st monotonic"])
def test_gradients_equal_those_of_the_sum_over_all_alignments(name: str) -> None:
    network = make_network(name)
    batch = batch_of([3], [2])
    parameters = dict(network.named_parameters())
    make_plain(network)
    expected = torch.autograd.grad(
        enumerate_alignments(network, batch)[0].log(), [*parameters.values()], allow_unused=True
    )
    log_p = network.logits(network.train()(batch), None).log_softmax(dim=-1)
    total = log_p.gather(-1, batch.labels[..., None]).sum()
    for key, one, two in zip(
        parameters,
        torch.autograd.grad(total, [*parameters.values()], allow_unused=True),
        expected,
        strict=True,
    ):
        assert one is not None, key
        torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-5, msg=key)


@pytest.mark.parametrize("rate", [1.0, 0.5, 0.0])
@pytest.mark.parametrize(("name", "cell"), [*zip(MECHANISMS, itertools.repeat("lstm")), ("0th", "gru")])
@torch.no_grad()
def test_teacher_forcing_and_scheduled_sampling_equal_steps(name: str, cell: Kind, rate: float) -> None:
    network = make_network(name, layers=2, cell=cell)
    batch = batch_of([3, 7], [4, 2])
    forced = torch.rand(batch.inputs.shape) < rate
    logits, weights = stepwise(network, batch, forced)
    real = batch.labels != PAD
    torch.testing.assert_close(
        network.logits(network(batch, forced), None, real), logits[real], rtol=0, atol=1e-5
    )
    torch.testing.assert_close(logits[real].exp().sum(dim=-1), torch.ones(int(real.sum())))
    network.train()  # nothing here depends on the mode except which weights are returned
    torch.testing.assert_close(network(batch, forced).weights[real], weights[real], rtol=0, atol=1e-5)


@every_mechanism
@torch.no_grad()
def test_padding_and_other_sentences_change_no_result(name: str) -> None:
    sources, targets = random_rows([4, 1, 7], SOURCE_WORDS), random_rows([0, 5, 3], V)
    assert_sentences_are_independent(make_network(name), sources, targets, padding=2)


@every_mechanism
@torch.no_grad()
def test_wide_beam_finds_the_most_probable_target_of_all(name: str) -> None:
    network, length = make_network(name, seed=1), 3
    source = random_rows([4], SOURCE_WORDS)
    found = beam(network, make_batch(source), size=100, max_length=length, length_penalty=0.0)
    tokens = range(UNK, V)
    targets = [list(t) for n in range(length + 1) for t in itertools.product(tokens, repeat=n)]
    scores = score(network, make_batch(source * len(targets), targets)).sum(dim=1)
    order = scores.argsort(descending=True).tolist()
    for tokens_of, value, best in zip(found.tokens[0], found.scores[0], order[:10], strict=False):
        assert tokens_of == targets[best]
        assert value == pytest.approx(scores[best].item(), abs=1e-4)


@every_mechanism
@torch.no_grad()
def test_sampled_inputs_are_those_of_greedy_search(name: str) -> None:
    batch = batch_of([3, 7, 5], [6, 6, 6])
    assert_sampled_inputs_are_those_of_greedy_search(make_network(name, seed=2), batch)


@every_mechanism
@torch.no_grad()
def test_alignment_of_a_search_is_the_posterior(name: str) -> None:
    network = make_network(name, seed=2)
    model = Ensemble([network, make_network("0th", seed=1)]) if name == "1st" else network
    batch = batch_of([3, 7, 5], [6, 6, 6])
    hypotheses = with_posterior_weights(model, batch, beam(model, batch, size=3, max_length=6))
    for row, source in enumerate(batch.source.tolist()):
        for tokens, weights in zip(hypotheses.tokens[row], hypotheses.weights[row], strict=True):
            single = make_batch([source[: int(batch.source_lengths[row])]], [tokens])
            torch.testing.assert_close(weights, model(single).weights[0], rtol=0, atol=1e-5)


@torch.no_grad()
def test_ensemble_with_a_network_that_copies() -> None:
    """Copied words have ids from V on; for a network that does not copy, they are UNK in the history."""
    hard = make_network("1st monotonic", seed=1)
    copying = make_seq2seq(vocabulary_size=V, seed=2)
    let_copy(copying, switch=-5.0)
    batch = batch_of([3, 5], [4, 4])
    target = batch.target.clone()
    target[0, 2], target[1, 3] = V, V + 1
    copy_ids = torch.tensor([[V, 4, 5, 0, 0], [5, V, 4, V + 1, V]])
    batch = batch._replace(target=target, copy_ids=copy_ids)
    as_unknown = batch._replace(target=target.masked_fill(target >= V, UNK), copy_ids=None)
    plain = hard(as_unknown).features.exp()  # [B, T, V]
    mixed = copying.logits(copying(batch), copy_ids).exp()  # [B, T, V + S]
    expected = (torch.nn.functional.pad(plain, (0, 5)) + mixed) / 2
    for members in ([hard, copying], [copying, hard]):
        model = Ensemble(members)
        torch.testing.assert_close(model.logits(model(batch), copy_ids).exp(), expected)
        hypotheses = beam(model, batch, size=3, max_length=6)
        copied = [token for row in hypotheses.tokens for tokens in row for token in tokens if token >= V]
        assert copied
        best = [row[0] for row in hypotheses.tokens]
        rows = [source[:length] for source, length in zip(batch.source.tolist(), [3, 5], strict=True)]
        again = make_batch(rows, best)._replace(copy_ids=copy_ids)
        real = again.labels != PAD
        means = (score(model, again) * real).sum(dim=1) / real.sum(dim=1)
        assert means.tolist() == pytest.approx([row[0] for row in hypotheses.scores], abs=1e-5)


@torch.no_grad()
def test_monotonic_alignment_starts_at_the_first_position_and_never_moves_back() -> None:
    network = make_network("1st monotonic")
    weights = network(batch_of([7], [5])).weights[0]  # [T, S]: p(a_i | y, x)
    assert not weights[0, 3:].any()  # window 2 from the first position
    assert weights[0, :3].all()
    expected = torch.arange(7.0) @ weights.T
    assert (expected.diff() > -1e-6).all()


def test_extreme_logits_give_finite_losses_and_gradients() -> None:
    network = make_network("1st monotonic").train()
    with torch.no_grad():
        network.readout.state.weight.mul_(1000)
        network.readout.memory.weight.mul_(-1000)
    batch = batch_of([3, 7], [4, 2])
    log_p = network.logits(network(batch), None, batch.labels != PAD)
    log_p.sum().backward()
    assert log_p.isfinite().all()
    assert all(parameter.grad.isfinite().all() for parameter in network.parameters())


def test_dropout_is_applied_in_training_only() -> None:
    network = make_network("0th", dropout=0.5)
    batch = batch_of([3, 5], [4, 4])
    assert torch.equal(network(batch).features, network(batch).features)
    network.train()
    assert not torch.equal(network(batch).features, network(batch).features)
