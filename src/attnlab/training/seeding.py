"""Seeds of all random generators."""

import random

import numpy as np
import torch


def seed_generators(*entropy: int) -> None:
    """Seed the generators of Python, numpy and torch from a few numbers.

    Equal numbers give equal draws. Different ones, such as 1, 2 and 2, 1, give independent draws.
    """
    state = int(np.random.SeedSequence(entropy).generate_state(1)[0])
    random.seed(state)
    np.random.seed(state)  # noqa: NPY002  for libraries that draw from the global generator
    # torch.manual_seed would also look for every other kind of device, at every step
    torch.default_generator.manual_seed(state)
    if torch.cuda.is_available():
        torch.cuda.manual_seed_all(state)
