"""The network: encoder, bridge, attentional decoder and readout, put together."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from attnlab.nn.decoders.recurrent import Decoder
from attnlab.nn.decoders.unroll import DecoderState, Reading, ReadingByHand
from attnlab.nn.embedding import TokenEmbedding
from attnlab.nn.encoders.recurrent import Encoder
from attnlab.nn.readout import PointerGenerator, Readout
from attnlab.types import Batch, Memory


class Encoded(NamedTuple):
    """A read source: all that a decoder asks of it, the same at every step; tensors begin with [B]."""

    memory: Memory
    keys: Tensor  # [B, S, …]: what the attention projected
    copy_ids: Tensor | None  # [B, S]: as in the batch


class Decoded(NamedTuple):
    """A whole target, decoded with its tokens known."""

    features: Tensor  # [B, T, F]: what the readout turns into logits
    weights: Tensor  # [B, T, S]


class Seq2Seq(nn.Module):
    """p(y | x) = Π_i softmax(readout(s_i, c_i, y_{i-1})).

    Args:
        source_embedding: of the source's tokens.
        encoder: reads them into a memory.
        bridge: gives the decoder its first state.
        target_embedding: of the target's tokens; may be the source's own.
        decoder: with its attention inside.
        readout: gives logits.
    """

    def __init__(
        self,
        *,
        source_embedding: TokenEmbedding,
        encoder: Encoder,
        bridge: nn.Module,
        target_embedding: TokenEmbedding,
        decoder: Decoder,
        readout: Readout | PointerGenerator,
    ) -> None:
        super().__init__()
        self.source_embedding = source_embedding
        self.encoder = encoder
        self.bridge = bridge
        self.target_embedding = target_embedding
        self.decoder = decoder
        self.readout = readout

    @property
    def parameter_count(self) -> int:
        """Numbers that training sets; a table that two parts share counts once."""
        return sum(parameter.numel() for parameter in self.parameters())

    def encode(self, batch: Batch) -> tuple[Encoded, DecoderState]:
        """Read the sources of a batch, and make ready to decode."""
        embedded = self.source_embedding(batch.source)  # [B, S, E]
        memory = self.encoder(embedded, batch.source_lengths, batch.source_mask)
        encoded = Encoded(memory, self.decoder.attention.project(memory), batch.copy_ids)
        return encoded, self.decoder.begin(self.bridge(memory), memory)

    def step(
        self, tokens: Tensor, state: DecoderState, encoded: Encoded
    ) -> tuple[Tensor, Tensor, DecoderState]:
        """Read one token for each of Q hypotheses a sentence.

        Args:
            tokens: [B, Q] int64: y_{i-1}.
            state: of the step before, or the first.
            encoded: the sources.

        Returns:
            Logits [B, Q, V], weights [B, Q, S], the new state.
        """
        embedded = self.target_embedding(tokens)  # [B, Q, E]
        output, state = self.decoder.step(embedded, state, encoded.memory, encoded.keys)
        decoded = Decoded(self.readout.features(output, embedded), output.weights)
        return self.logits(decoded, encoded.copy_ids), output.weights, state

    def logits(self, decoded: Decoded, copy_ids: Tensor | None, where: Tensor | None = None) -> Tensor:
        """Logits of what was decoded: [B, T, V], or [N, V] of the N positions that `where` [B, T] picks."""
        features, weights = decoded
        if copy_ids is not None:
            copy_ids = copy_ids[:, None].expand_as(weights)  # [B, T, S]
        if where is not None:
            features, weights = features[where], weights[where]  # [N, F], [N, S]
            copy_ids = None if copy_ids is None else copy_ids[where]  # [N, S]
        return self.readout(features, weights, copy_ids)  # type: ignore[no-any-return]

    def forward(self, batch: Batch, forced: Tensor | None = None) -> Decoded:
        """Decode targets whose tokens are known.

        Args:
            batch: whose sources are read, and whose `inputs` [B, T]: SOS and the target.
            forced: None for teacher forcing throughout; or [B, T] bool, True where the decoder reads the
                reference and False where it reads its own best guess instead (the first token is always
                read as it is).
        """
        encoded, state = self.encode(batch)
        keep = self.target_embedding.draw(batch.inputs)  # [B, T, E]
        reading = self.decoder.reading(state, encoded.memory, encoded.keys, batch.counts)
        tokens = batch.inputs
        if forced is not None:
            tokens = self.sample_inputs(tokens, forced, keep, reading, encoded)
        embedded = self.target_embedding(tokens, keep)  # [B, T, E]
        output = reading.finish(embedded)
        return Decoded(self.readout.features(output, embedded), output.weights)

    @torch.no_grad()
    def sample_inputs(
        self,
        inputs: Tensor,
        forced: Tensor,
        keep: Tensor | None,
        reading: Reading | ReadingByHand,
        encoded: Encoded,
    ) -> Tensor:
        """Scheduled sampling: the tokens [B, T] that are read, each a reference or the network's best guess.

        No gradient flows through the choice of a token, so that the tokens are found first, a step at a
        time, and a target of known tokens is decoded then. The guesses are made under the readout's dropout
        and under the noise of an attention that draws some, both drawn anew when the target is decoded.
        """
        guessed = (~forced).any(dim=0).tolist()  # where some sentence reads a guess
        last = max((i for i, is_guessed in enumerate(guessed) if is_guessed), default=0)
        tokens = inputs.clone()
        for i in range(last):
            kept = None if keep is None else keep[:, i : i + 1]  # [B, 1, E]
            embedded = self.target_embedding(tokens[:, i : i + 1], kept)  # [B, 1, E]
            output = reading.step(embedded)
            if guessed[i + 1]:
                n = len(output.states)  # the sentences that go on, or all
                decoded = Decoded(self.readout.features(output, embedded[:n]), output.weights)
                copy_ids = None if encoded.copy_ids is None else encoded.copy_ids[:n]
                guess = self.logits(decoded, copy_ids).argmax(dim=-1)[:, 0]  # [n]
                tokens[:n, i + 1] = torch.where(forced[:n, i + 1], inputs[:n, i + 1], guess)
        torch.clear_autocast_cache()  # of weights cast where no gradient is asked for, which would have none
        return tokens


def select(tree: Any, *index: Tensor) -> Any:
    """Index every tensor of a tuple of tuples: `select(state, rows)` keeps those sentences."""
    if tree is None:
        return None
    if isinstance(tree, Tensor):
        return tree[index]
    parts = [select(part, *index) for part in tree]
    return type(tree)(*parts) if hasattr(tree, "_fields") else type(tree)(parts)
