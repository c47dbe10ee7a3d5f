"""Networks that the scorecard of `attnlab evaluate RUN explain=all` refuses, in one line each."""

import pytest
from omegaconf import OmegaConf

from attnlab.api import scorecard
from attnlab.errors import UsageError, UserError
from attnlab.nn.ensemble import Ensemble
from networks import make_network


def test_sentences_are_spread_over_the_whole_split() -> None:
    assert scorecard.spread(3, 5) == [0, 1, 3]
    assert scorecard.spread(200, 399)[-1] == 397
    assert scorecard.spread(5, 2) == [0, 1]


def test_networks_without_weights_are_refused() -> None:
    config = OmegaConf.create({"explain": {"measures": ["erasure"]}})
    network = make_network()
    scorecard.check(config, network)
    scorecard.check(OmegaConf.create(), Ensemble([network]))  # without explain, every network is evaluated
    for name in ("NoAttention", "Final"):
        with pytest.raises(UserError, match=r"^explain: this network has no attention weights; choose a run"):
            scorecard.check(config, make_network(attention=name))
    with pytest.raises(UsageError, match="explain needs a single network: give one run"):
        scorecard.check(config, Ensemble([network, network]))
