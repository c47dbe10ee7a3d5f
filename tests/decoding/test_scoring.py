"""Log-probabilities of given targets against stepwise decoding, token by token."""

import pytest
import torch

from attnlab.decoding.beam import beam
from attnlab.decoding.targets import score
from attnlab.nn.ensemble import Ensemble
from attnlab.nn.seq2seq import TranslationModel
from attnlab.types import PAD, SOS
from networks import ORDERS, SOURCE_WORDS, TARGET_WORDS, make_batch, make_network, random_rows, stepwise


@torch.no_grad()
def plain_score(model: TranslationModel, source: list[int], target: list[int]) -> list[float]:
    """Return log p of each token of a target and of EOS, from single decoder steps."""
    batch = make_batch([source], [target])
    log_p = stepwise(model, batch)[0].log_softmax(dim=-1)  # [1, T, V]
    return log_p.gather(-1, batch.labels[..., None]).flatten().tolist()


@pytest.mark.parametrize("order", [*ORDERS, "ensemble"])
def test_scores_equal_those_of_single_steps(order: str) -> None:
    model: TranslationModel = (
        Ensemble([make_network(seed=seed) for seed in (1, 2)]).eval()
        if order == "ensemble"
        else make_network(order=order)
    )
    sources, targets = random_rows([3, 7, 1, 5], SOURCE_WORDS), random_rows([4, 2, 5, 3], TARGET_WORDS)
    batch = make_batch(sources, targets)
    scores = score(model, batch)
    assert scores.shape == batch.labels.shape
    assert scores.dtype == torch.float32
    assert (scores[batch.labels == PAD] == 0).all()
    for row, source, target in zip(scores.tolist(), sources, targets, strict=True):
        assert row[: len(target) + 1] == pytest.approx(plain_score(model, source, target), abs=1e-4)


@pytest.mark.parametrize("size", [1, 3])
def test_scores_of_outputs_equal_those_of_the_search(size: int) -> None:
    network, sources = make_network(seed=5), random_rows([3, 7], SOURCE_WORDS)
    hypotheses = beam(network, make_batch(sources), size=size, max_length=6, length_penalty=0.0)
    for rank in range(size):
        ranked = make_batch(sources, [tokens[rank] for tokens in hypotheses.tokens])
        assert ranked.target[0, 0] == SOS
        totals = score(network, ranked).sum(dim=1).tolist()
        assert totals == pytest.approx([scores[rank] for scores in hypotheses.scores], abs=1e-4)
