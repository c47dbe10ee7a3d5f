"""Readouts: map decoder outputs to logits over the vocabulary."""

from collections.abc import Sequence
from typing import Annotated, Literal, TypedDict, Unpack

import torch
import torch.nn.functional as F
from annotated_types import MinLen
from torch import Tensor, nn

from attnlab.nn.attention.interventions import has_weights
from attnlab.nn.decoders import BahdanauDecoder, Decoder, DecoderOutput, ExactHardDecoder
from attnlab.nn.dropout import Dropout
from attnlab.settings import Fraction, Size

Part = Literal["state", "previous_state", "context", "input"]
Parts = Annotated[
    Sequence[Part], MinLen(1), "a list of state, previous_state, context and input, such as [state,context]"
]


class ReadoutSettings(TypedDict, total=False):
    """Settings that `PointerGenerator` passes on to `Readout`."""

    vocabulary_size: int
    parts: Parts
    maxout: Size | None
    dropout: Fraction
    tied: bool
    embedding: nn.Embedding | None


class Readout(nn.Module):
    """Logits W t + b of the states s_i and s_{i-1}, the context c_i and the input token y_{i-1}.

    ::

        t = dropout([parts])                                      without maxout
        t = max over pairs of (U dropout([parts]) + b')           maxout: 2 x width in, width out

    The deep output of Bahdanau et al. 2014, section A.2.2, is `parts=[previous_state, context, input]` with
    `maxout=500`: it reads s_{i-1}, the state with which c_i is computed. `features` and `forward` are two
    calls, so that the product with the vocabulary is computed for real tokens only.

    Args:
        state_size: H
        context_size: D; 0 without attention.
        input_size: E
        vocabulary_size: V
        parts: the inputs: "state" s_i, "context" c_i, "input" (embedding of y_{i-1}) and "previous_state"
            s_{i-1}.
        maxout: width of the maxout layer, or None for none.
        dropout: dropout probability of the parts.
        tied: use the embedding table as W (Press & Wolf 2017, arXiv 1608.05859). If the width of t is not E,
            a linear map without bias changes it to E.
        embedding: the embedding table of the target [V, E], which `tied` needs.

    Raises:
        ValueError: if the total width of the parts is 0.
    """

    def __init__(
        self,
        *,
        state_size: int,
        context_size: int,
        input_size: int,
        vocabulary_size: int,
        parts: Parts = ("state", "context"),
        maxout: Size | None = None,
        dropout: Fraction = 0.0,
        tied: bool = False,
        embedding: nn.Embedding | None = None,
    ) -> None:
        super().__init__()
        sizes = {
            "state": state_size,
            "previous_state": state_size,
            "context": context_size,
            "input": input_size,
        }
        self.parts = tuple(parts)
        self.dropout = Dropout(dropout)
        width = sum(sizes[part] for part in parts)
        if width == 0:
            raise ValueError(
                "readout.parts=[context] is empty: without attention, and with decoder=transformer, there is "
                "no context of its own; add state"
            )
        self.maxout = None if maxout is None else nn.Linear(width, 2 * maxout)
        width = width if maxout is None else maxout
        self.resize: nn.Module = nn.Identity()
        if tied and width != input_size:
            self.resize = nn.Linear(width, input_size, bias=False)
            width = input_size
        self.output = nn.Linear(width, vocabulary_size)
        if tied and embedding is not None:
            self.output.weight = embedding.weight

    @property
    def reads_previous_state(self) -> bool:
        """True if `features` needs the previous states."""
        return "previous_state" in self.parts

    def check_decoder(self, decoder: Decoder) -> None:
        """Raise `ValueError` if the readout cannot read the outputs of a decoder."""
        if self.reads_previous_state and not isinstance(decoder, BahdanauDecoder):
            raise ValueError(
                "readout.parts: previous_state is defined for Bahdanau's order only. Set decoder=bahdanau, "
                "or read state"
            )
        is_latent = isinstance(decoder, ExactHardDecoder)
        if is_latent:
            raise ValueError(
                "decoder=exact_hard needs readout=marginal, and the configuration has another readout, for "
                "example that of its experiment. Add readout=marginal"
            )

    def features(self, decoded: DecoderOutput, embedded: Tensor, previous: Tensor | None = None) -> Tensor:
        """Compute t [B, T, F] of decoder outputs and embedded input tokens [B, T, E].

        `previous` are the states before each position, [B, T, H]; only for `parts` with "previous_state".
        """
        inputs = {"state": decoded.states, "context": decoded.contexts, "input": embedded}
        if previous is not None:
            inputs["previous_state"] = previous
        joined = torch.cat([inputs[part] for part in self.parts], dim=-1)  # [B, T, width]
        features: Tensor = self.dropout(joined)  # [B, T, width]
        if self.maxout is not None:
            features = self.maxout(features).unflatten(-1, (-1, 2)).amax(dim=-1)  # [B, T, maxout]
        return self.resize(features)  # type: ignore[no-any-return]

    def forward(
        self, features: Tensor, weights: Tensor | None = None, copy_ids: Tensor | None = None
    ) -> Tensor:
        """Compute logits [..., V] of features [..., F]; attention weights and copy ids are not used."""
        return self.output(features)  # type: ignore[no-any-return]


class PointerGenerator(nn.Module):
    """A readout that can also copy from the source: See, Liu & Manning 2017 (arXiv 1704.04368), section 2.2.

    ::

        g    = σ(w [s; c; y] + b)                              probability of generating
        p(v) = g · softmax(logits)_v + (1 - g) · Σ_{j: x_j = v} α_j

    A source word outside the vocabulary has an id within its sentence: V for the first such word, V + 1 for
    the second, …; `Batch.copy_ids` holds the id that copying each source token produces. So p has V + S
    entries, the largest possible number. Settings are those of `Readout`.
    """

    FLOOR = 1e-10  # Added to each probability, so that the logarithm of an impossible token is finite

    def __init__(
        self, *, state_size: int, context_size: int, input_size: int, **settings: Unpack[ReadoutSettings]
    ) -> None:
        super().__init__()
        self.generator = Readout(
            state_size=state_size, context_size=context_size, input_size=input_size, **settings
        )
        self.switch = nn.Linear(state_size + context_size + input_size, 1)

    @property
    def reads_previous_state(self) -> bool:
        """True if `features` needs the previous states."""
        return self.generator.reads_previous_state

    def check_decoder(self, decoder: Decoder) -> None:
        """Raise `ValueError` if the readout cannot read the outputs of a decoder."""
        self.generator.check_decoder(decoder)
        if not has_weights(decoder.attention):
            raise ValueError(
                "readout=pointer_generator copies what the attention selects: use an attention with weights, "
                "such as attention=additive, or readout=softmax"
            )

    def features(self, decoded: DecoderOutput, embedded: Tensor, previous: Tensor | None = None) -> Tensor:
        """Compute [B, T, F + 1]: t of the inner readout, and the switch before its σ as the last column."""
        joined = torch.cat([decoded.states, decoded.contexts, embedded], dim=-1)  # [B, T, H + D + E]
        inner = self.generator.features(decoded, embedded, previous)
        return torch.cat([inner, self.switch(joined)], dim=-1)

    def forward(self, features: Tensor, weights: Tensor, copy_ids: Tensor | None) -> Tensor:
        """Compute log-probabilities [..., V + S] of features [..., F + 1], weights and copy ids [..., S]."""
        if copy_ids is None:
            raise ValueError("a pointer-generator needs copy_ids: encode the batch with with_copy_ids=True")
        generate = torch.sigmoid(features[..., -1:].float())  # [..., 1]
        generated = generate * self.generator(features[..., :-1]).float().softmax(dim=-1)  # [..., V]
        p = F.pad(generated, (0, weights.size(-1)))  # [..., V + S]
        p = p.scatter_add(-1, copy_ids, (1 - generate) * weights.float())
        return (p + self.FLOOR).log()


def copies(network: nn.Module) -> bool:
    """Return whether a readout of the network copies source tokens."""
    return any(isinstance(part, PointerGenerator) for part in network.modules())
