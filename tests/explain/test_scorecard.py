"""The scorecard of a network: measures, intervals, rank correlations, networks that it refuses."""

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from omegaconf import DictConfig
from scipy.stats import kendalltau

from attnlab.data.corpus import Pair
from attnlab.errors import UserError
from attnlab.explain.scorecard import (
    Explained,
    Scorecard,
    Values,
    kendall_tau,
    spread,
    summarise,
    top_agreement,
)
from attnlab.metrics import registry
from attnlab.training import build
from networks import make_network, randomise
from tiny_runs import TINY

PAIRS = [Pair("3 4", "4 3"), Pair("5 6 3", "3 6 5"), Pair("4", "4"), Pair("7 3 3 4 5", "5 4 3 3 7")]


def model_of(composed: Callable[..., DictConfig], *overrides: str) -> Explained:
    config = composed(*TINY, "data.symbols=5", "data.train_size=9", "data.val_size=3", *overrides)
    corpus = build.build_corpus(config)
    vocabularies = build.build_vocabularies(config, corpus)
    network = build.build_network(config, vocabularies).eval()
    randomise(network)
    return Explained(network, vocabularies, lambda pairs: build.encode_pairs(config, vocabularies, pairs))


@pytest.mark.slow
@pytest.mark.parametrize(
    "overrides",
    [("attention=general",), ("decoder=transformer", "attention_size=8", "decoder.heads=2")],
    ids=str,
)
def test_scorecard_has_every_measure(
    composed: Callable[..., DictConfig], tmp_path: Path, overrides: tuple[str, ...]
) -> None:
    gold = tmp_path / "gold"
    gold.write_text("0-0 1?1\n" * len(PAIRS))
    measures = ("gradient", "integrated_gradients", "erasure", "alignment")
    scorecard = Scorecard(measures=measures, sentences=9, steps=4, alignments=str(gold))
    scores = scorecard(model_of(composed, *overrides), PAIRS, seed=0)
    assert {f"explanation/{name}" for name in scores} == set(registry.names("explanation"))
    for name, score in scores.items():
        low, high = registry.metric(f"test/explanation/{name}").bounds
        assert low <= score.value <= high, name
        assert score.low is not None
        assert score.high is not None
        assert score.low - 1e-9 <= score.value <= score.high + 1e-9, name
    assert scores["comprehensiveness"].units == 11  # target tokens of the pairs
    assert scores["gradient_tau"].units == 10  # a single source token has no rank correlation
    assert scores["alignment_error_rate"].sentences == 4


def test_networks_without_weights_are_refused() -> None:
    for name in ("NoAttention", "Final"):
        with pytest.raises(UserError, match=r"^explain: this network has no attention weights; choose a run"):
            Explained(make_network(attention=name), None, None)


def test_sentences_are_spread_over_the_whole_split() -> None:
    assert spread(5, 3) == [0, 1, 3]
    assert spread(399, 200)[-1] == 397
    assert spread(2, 5) == [0, 1]


def test_scores_are_means_of_units_with_intervals_over_sentences() -> None:
    scores = summarise(
        [
            Values("tau", [0, 0], [1.0, 0.0]),
            Values("tau", [1, 2], [0.5, math.nan]),
            Values("nothing", [0], [math.nan]),
            Values("aer", [0, 5], [1.0, 1.0], [4.0, 6.0]),
            Values("empty", [], [], []),
        ]
    )
    assert scores["tau"] == (0.5, 0.5, 0.5, 3, 2)  # every resample has the mean 1/2
    assert scores["aer"] == (0.2, pytest.approx(1 / 6), 0.25, 10, 2)
    assert set(scores) == {"tau", "aer"}


def test_tau_of_rows_equals_scipy() -> None:
    generator = np.random.default_rng(0)
    lengths = generator.integers(2, 9, size=60)
    x = generator.integers(0, 5, size=(60, 8)) / 4  # with ties
    y = np.where(np.arange(60)[:, None] % 2, generator.random((60, 8)), generator.integers(0, 3, (60, 8)))
    mask = np.arange(8) < lengths[:, None]
    ours = kendall_tau(torch.tensor(x), torch.tensor(y), torch.tensor(mask)).numpy()
    theirs = [kendalltau(x[i, :n], y[i, :n]).statistic for i, n in enumerate(lengths)]
    np.testing.assert_allclose(ours, theirs, rtol=1e-12)


def test_tau_of_equal_scores_is_undefined() -> None:
    x, y = torch.tensor([[1.0, 1.0, 1.0], [3.0, 1.0, 2.0]]), torch.tensor([[1.0, 2.0, 3.0], [2.0, 1.0, 0.0]])
    assert kendall_tau(x, y, torch.tensor([[1, 1, 1], [1, 0, 0]], dtype=torch.bool)).isnan().all()


def test_agreement_of_the_largest_scores_by_hand() -> None:
    x = torch.tensor([[0.1, 0.9, 5.0], [0.5, 0.5, 0.0], [0.3, 0.7, 0.0]])
    y = torch.tensor([[1.0, 2.0, 0.0], [9.0, 1.0, 2.0], [4.0, 3.0, 1.0]])
    mask = torch.tensor([[1, 1, 0], [1, 1, 1], [1, 1, 1]], dtype=torch.bool)
    assert top_agreement(x, y, mask).tolist() == pytest.approx([1, 0.5, 0])
