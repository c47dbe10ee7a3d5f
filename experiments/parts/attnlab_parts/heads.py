"""Multi-head attention whose moving heads start apart."""

from collections.abc import Callable
from typing import Unpack

import torch

from attnlab.nn.attention import Attention, MultiHead, Shift
from attnlab.nn.attention.base import Sizes
from attnlab.settings import Finite, Size


class ShiftHeads(MultiHead):
    """Multi-head `Shift` whose heads start at different places.

    With equal initial shares, heads can learn to start at mixtures of two or three places.

    Args:
        start_bias: added to the initial logit of the first position for head 0, 3, …; of the last one for
            head 1, 4, …; of content for head 2, 5, ….
    """

    def __init__(
        self,
        *,
        size: Size,
        heads: Size,
        score: Callable[..., Attention] = Shift,
        start_bias: Finite = 0.0,
        **sizes: Unpack[Sizes],
    ) -> None:
        super().__init__(size=size, heads=heads, score=score, **sizes)
        with torch.no_grad():
            for number, head in enumerate(self.heads):
                assert isinstance(head, Shift)
                head.start[number % 3] += start_bias
