"""Teacher forcing and scheduled sampling: the probability ε that the decoder reads the reference token."""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from attnlab.settings import Positive, Probability

Decay = Literal["linear", "inverse_sigmoid"]  # Course of the probability over the training steps

Granularity = Literal["step", "token"]
"""Draw once per target position for the whole batch ("step"), or for each token ("token")."""


@dataclass(frozen=True)
class TeacherForcing:
    """Probability ε that the decoder reads the reference token, constant or decaying.

    ::

        decay=None:             ε = start
        decay=linear:           ε = start + (end - start) min(step / steps, 1)
        decay=inverse_sigmoid:  ε = end + (start - end) k / (k + exp(step / k)), with k = steps

    The decays are those of scheduled sampling (Bengio et al. 2015, arXiv 1506.03099).

    Args:
        start: probability that the decoder reads the reference token, else its own prediction.
        decay: "linear" or "inverse_sigmoid"; None for a constant probability.
        end: probability after the decay.
        steps: "linear": training steps from start to end; "inverse_sigmoid": k.
        per: draw once per target position for the whole batch ("step"), or for each token ("token").
    """

    start: Probability = 1.0
    decay: Decay | None = None
    end: Probability = 0.0
    steps: Positive = 10_000
    per: Granularity = "step"

    def ratio(self, step: int) -> float:
        """Return ε, 0 to 1, at a training step."""
        if self.decay is None:
            return self.start
        if self.decay == "linear":
            return self.start + (self.end - self.start) * min(step / self.steps, 1.0)
        growth = math.exp(min(step / self.steps, 700.0))  # exp(710) overflows
        return self.end + (self.start - self.end) * (self.steps / (self.steps + growth))


def sample_forced(schedule: TeacherForcing, step: int, inputs: Tensor) -> Tensor | None:
    """Draw which input tokens [B, T] are read from the reference: [B, T] bool, or None for all of them."""
    ratio = schedule.ratio(step)
    if ratio >= 1.0:
        return None
    rows = 1 if schedule.per == "step" else inputs.size(0)
    return (torch.rand(rows, inputs.size(1), device=inputs.device) < ratio).expand_as(inputs)
