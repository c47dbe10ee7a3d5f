"""The scorecard: hand values of its measures, intervals, rank correlations, gold alignments."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from alignment import Gold, alternatives, best_links, error_counts, read_gold
from scipy.stats import kendalltau
from scorecard import (
    Scorecard,
    Values,
    completeness_error,
    erase,
    kendall_tau,
    largest,
    spread,
    summarise,
    top_agreement,
)
from test_weights import PAIRS, batch_of, model_of

from attnlab.errors import UserError
from attnlab.explain.attributions import integrated_gradients, leave_one_out
from attnlab.explain.units import units_of
from attnlab.metrics import registry


@pytest.fixture(autouse=True)
def registry_for_one_test(monkeypatch: pytest.MonkeyPatch) -> None:
    """The scorecard adds its measures to the registry."""
    monkeypatch.setattr(registry, "METRICS", {**registry.METRICS})


@pytest.mark.slow
@pytest.mark.parametrize(
    "overrides",
    [("attention=general",), ("decoder=transformer", "attention_size=8", "decoder.heads=2")],
    ids=str,
)
def test_scorecard_has_every_measure(tmp_path: Path, overrides: tuple[str, ...]) -> None:
    gold = tmp_path / "gold"
    gold.write_text("0-0 1?1\n" * len(PAIRS))
    measures = ("gradient", "integrated_gradients", "erasure", "alignment")
    scorecard = Scorecard(measures=measures, sentences=9, steps=4, alignments=str(gold))
    scores = scorecard(model_of("batching.source_eos=true", *overrides), PAIRS, seed=0)
    others = {"adversarial_divergence", "uniform_distance"}
    others |= {f"distractor_{name}" for name in ("weight", "crossing", "drop")}
    assert {*scores} | others == {name.partition("/")[2] for name in registry.names("explanation")}
    for name, score in scores.items():
        low, high = registry.metric(f"test/explanation/{name}").bounds
        assert low <= score.value <= high, name
        assert score.low is not None
        assert score.high is not None
        assert score.low - 1e-9 <= score.value <= score.high + 1e-9, name
    assert scores["comprehensiveness"].units == 11  # target tokens of the pairs
    assert scores["gradient_tau"].units == 10  # a single source token has no rank correlation
    assert scores["alignment_error_rate"].sentences == 4


def test_words_are_ranked_without_eos() -> None:
    model = model_of("attention=additive", "batching.source_eos=true")
    units = units_of(model.network, batch_of(model, 0, 1, 3))
    drops = leave_one_out(model.network, units)  # [N, S]
    ends = (units.batch.source_lengths - 1).tolist()  # positions of EOS
    rows = [*zip(units.weights, drops, ends, strict=True)]
    same = [weights[:end].argmax() == drop[:end].argmax() for weights, drop, end in rows]
    of_eos = [drop.argmax() == end for _, drop, end in rows]
    assert 0 < sum(of_eos) < len(rows)
    with_eos = [weights[: end + 1].argmax() == drop[: end + 1].argmax() for weights, drop, end in rows]
    assert sum(with_eos) != sum(same)
    scorecard = Scorecard(measures=("erasure",), sentences=3, steps=4, alignments=None)
    scores = scorecard(model, [PAIRS[row] for row in (0, 1, 3)], seed=0)
    assert scores["erasure_top"].value == pytest.approx(sum(same) / len(rows))
    assert scores["erasure_eos"].value == pytest.approx(sum(of_eos) / len(rows))


def test_erasure_compares_the_probability_with_and_without_the_largest_token() -> None:
    model = model_of("attention=additive")
    units = units_of(model.network, batch_of(model, 0))  # of two tokens, each fraction is one
    comprehensiveness, sufficiency = erase(model.network, units, units.weights, seed=0)
    drops = leave_one_out(model.network, units)  # [N, 2]
    top = units.weights.argmax(dim=-1, keepdim=True)
    torch.testing.assert_close(comprehensiveness, drops.gather(-1, top)[:, 0])
    torch.testing.assert_close(sufficiency, drops.gather(-1, 1 - top)[:, 0])


def test_integrated_gradients_are_complete() -> None:
    model = model_of("attention=additive")
    units = units_of(model.network, batch_of(model, 1))
    values = integrated_gradients(model.network, units, steps=64)
    assert completeness_error(model.network, units, values).max() < 1e-3


def test_largest_breaks_ties_by_the_second_score_and_ignores_padding() -> None:
    scores = torch.tensor([[1.0, 1.0, 1.0, 2.0, 9.0], [3.0, 2.0, 9.0, 9.0, 9.0]])
    ties = torch.tensor([[0.1, 0.3, 0.2, 0.0, 0.9], [0.0, 0.0, 1.0, 1.0, 1.0]])
    mask = torch.tensor([[1, 1, 1, 1, 0], [1, 1, 0, 0, 0]], dtype=torch.bool)
    tenth, fifth, half = largest(scores, mask, ties).unbind(dim=1)
    assert tenth.int().tolist() == fifth.int().tolist() == [[0, 0, 0, 1, 0], [1, 0, 0, 0, 0]]
    assert half.int().tolist() == [[0, 1, 0, 1, 0], [1, 0, 0, 0, 0]]


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


def test_alignment_error_rate_by_hand() -> None:
    gold = Gold(frozenset({(0, 0), (1, 1)}), frozenset({(0, 0), (1, 1), (1, 2)}))
    links = frozenset({(0, 0), (1, 2), (3, 3)})
    # |A ∩ S| = 1, |A ∩ P| = 2, |A| = 3, |S| = 2
    assert error_counts(links, gold) == (2, 5)


def test_alternatives_are_possible_links_only() -> None:
    gold = alternatives([(0, 0), (1, 1), (2, 1)])
    assert gold.sure == {(0, 0)}
    assert gold.possible == {(0, 0), (1, 1), (2, 1)}
    assert error_counts(frozenset({(0, 0), (2, 1)}), gold) == (0, 3)


def test_weights_of_subwords_are_added_over_the_source_and_averaged_over_the_target() -> None:
    weights = np.array([[0.3, 0.3, 0.4], [0.1, 0.1, 0.8], [0.3, 0.3, 0.4], [0.0, 0.0, 0.0]])
    # source tokens 0 and 1 are word 0; target tokens 0 and 1 are word 0
    assert best_links(weights, [0, 0, 1], [0, 0, 1, 2]) == {(1, 0), (0, 1)}
    pointing = np.array([[0.1, 0.8, 0.1], [0.1, 0.2, 0.7]])  # no permutation that is its own inverse
    assert best_links(pointing, [0, 1, 2], [0, 1]) == {(1, 0), (2, 1)}
    assert best_links(weights, [], []) == frozenset()


def test_gold_file(tmp_path: Path) -> None:
    path = tmp_path / "gold.txt"
    path.write_text("0-0 1?2\n\n")
    first, second = read_gold(str(path), 2)
    assert (first.sure, first.possible) == ({(0, 0)}, {(0, 0), (1, 2)})
    assert second == (frozenset(), frozenset())
    with pytest.raises(UserError, match="has 2 lines for 3 sentences"):
        read_gold(str(path), 3)
    path.write_text("0:0\n")
    with pytest.raises(UserError, match=r"line 1: '0:0' is not a link"):
        read_gold(str(path), 1)
    with pytest.raises(UserError, match=r"explain\.alignments"):
        read_gold(str(tmp_path / "missing"), 1)
