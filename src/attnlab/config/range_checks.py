"""Range checks for numeric settings."""

from __future__ import annotations

import math

from omegaconf import DictConfig, OmegaConf

from attnlab.errors import UserError

RANGES: tuple[tuple[str, float, float], ...] = (
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
    ("search.min_length", 0, math.inf),
    ("search.no_repeat_ngram_size", 0, math.inf),
    ("search.prefix_size", 0, math.inf),
    ("search.num_beam_groups", 1, math.inf),
    ("search.diversity_penalty", 0.0, math.inf),
    ("search.temperature", 1e-6, math.inf),
    ("search.top_k", 1, math.inf),
    ("search.top_p", 1e-6, 1.0),
    ("search.seed", 0, 2**32 - 1),
    ("reranking.coverage_penalty", 0.0, math.inf),
)
"""Setting, minimum and maximum; if the minimum is an int, the setting must be an int."""


def check_numbers(config: DictConfig) -> None:
    """Check the settings of `RANGES`; other settings are checked by the objects that are built from them.

    Raises:
        UserError: at the first setting out of range or of the wrong type.
    """
    for key, minimum, maximum in RANGES:
        value = OmegaConf.select(config, key)
        whole = isinstance(minimum, int)
        numeric = isinstance(value, int if whole else (int, float)) and not isinstance(value, bool)
        if value is not None and not (numeric and minimum <= value <= maximum):
            kind = "a whole number" if whole else "a number"
            limits = f"≥ {minimum}" if math.isinf(maximum) else f"in [{minimum}, {maximum}]"
            raise UserError(f"{key}={value}: must be {kind} {limits}")
