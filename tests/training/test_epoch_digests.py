"""Digests of weights and optimizer states."""

from typing import Any

import pytest
import torch
from lightning import Trainer

from attnlab.training.callbacks.reproducibility import EpochDigests, digest
from tiny_runs import QUIET, SYNTHETIC, TINY, build_all

ONE = torch.tensor([1.0, 2.0])


@pytest.mark.parametrize(
    "other",
    [
        {"a": torch.tensor([1.0, 2.0000002])},  # one unit in the last place
        {"a": ONE.double()},
        {"a": ONE[:, None]},
        {"b": ONE},
        {"a": ONE, "lr": 0.1},
        {"a": [1.0, 2.0]},
    ],
    ids=str,
)
def test_digest_depends_on_names_types_shapes_and_bits(other: dict[str, Any]) -> None:
    assert digest({"a": ONE}) == digest({"a": ONE.clone()})
    assert digest({"a": ONE}) != digest(other)


def test_digest_of_other_types_and_layouts() -> None:
    assert digest(ONE.bfloat16()) != digest(ONE.half())
    assert digest(torch.arange(6).view(2, 3).T) == digest(torch.tensor([[0, 3], [1, 4], [2, 5]]))
    assert digest([torch.empty(0), torch.tensor(3), None]) == digest((torch.empty(0), torch.tensor(3), None))


@pytest.mark.slow
def test_digests_are_chained_and_restored(composed: Any) -> None:
    chains = []
    for lr in ("0.01", "0.01", "0.02"):
        torch.manual_seed(0)
        module, data = build_all(composed(*TINY, *SYNTHETIC, "scheduler=constant", f"optimizer.lr={lr}"))
        chain = EpochDigests()
        chain.load_state_dict({"digests": ["the digest before"]})
        Trainer(max_epochs=2, logger=False, callbacks=[chain], **QUIET).fit(module, datamodule=data)
        assert chain.state_dict() == {"digests": chain.digests}
        assert chain.digests[0] == "the digest before"
        chains.append(chain.digests)
    assert len({*chains[0], *chains[2]}) == 5  # the first entry is common
    assert chains[0] == chains[1]
