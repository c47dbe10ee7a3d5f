import pytest
import torch

from attnlab.decoding.beam import beam
from attnlab.decoding.search import greedy
from attnlab.nn.ensemble import Ensemble
from attnlab.types import EOS, SOS
from networks import make_batch, make_network, random_batch, stepwise

MEMBERS = [
    make_network(seed=1),
    make_network(seed=2, attention="Coverage"),
    make_network(seed=3, order="luong", cell="gru", layers=2),
]


def mean_probabilities(members, batch):
    """Return the mean probabilities [B, T, V] of teacher-forced passes."""
    with torch.no_grad():
        decoded = [(member, member(batch)) for member in members]
        probabilities = [member.logits(output, None).softmax(dim=-1) for member, output in decoded]
        return torch.stack(probabilities).mean(dim=0)


def test_teacher_forcing_and_steps_give_the_mean_probabilities() -> None:
    batch = random_batch([5, 3, 7], [4, 6, 2])
    expected = mean_probabilities(MEMBERS, batch)
    ensemble = Ensemble(MEMBERS)
    with torch.no_grad():
        decoded = ensemble(batch)
        logs, weights = stepwise(ensemble, batch)
    torch.testing.assert_close(ensemble.logits(decoded, None).exp(), expected)
    real = batch.target_text
    torch.testing.assert_close(ensemble.logits(decoded, None, real).exp(), expected[real])
    torch.testing.assert_close(logs.exp(), expected)
    torch.testing.assert_close(weights, decoded.weights)
    assert decoded.weights.sum(dim=-1).allclose(torch.ones(()))


@pytest.mark.parametrize("size", [1, 3])
def test_ensemble_of_equal_members_equals_the_member(size: int) -> None:
    batch = random_batch([5, 3, 7])
    alone = beam(MEMBERS[1], batch, size=size, max_length=6)
    together = beam(Ensemble([MEMBERS[1]] * 2), batch, size=size, max_length=6)
    assert together.tokens == alone.tokens
    for ours, theirs in zip(together.scores, alone.scores, strict=True):
        assert ours == pytest.approx(theirs, abs=1e-5)


def test_greedy_search_takes_the_argmax_of_the_mean() -> None:
    batch = random_batch([5, 3])
    hypotheses = greedy(Ensemble(MEMBERS), batch, max_length=6)
    for row, (tokens,) in enumerate(hypotheses.tokens):
        source = batch.source[row, : batch.source_lengths[row]].tolist()
        output = []
        while len(output) < 6:
            sentence = make_batch([source])._replace(target=torch.tensor([[SOS, *output, EOS]]))
            best = EOS + int(mean_probabilities(MEMBERS, sentence)[0, -1, EOS:].argmax())
            if best == EOS:
                break
            output.append(best)
        assert tokens == output
