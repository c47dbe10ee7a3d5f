"""Log-probabilities of given targets against stepwise decoding, token by token."""

import pytest
import torch

from attnlab.decoding.beam import beam
from attnlab.decoding.targets import score
from attnlab.nn.ensemble import Ensemble
from attnlab.nn.seq2seq import TranslationModel
from attnlab.types import PAD, SOS, Batch
from networks import ORDERS, make_batch, make_network, random_batch, stepwise


@torch.no_grad()
def plain_score(model: TranslationModel, source: list[int], target: list[int]) -> list[float]:
    """Return log p of each token of a target and of EOS, from single decoder steps."""
    batch = make_batch([source], [target])
    log_p = stepwise(model, batch)[0].log_softmax(dim=-1)  # [1, T, V]
    return log_p.gather(-1, batch.labels[..., None]).flatten().tolist()


def rows_of(batch: Batch) -> list[tuple[list[int], list[int]]]:
    """Return source and target ids of each pair, without SOS, EOS and padding."""
    sources = [row[:length].tolist() for row, length in zip(batch.source, batch.source_lengths, strict=True)]
    return [
        (source, labels[text].tolist())
        for source, labels, text in zip(sources, batch.labels, batch.target_text, strict=True)
    ]


@pytest.mark.parametrize("order", [*ORDERS, "ensemble"])
def test_scores_equal_those_of_single_steps(order: str) -> None:
    model: TranslationModel = (
        Ensemble([make_network(seed=seed) for seed in (1, 2)]).eval()
        if order == "ensemble"
        else make_network(order=order)
    )
    batch = random_batch([3, 7, 1, 5], [4, 2, 5, 3])
    scores = score(model, batch)
    assert scores.shape == batch.labels.shape
    assert scores.dtype == torch.float32
    assert (scores[batch.labels == PAD] == 0).all()
    for row, (source, target) in zip(scores.tolist(), rows_of(batch), strict=True):
        assert row[: len(target) + 1] == pytest.approx(plain_score(model, source, target), abs=1e-4)


@pytest.mark.parametrize("size", [1, 3])
def test_scores_of_outputs_equal_those_of_the_search(size: int) -> None:
    network = make_network(seed=5)
    batch = random_batch([3, 7])
    hypotheses = beam(network, batch, size=size, max_length=6, length_penalty=0.0)
    sources = [source for source, _ in rows_of(batch)]
    for rank in range(size):
        ranked = make_batch(sources, [tokens[rank] for tokens in hypotheses.tokens])
        assert ranked.target[0, 0] == SOS
        totals = score(network, ranked).sum(dim=1).tolist()
        assert totals == pytest.approx([scores[rank] for scores in hypotheses.scores], abs=1e-4)
