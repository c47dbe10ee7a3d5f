"""Averaging of saved checkpoints."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from attnlab.errors import UserError
from attnlab.training import checkpoints


def average(paths: Sequence[Path]) -> dict[str, Any]:
    """Return a checkpoint whose weights are the mean of those of several checkpoints of one run.

    The mean is computed in fp64. Values that are not floating-point numbers, the configuration and the
    vocabularies are those of the last checkpoint. Training cannot be resumed from the result.

    Raises:
        UserError: if a checkpoint is damaged, was not written by attnlab, or has other parameters than the
            others.
    """
    sums: dict[str, Tensor] = {}
    for path in paths:
        checkpoint = checkpoints.load(path)
        if "attnlab" not in checkpoint:
            raise UserError(f"{path} was not written by attnlab: it contains no configuration")
        weights: dict[str, Tensor] = checkpoint["state_dict"]
        shapes = {name: value.shape for name, value in weights.items()}
        if sums and shapes != {name: value.shape for name, value in sums.items()}:
            raise UserError(f"{path} cannot be averaged with {paths[0]}: their parameters differ")
        sums = {
            name: sums[name] + value.double() if name in sums else value.double()
            for name, value in weights.items()
        }
    means = {
        name: (sums[name] / len(paths)).to(value.dtype) if value.is_floating_point() else value
        for name, value in weights.items()
    }
    averaged = [path.name for path in paths]
    return {"state_dict": means, "attnlab": {**checkpoint["attnlab"], "averaged": averaged}}
