"""Exact hard attention: the alignment is a latent variable that is summed out.

::

    p(y_i | y_<i, x) = Σ_j α_ij p(y_i | s_i, h_j)          α_ij = p(a_i = j | y_<i, x)

Soft attention has one output distribution of a mixture of memory states; this is a mixture of output
distributions. In Wu, Shapiro & Cotterell 2018 (arXiv 1808.10024) the alignments of the target positions are
independent (0th order), and any mechanism computes α. In Wu & Cotterell 2019 (arXiv 1905.06319) an alignment
depends on that of the position before (1st order); the state of `attnlab.nn.attention.Markov` is the forward
distribution. In both, α_i depends on y_<i alone, so that every search, ensemble and score applies.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from attnlab.nn.attention.interventions import has_weights
from attnlab.nn.decoders import Decoder, ExactHardDecoder
from attnlab.nn.decoders.base import DecoderState, attend_positions
from attnlab.nn.dropout import Dropout
from attnlab.nn.seq2seq import Decoded, Encoded, Seq2Seq, sample_inputs
from attnlab.settings import Fraction
from attnlab.types import PAD, SOS, UNK, Batch, Memory

RANGE = 300.0
"""Summands of the logits are at least their maximum minus this, in nats. The products of their exponentials,
of which the largest may be exp(-600), are then in the range of fp64."""

FLOOR = 1e-35  # Added to probabilities, so that the logarithm is finite where all weights are 0


class Emissions(NamedTuple):
    """Output distributions of all pairs of a target and a source position, as factors.

    p(v | s_i, h_j) = exp(of_state[i, v] + of_memory[j, v]) / total[i, j]
    """

    of_state: Tensor  # [B, T, V], fp64
    of_memory: Tensor  # [B, S, V], fp64
    total: Tensor  # [B, T, S], fp64


class Marginal(nn.Module):
    """Readout of exact hard attention.

    ::

        p(v | s_i, h_j) = exp(a_iv + b_jv) / Z_ij          a_i = W s_i, b_j = U h_j + b
        Z_ij = Σ_v exp(a_iv + b_jv)
        p(v) = Σ_j α_ij p(v | s_i, h_j) = exp(a_iv) Σ_j (α_ij / Z_ij) exp(b_jv)

    The logits are those of `Readout` with `parts=[state, context]` at a single position. (Wu et al. have a
    tanh layer before W, with which the distributions of all pairs [B, T, S, V] must be computed.) Z and p are
    matrix products of the exponentials, in fp64: where a and b oppose each other, the most probable v has
    neither the largest a nor the largest b, and both factors may be far below the range of fp32.
    """

    reads_previous_state = False

    def __init__(
        self,
        *,
        state_size: int,
        context_size: int,
        input_size: int,
        vocabulary_size: int,
        dropout: Fraction = 0.0,
    ) -> None:
        super().__init__()
        if context_size == 0:
            raise ValueError(
                "exact hard attention needs an attention with weights, such as attention=additive"
            )
        self.dropout = Dropout(dropout)
        self.state = nn.Linear(state_size, vocabulary_size, bias=False)
        self.memory = nn.Linear(context_size, vocabulary_size)

    def check_decoder(self, decoder: Decoder) -> None:
        """Raise `ValueError` if the decoder has no latent alignment, or no attention weights."""
        if not isinstance(decoder, ExactHardDecoder) or not has_weights(decoder.attention):
            raise ValueError(
                "readout=marginal needs decoder=exact_hard and an attention with weights, such as "
                "attention=additive or attention=markov"
            )

    def of_memory(self, memory: Memory) -> Tensor:
        """Return b [B, S, V] of a memory, bounded."""
        with torch.autocast(memory.states.device.type, enabled=False):
            return _bounded(self.memory(self.dropout(memory.states.to(self.memory.weight.dtype))))

    def emissions(self, states: Tensor, memory: Memory) -> Emissions:
        """Return the output distributions of decoder states [B, T, H] at all source positions."""
        with torch.autocast(states.device.type, enabled=False):
            of_state = _bounded(self.state(self.dropout(states.to(self.state.weight.dtype))))  # [B, T, V]
            of_memory = self.of_memory(memory)  # [B, S, V]
            total = torch.bmm(of_state.exp(), of_memory.exp().transpose(1, 2))  # [B, T, S]
        return Emissions(of_state, of_memory, total)

    def log_likelihood(self, emissions: Emissions, tokens: Tensor) -> Tensor:
        """Return log p(y_i | s_i, h_j) [B, T, S] of tokens [B, T], in fp32; 0 at PAD and SOS.

        Words that another member of an ensemble copied, whose ids are V and above, count as UNK.
        """
        of_state, of_memory, total = emissions
        tokens = tokens.masked_fill(tokens >= of_state.size(-1), UNK)
        from_state = of_state.gather(-1, tokens[..., None])  # [B, T, 1]
        columns = tokens[..., None].expand(total.shape)  # [B, T, S]
        from_memory = of_memory.transpose(1, 2).gather(1, columns)  # [B, T, S]
        emitted = (tokens != PAD) & (tokens != SOS)  # [B, T]
        return ((from_state + from_memory - total.log()) * emitted[..., None]).float()

    def mix(self, emissions: Emissions, weights: Tensor) -> Tensor:
        """Return log Σ_j α_ij p(v | s_i, h_j), [B, T, V] in fp32, of weights α [B, T, S]."""
        of_state, of_memory, total = emissions
        with torch.autocast(total.device.type, enabled=False):
            shares = torch.bmm(weights.double() / total, of_memory.exp())  # [B, T, V]
        return (of_state.exp() * shares + FLOOR).log().float()

    def forward(
        self, features: Tensor, weights: Tensor | None = None, copy_ids: Tensor | None = None
    ) -> Tensor:
        """Return `features`: they are log-probabilities [..., V] already."""
        return features


def _bounded(logits: Tensor) -> Tensor:
    """Subtract the maximum of logits [..., V], and limit them from below, in fp64."""
    logits = logits.double()
    return (logits - logits.amax(dim=-1, keepdim=True)).clamp(min=-RANGE)


class LatentState(NamedTuple):
    """State between two target positions: that of the decoder, and the emissions of its last step."""

    decoder: DecoderState
    of_state: Tensor  # [B, Q, V], as in `Emissions`
    total: Tensor  # [B, Q, S]


class MarginalSeq2Seq(Seq2Seq):
    """Encoder-decoder network with exact hard attention, see the docstring of this module.

    The attention weights of a step are α_i, before y_i is known. Those of a whole target are α in training
    mode, and in evaluation mode the posterior p(a_i | y, x).
    """

    latent_alignment = True

    decoder: ExactHardDecoder
    readout: Marginal  # type: ignore[assignment]

    def encode_embedded(self, embedded: Tensor, batch: Batch) -> tuple[Encoded, LatentState]:
        encoded, state = super().encode_embedded(embedded, batch)
        rows = encoded.memory.states.double()[:, :1]  # [B, 1, D]
        sentences, sources = encoded.memory.mask.shape  # `len` would be a constant of an exported graph
        nothing = rows.new_zeros(sentences, 1, self.readout.state.out_features)  # the first token is SOS
        return encoded, LatentState(state, nothing, rows.new_ones(sentences, 1, sources))

    def step(self, tokens: Tensor, state: LatentState, encoded: Encoded) -> tuple[Tensor, Tensor, Any]:
        memory, keys = encoded.memory, encoded.keys
        earlier = Emissions(state.of_state, self.readout.of_memory(memory), state.total)  # of s_{i-1}
        likelihood = self.readout.log_likelihood(earlier, tokens)  # [B, Q, S]
        observed = self.decoder.attention.observe(state.decoder.attention, likelihood)
        _, inputs = self.embed(tokens)  # [B, Q, gates]
        before = state.decoder._replace(attention=observed)
        output, decoder = self.decoder.step(inputs, before, memory, keys)
        emissions = self.readout.emissions(output.states, memory)
        log_p = self.readout.mix(emissions, output.weights)  # [B, Q, V]
        return log_p, output.weights, LatentState(decoder, emissions.of_state, emissions.total)

    def decode(
        self, encoded: Encoded, state: LatentState, batch: Batch, forced: Tensor | None = None
    ) -> Decoded:
        tokens, memory, keys = batch.inputs, encoded.memory, encoded.keys
        if forced is not None:
            tokens = self._sample(tokens, forced, encoded, state)
        states = self.decoder.states(self.target_embedding(tokens), state.decoder)  # [B, T, H]
        emissions = self.readout.emissions(states, memory)
        observed = torch.cat([tokens[:, 1:], batch.labels[:, -1:]], dim=1)  # [B, T]
        likelihood = self.readout.log_likelihood(emissions, observed)  # [B, T, S]
        attention, first = self.decoder.attention, state.decoder.attention
        _, weights, _ = attend_positions(
            attention, states, memory, keys, first, positions=states.size(1), likelihood=likelihood
        )  # [B, T, S]
        log_p = self.readout.mix(emissions, weights)  # [B, T, V]
        if not self.training:
            weights = attention.posterior(states, memory, keys, weights, likelihood)
        return Decoded(log_p, weights)

    @torch.no_grad()
    def _sample(self, inputs: Tensor, forced: Tensor, encoded: Encoded, state: LatentState) -> Tensor:
        """Scheduled sampling, as in `Seq2Seq`, one step of the search at a time."""

        def predict(tokens: Tensor, i: int) -> Tensor:
            nonlocal state
            logits, _, state = self.step(tokens, state, encoded)
            return logits

        return sample_inputs(inputs, forced, predict)
