"""Predictions and metrics gathered from several processes."""

import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.multiprocessing
from torch import distributed

from attnlab.files.predictions import Prediction
from attnlab.metrics.tokens import TokenMetrics
from attnlab.training.module import gather_predictions

LOGITS, LABELS = torch.arange(15.0).reshape(5, 3).sin(), torch.tensor([0, 1, 2, 1, 0])


def prediction(index: int, text: str) -> Prediction:
    return Prediction(index=index, source=text, hypothesis="", weights=np.eye(index + 1))


SHARES = [
    [prediction(1, "a"), prediction(3, "ü\n\u2028")],
    [prediction(0, "\ud800" * 99), prediction(1, "a")],
]


def run_rank(rank: int, folder: str) -> None:
    """Gather on one of two processes, which hold unequal numbers of tokens and predictions."""
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", f"file://{folder}/meeting", world_size=2, rank=rank)
    tokens = TokenMetrics()
    part = slice(0, 4) if rank == 0 else slice(4, 5)
    tokens.update(LOGITS[part], LABELS[part])
    result = (
        {name: value.item() for name, value in tokens.compute().items()},
        gather_predictions([]),
        gather_predictions(SHARES[1] if rank == 1 else []),
        gather_predictions(SHARES[rank]),
    )
    Path(folder, f"{rank}.pickle").write_bytes(pickle.dumps(result))
    distributed.destroy_process_group()


@pytest.mark.slow
def test_two_processes_equal_one(tmp_path: Path) -> None:
    start = torch.multiprocessing.start_processes
    start(run_rank, (str(tmp_path),), nprocs=2, start_method="fork")  # new processes would import torch
    single = TokenMetrics()
    single.update(LOGITS, LABELS)
    expected = {name: pytest.approx(value.item(), rel=1e-12) for name, value in single.compute().items()}
    for rank in range(2):
        tokens, none, one_sided, both = pickle.loads((tmp_path / f"{rank}.pickle").read_bytes())
        assert tokens == expected
        assert none == []
        assert one_sided == SHARES[1]
        assert both == [*SHARES[1], SHARES[0][1]]
        for gathered, original in zip(one_sided, SHARES[1], strict=True):
            np.testing.assert_array_equal(gathered.weights, original.weights)


def test_one_process_orders_predictions_and_removes_duplicates() -> None:
    assert gather_predictions([*SHARES[0], *SHARES[1]]) == [*SHARES[1], SHARES[0][1]]
    assert gather_predictions([]) == []
