"""Greedy and beam search against plain loops over teacher-forced passes."""

import math
from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from attnlab.decoding.beam import _extend, beam, top_continuations
from attnlab.decoding.constraints import Constraints
from attnlab.decoding.sampling import Sampler
from attnlab.decoding.search import argmax, greedy, sample
from attnlab.decoding.targets import score as score_targets
from attnlab.nn.seq2seq import Seq2Seq, TranslationModel
from attnlab.types import EOS, PAD, SOS, Batch, Hypotheses
from networks import MIXED, ORDERS, make_batch, random_batch, stepwise
from plain_search import make, plain_beam, plain_greedy, restriction, single

WORDS = 6  # PAD, SOS, EOS, UNK and two more: an untrained network may produce the last four
SEEDS = st.integers(0, 10_000)
PENALTIES = st.sampled_from([0.0, 0.6, 1.0, 2.0])
LENGTHS = st.lists(st.integers(1, 7), min_size=1, max_size=4)


def assert_equal(one: Hypotheses, two: Hypotheses) -> None:
    assert one.tokens == two.tokens
    for field, tolerance in (("scores", 1e-4), ("log_p", 1e-4), ("weights", 1e-5)):
        torch.testing.assert_close(getattr(one, field), getattr(two, field), rtol=0, atol=tolerance)


def forced_weights(network: Seq2Seq, sentence: Batch, tokens: list[int]) -> Tensor:
    """Return the attention weights of a teacher-forced pass, [length + 1, S]."""
    with torch.no_grad():
        return stepwise(network, sentence._replace(target=torch.tensor([[SOS, *tokens, EOS]])))[1][0]


def token_log_probabilities(network: Seq2Seq, sentence: Batch, tokens: list[int]) -> list[float]:
    """Return the log-probabilities of given tokens and of EOS by a teacher-forced pass."""
    return score_targets(network, sentence._replace(target=torch.tensor([[SOS, *tokens, EOS]])))[0].tolist()


@pytest.mark.parametrize("order", ORDERS)
@given(seed=SEEDS, lengths=LENGTHS, ends=st.sampled_from([-2.0, 0.0, 2.0]))
@settings(max_examples=5)
def test_greedy_equals_the_plain_loop(order: str, seed: int, lengths: list[int], ends: float) -> None:
    network = make(seed, ends=ends, order=order)
    batch = random_batch(lengths)
    hypotheses = greedy(network, batch, max_length=5)
    for row, ([tokens], [score], [weights], [log_p]) in enumerate(zip(*hypotheses, strict=True)):
        sentence = single(batch, row)
        expected, expected_score = plain_greedy(network, sentence, 5)
        assert tokens == expected
        assert score == pytest.approx(expected_score, abs=1e-4)
        assert log_p == pytest.approx(token_log_probabilities(network, sentence, tokens), abs=1e-4)
        expected_weights = forced_weights(network, sentence, tokens)
        torch.testing.assert_close(weights, expected_weights, rtol=0, atol=1e-5)


@pytest.mark.slow
@given(
    seed=SEEDS,
    lengths=LENGTHS,
    size=st.sampled_from([2, 3, 7]),  # 7 exceeds the vocabulary
    ends=st.sampled_from([-2.0, 0.0, 2.0]),
    length_penalty=PENALTIES,
)
@settings(max_examples=12)
def test_beam_equals_the_plain_loop(
    seed: int, lengths: list[int], size: int, ends: float, length_penalty: float
) -> None:
    network = make(seed, ends=ends, vocabulary_size=WORDS)
    batch = random_batch(lengths)
    hypotheses = beam(network, batch, size=size, max_length=4, length_penalty=length_penalty)
    for row, (tokens, scores) in enumerate(zip(hypotheses.tokens, hypotheses.scores, strict=True)):
        expected = plain_beam(network, single(batch, row), size, 4, length_penalty)
        assert tokens == [hypothesis for _, hypothesis in expected]
        assert scores == pytest.approx([score for score, _ in expected], abs=1e-4)
        for ids, log_p in zip(tokens, hypotheses.log_p[row], strict=True):
            expected_log_p = token_log_probabilities(network, single(batch, row), ids)
            assert log_p[: len(ids)] == pytest.approx(expected_log_p[: len(ids)], abs=1e-4)
            assert len(log_p) == len(ids) + 1


class Spell(TranslationModel):
    """Writes three tokens: p(token) = 0.9 and p(EOS) = 0.1 at each of the first three steps, then EOS."""

    def encode(self, batch: Batch) -> tuple[Any, Any]:
        rows = len(batch.source)
        return (batch.source,), (torch.zeros(rows, 1, dtype=torch.int64),)

    def step(self, tokens: Tensor, state: Any, encoded: Any) -> tuple[Tensor, Tensor, Any]:
        written = state[0].expand_as(tokens)  # [B, Q]
        p = torch.tensor([[0, 0, 0.1, 0.9]] * 3 + [[0, 0, 1.0, 0]])
        return p[written].log(), torch.zeros(*tokens.shape, encoded[0].size(1)), (written + 1,)

    decode = logits = None


def test_search_does_not_end_while_a_live_hypothesis_can_win() -> None:
    # After two steps, the two hypotheses "" and "a" have finished with -2.3 and -1.2
    search = partial(beam, Spell(), make_batch([[4]]), size=2, max_length=5)
    for length_penalty, score in ((0.0, 3 * math.log(0.9)), (1.0, 3 * math.log(0.9) / 4)):
        hypotheses = search(length_penalty=length_penalty)
        assert hypotheses.tokens[0][0] == [3, 3, 3]
        assert hypotheses.scores[0][0] == pytest.approx(score)
    early = search(early_stopping=True)
    assert early.tokens == [[[3], []]]
    assert early.scores[0] == pytest.approx([math.log(0.09) / 2, math.log(0.1)])


RULES: list[dict[str, Any]] = [{}, {"min_length": 2}, {"no_repeat_ngram_size": 1}, {"forced": [PAD, 4]}]


@given(
    seed=SEEDS,
    size=st.sampled_from([2, 4]),
    ends=st.sampled_from([-1.0, 1.0, 3.0]),
    length_penalty=PENALTIES,
    rules=st.sampled_from(RULES),
    spread=st.sampled_from([0.3, 1.0]),
)
@settings(max_examples=20)
def test_best_score_is_that_of_a_search_that_never_ends_early(
    seed: int, size: int, ends: float, length_penalty: float, rules: dict[str, Any], spread: float
) -> None:
    network = make(seed, ends=ends, vocabulary_size=WORDS, spread=spread)
    sentence = random_batch([5])
    forced = rules.get("forced", [])
    constraints = Constraints(**{**rules, "forced": torch.tensor([forced])} if forced else rules)
    options: dict[str, Any] = {"max_length": 4, "length_penalty": length_penalty, "constraints": constraints}
    found = beam(network, sentence, size=size, **options)
    restrict = restriction(rules.get("min_length", 0), rules.get("no_repeat_ngram_size", 0), forced)
    longest = plain_beam(network, sentence, size, 4, length_penalty, restrict, ends_early=False)
    assert found.scores[0][0] == pytest.approx(longest[0][0], abs=1e-4)
    assert found.scores[0][0] >= greedy(network, sentence, **options).scores[0][0] - 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("seed", [2, 3])
def test_time_of_removal_does_not_change_the_results(
    order: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = make(seed, ends=1.0, order=order, spread=1.0)
    batch = random_batch([1 + i % 7 for i in range(20)])
    for search in (greedy, partial(beam, size=3)):
        monkeypatch.setattr("attnlab.decoding.search.REMOVAL_SHARE", 0.8)
        waiting = search(network, batch, max_length=6)
        alone = [search(network, single(batch, row), max_length=6) for row in range(20)]
        assert_equal(waiting, Hypotheses(*([part for [part] in parts] for parts in zip(*alone, strict=True))))
        monkeypatch.setattr("attnlab.decoding.search.REMOVAL_SHARE", 0.0)
        assert_equal(waiting, search(network, batch, max_length=6))


@pytest.mark.parametrize("size", [1, 2, 5])
@given(seed=SEEDS, lengths=LENGTHS, padding=st.integers(0, 3))
@settings(max_examples=5)
def test_other_sentences_and_padding_change_nothing(
    size: int, seed: int, lengths: list[int], padding: int
) -> None:
    network = make(seed, ends=1.0)
    batch = random_batch(lengths)
    together = beam(network, batch, size=size, max_length=6)
    for row in range(len(lengths)):
        alone = beam(network, single(batch, row, padding), size=size, max_length=6)
        assert_equal(Hypotheses(*([part[row]] for part in together)), alone)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("order", "attention", "size"), [(*parts, (1, 3)[i % 2]) for i, parts in enumerate(MIXED)]
)
def test_weights_equal_those_of_a_teacher_forced_pass(order: str, attention: str, size: int) -> None:
    network = make(7, ends=1.0, order=order, attention=attention)
    batch = random_batch([3, 7, 5])
    hypotheses = beam(network, batch, size=size, max_length=6)
    for row, (tokens, weights) in enumerate(zip(hypotheses.tokens, hypotheses.weights, strict=True)):
        for ids, rows in zip(tokens, weights, strict=True):
            assert rows.shape == (len(ids) + 1, int(batch.source_lengths[row]))
            torch.testing.assert_close(
                rows, forced_weights(network, single(batch, row), ids), rtol=0, atol=1e-5
            )


@pytest.mark.parametrize(
    "search", [greedy, partial(beam, size=4), partial(sample, sampler=Sampler(), size=4)]
)
def test_outputs_contain_neither_padding_nor_sos(search: Any) -> None:
    network = make(3)
    with torch.no_grad():
        network.readout.output.bias[[PAD, SOS]] += 50
    for hypotheses in search(network, random_batch([3, 7, 1, 5]), max_length=6).tokens:
        assert all({PAD, SOS}.isdisjoint(tokens) for tokens in hypotheses)


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("max_length", [0, 1, 4])
def test_network_that_never_predicts_eos_is_stopped(size: int, max_length: int) -> None:
    hypotheses = beam(make(0, ends=-50.0), random_batch([3, 7]), size=size, max_length=max_length)
    for tokens, weights in zip(hypotheses.tokens, hypotheses.weights, strict=True):
        assert all(len(ids) == max_length for ids in tokens)
        assert all(len(rows) == max_length + 1 for rows in weights)
        assert len(tokens) == (1 if max_length == 0 else size)


def count_steps(network: Seq2Seq) -> list[int]:
    """Record the number of sentences of every following step."""
    rows: list[int] = []
    network.decoder.attention.register_forward_pre_hook(lambda _, inputs: rows.append(len(inputs[0])))
    return rows


@pytest.mark.parametrize("size", [1, 3])
def test_sentences_take_as_many_steps_as_alone(size: int) -> None:
    network = make(11, ends=1.0)
    batch = random_batch([7, 1, 3, 5, 2, 4])
    rows = count_steps(network)
    beam(network, batch, size=size, max_length=20)
    together = sum(rows)
    rows.clear()
    for row in range(6):
        beam(network, single(batch, row), size=size, max_length=20)
    assert set(rows) == {1}
    assert together == sum(rows)


@pytest.mark.parametrize(("size", "count"), [(2000, 10), (2007, 4), (8191, 20), (2003, 300)])
def test_top_continuations_equal_a_sort(size: int, count: int) -> None:
    generator = torch.Generator().manual_seed(size)
    values = torch.randn(3, 2, size, generator=generator)
    values[0, 1, count // 2 :] = -torch.inf
    values[1, 0, -3:] = 9.0  # equal values after the last block
    top, indices = top_continuations(values, count)
    assert torch.equal(top, values.sort(dim=-1, descending=True).values[..., :count])
    assert torch.equal(top, values.gather(-1, indices))
    assert all(len(set(row)) == count for row in indices.flatten(0, 1).tolist())


def test_of_equal_continuations_the_beam_keeps_that_of_greedy_search() -> None:
    logits = torch.randn(50, 3, 300, generator=torch.Generator().manual_seed(0)).mul(2).round()
    logits[..., EOS] = -9
    log_p = logits.log_softmax(dim=-1)
    tokens, parents, _, _ = _extend(log_p, torch.zeros(50, 3), torch.ones(50, dtype=torch.bool), 3)
    expected = argmax(log_p[:, 0])
    assert torch.equal(tokens[:, 0], expected)
    assert not parents[:, 0].any()
