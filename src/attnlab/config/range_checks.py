"""Settings that are plain numbers, and what they may be."""

from __future__ import annotations

import math

from omegaconf import DictConfig, OmegaConf

from attnlab.errors import UserError

NUMBERS: tuple[tuple[str, float, float], ...] = (
    ("seed", 0, 2**32 - 1),
    ("embedding.size", 1, math.inf),
    ("encoder.size", 1, math.inf),
    ("encoder.layers", 1, math.inf),
    ("decoder.size", 1, math.inf),
    ("decoder.layers", 1, math.inf),
    ("attention_size", 1, math.inf),
    ("loss.label_smoothing", 0.0, 1.0),
    ("loss.coverage", 0.0, math.inf),
    ("search.beam_size", 1, math.inf),
    ("search.max_length", 1, math.inf),
    ("search.length_penalty", 0.0, math.inf),
    ("reranking.coverage_penalty", 0.0, math.inf),
)
"""Settings with the least and the most they may be; where the least is a whole number, so are they."""


def check_numbers(config: DictConfig) -> None:
    """Demand that settings which are plain numbers make sense; the others are checked by what they make.

    Raises:
        UserError: at the first that does not.
    """
    for key, least, most in NUMBERS:
        value = OmegaConf.select(config, key)
        whole = isinstance(least, int)
        right = isinstance(value, int if whole else (int, float)) and not isinstance(value, bool)
        if value is not None and not (right and least <= value <= most):
            kind = "a whole number" if whole else "a number"
            up = f"from {least} on" if math.isinf(most) else f"from {least} to {most}"
            raise UserError(f"{key}={value}: give {kind} {up}")
