"""Binary units of networks with discrete states."""

import torch
from torch import Tensor


def sign(x: Tensor) -> Tensor:
    """Return -1 or 1, in the shape of x [B, …], with the gradient of tanh (straight-through).

    The estimator is that of Bengio, Léonard & Courville 2013 (arXiv 1308.3432), section 3.
    """
    soft = torch.tanh(x)
    return soft + (torch.where(x < 0, -1.0, 1.0) - soft).detach()
