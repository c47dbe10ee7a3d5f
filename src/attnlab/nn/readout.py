"""The readout: from a decoder position to scores over the vocabulary."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from attnlab.nn.decoder import DecoderOutput

PARTS = ("state", "context", "input")


class Readout(nn.Module):
    """Logits = W t + b, where t is made of the state s_i, the context c_i and the input token y_{i-1}.

    ::

        t = dropout([parts])                                      without maxout
        t = max over pairs of (U dropout([parts]) + b')           maxout: 2 x width in, width out

    The deep output of Bahdanau et al. 2014, section A.2.2, is `parts=[state, context, input]` with
    `maxout=500`. `features` and `forward` are two moves, so that the product with the vocabulary, the dearest
    of all, is done for real tokens only.

    Args:
        state_size: H.
        context_size: D; 0 without attention.
        input_size: E.
        vocabulary_size: V.
        parts: which of "state", "context" and "input" are seen.
        maxout: width of the maxout layer, or None for none.
        dropout: on the parts.
        tied: the embedding table [V, E] to use as W (Press & Wolf 2017, arXiv 1608.05859), or None for a W
            of its own. Where t is not of width E, a linear map without offset takes it there.

    Raises:
        ValueError: at a part that does not exist, and where the parts are of no width.
    """

    def __init__(
        self,
        *,
        state_size: int,
        context_size: int,
        input_size: int,
        vocabulary_size: int,
        parts: Sequence[str] = ("state",),
        maxout: int | None = None,
        dropout: float = 0.0,
        tied: nn.Embedding | None = None,
    ) -> None:
        super().__init__()
        if not parts or set(parts) - set(PARTS):
            raise ValueError(f"readout.parts must name some of {list(PARTS)}, not {list(parts)}")
        sizes = {"state": state_size, "context": context_size, "input": input_size}
        self.parts = tuple(parts)
        self.dropout = nn.Dropout(dropout)
        width = sum(sizes[part] for part in parts)
        if width == 0:
            raise ValueError("readout.parts=[context] sees nothing where there is no attention: add state")
        self.maxout = None if maxout is None else nn.Linear(width, 2 * maxout)
        width = width if maxout is None else maxout
        self.resize: nn.Module = nn.Identity()
        if tied is not None and width != input_size:
            self.resize = nn.Linear(width, input_size, bias=False)
            width = input_size
        self.output = nn.Linear(width, vocabulary_size)
        if tied is not None:
            self.output.weight = tied.weight

    def features(self, decoded: DecoderOutput, embedded: Tensor) -> Tensor:
        """The t [B, T, F] of what was decoded and the embedded input tokens [B, T, E]."""
        seen = {"state": decoded.states, "context": decoded.contexts, "input": embedded}
        features: Tensor = self.dropout(torch.cat([seen[part] for part in self.parts], dim=-1))  # [B, T, F]
        if self.maxout is not None:
            features = self.maxout(features).unflatten(-1, (-1, 2)).amax(dim=-1)  # [B, T, maxout]
        return self.resize(features)  # type: ignore[no-any-return]

    def forward(self, features: Tensor) -> Tensor:
        """Logits [..., V] of features [..., F]."""
        return self.output(features)  # type: ignore[no-any-return]
