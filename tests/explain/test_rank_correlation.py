"""Kendall's tau of rows is that of scipy; agreement of the largest scores."""

import numpy as np
import pytest
import torch
from scipy.stats import kendalltau

from attnlab.explain.rank_correlation import kendall_tau, top_agreement


def test_tau_of_rows_equals_scipy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attnlab.explain.rank_correlation.MAX_PAIRS", 7 * 64)  # 7 rows at a time
    generator = np.random.default_rng(0)
    lengths = generator.integers(2, 9, size=60)
    x = generator.integers(0, 5, size=(60, 8)) / 4  # with ties
    y = np.where(np.arange(60)[:, None] % 2, generator.random((60, 8)), generator.integers(0, 3, (60, 8)))
    mask = np.arange(8) < lengths[:, None]
    ours = kendall_tau(torch.tensor(x), torch.tensor(y), torch.tensor(mask)).numpy()
    theirs = [kendalltau(x[i, :n], y[i, :n]).statistic for i, n in enumerate(lengths)]
    np.testing.assert_allclose(ours, theirs, rtol=1e-12)


def test_tau_of_equal_scores_is_undefined() -> None:
    x, y = torch.tensor([[1.0, 1.0, 1.0]]), torch.tensor([[1.0, 2.0, 3.0]])
    assert kendall_tau(x, y, torch.ones(1, 3, dtype=torch.bool)).isnan().all()


def test_agreement_of_the_largest_scores_by_hand() -> None:
    x = torch.tensor([[0.1, 0.9, 5.0], [0.5, 0.5, 0.0], [0.3, 0.7, 0.0]])
    y = torch.tensor([[1.0, 2.0, 0.0], [9.0, 1.0, 2.0], [4.0, 3.0, 1.0]])
    mask = torch.tensor([[1, 1, 0], [1, 1, 1], [1, 1, 1]], dtype=torch.bool)
    assert top_agreement(x, y, mask).tolist() == pytest.approx([1, 0.5, 0])
