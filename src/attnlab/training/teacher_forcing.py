"""Teacher forcing and scheduled sampling: the decoder reads the reference token with a probability ε."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from attnlab.settings import Probability

Granularity = Literal["step", "token"]
"""Draw once per target position for the whole batch ("step"), or for each token ("token")."""


@dataclass(frozen=True)
class TeacherForcing:
    """Constant probability ε that the decoder reads the reference token in training.

    Args:
        start: probability that the decoder reads the reference token, else its own prediction.
        per: draw once per target position for the whole batch ("step"), or for each token ("token").
    """

    start: Probability = 1.0
    per: Granularity = "step"

    def sample(self, inputs: Tensor) -> Tensor | None:
        """Draw which input tokens [B, T] are read from the reference: [B, T] bool, or None for all."""
        if self.start >= 1.0:
            return None
        rows = 1 if self.per == "step" else inputs.size(0)
        drawn = torch.rand(rows, inputs.size(1), device=inputs.device) < self.start
        return drawn.expand_as(inputs)
