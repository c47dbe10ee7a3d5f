"""Solution of linear recurrences for all positions in parallel."""

import torch.nn.functional as F
from torch import Tensor


def scan(decays: Tensor, inputs: Tensor) -> Tensor:
    """Return h_1 … h_S of the recurrence h_t = a_t h_{t-1} + b_t with h_0 = 0.

    The recurrence is solved in log₂ S rounds, each of which doubles the number of steps that are taken into
    account (Hillis & Steele 1986, CACM 29:12). It needs no logarithms, so that b may have any sign, and no
    quotients of cumulative products, which are inexact for long sentences. All are [..., S, U].
    """
    steps, reach = inputs.size(-2), 1
    while reach < steps:
        later = (0, 0, reach, -reach)  # moves to later positions; the first ones become 0
        inputs = inputs + decays * F.pad(inputs, later)
        decays = decays * F.pad(decays, later)
        reach *= 2
    return inputs
