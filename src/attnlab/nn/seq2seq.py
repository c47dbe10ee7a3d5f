"""Sequence-to-sequence models: encoder, bridge, attentional decoder and readout."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from attnlab.nn.decoders import Decoder, Unroll
from attnlab.nn.embedding import TokenEmbedding
from attnlab.nn.encoders import Encoder
from attnlab.nn.features import Features
from attnlab.nn.readout import PointerGenerator, Readout
from attnlab.types import EOS, Batch, Memory, map_tensors


class Decoded(NamedTuple):
    """Decoder outputs of a whole target."""

    features: Tensor  # [B, T, F]: input of the last layer of the readout
    weights: Tensor  # [B, T, S]: attention weights


class TranslationModel(nn.Module, ABC):
    """Interface of models that map source sentences to target sentences.

    The encoded sources and the decoder state are tuples, possibly nested, whose tensors start with [B] and
    [B, Q]: `select` picks sentences and hypotheses from them.
    """

    latent_alignment = False
    """True if `decode` returns the alignment given the whole target, which `step` does not know."""

    @abstractmethod
    def encode(self, batch: Batch) -> tuple[Any, Any]:
        """Encode the sources of a batch; return them, and the decoder state before the first token."""

    @abstractmethod
    def step(self, tokens: Tensor, state: Any, encoded: Any) -> tuple[Tensor, Tensor, Any]:
        """Process one token y_{i-1} of each of Q hypotheses per sentence, [B, Q] int64.

        The state is that of `encode` or of the previous step. Returns logits [B, Q, V], attention weights
        [B, Q, S] and the new state.
        """

    def reorder(self, state: Any, sentences: Tensor, hypotheses: Tensor) -> Any:
        """Return the decoder state of hypotheses [B, Q] of sentences [B], positions that may repeat."""
        return select(state, sentences[:, None], hypotheses)

    @abstractmethod
    def decode(self, encoded: Any, state: Any, batch: Batch, forced: Tensor | None = None) -> Decoded:
        """Decode whole targets with teacher forcing or scheduled sampling.

        Args:
            batch: with the targets' `inputs` [B, T].
            forced: None for teacher forcing at every step; or [B, T] bool, True where the decoder reads the
                reference and False where it reads its own prediction. The first token is always that of the
                reference.
        """

    @abstractmethod
    def logits(self, decoded: Decoded, copy_ids: Tensor | None, where: Tensor | None = None) -> Tensor:
        """Compute logits [B, T, V], or [N, V] of the N positions that the mask `where` [B, T] selects.

        Args:
            decoded: the result of `decode`.
            copy_ids: `Batch.copy_ids` of the batch, [B, S], or None.
            where: True at positions whose logits are needed; None for all.
        """

    def forward(self, batch: Batch, forced: Tensor | None = None) -> Decoded:
        """Encode the sources and decode the targets of a batch; `forced` [B, T] as in `decode`."""
        return self.decode(*self.encode(batch), batch, forced)


class Encoded(NamedTuple):
    """Encoder outputs cached for decoding: the same at every step."""

    memory: Memory
    keys: Tensor  # [B, S, …]: memory projected by the attention
    copy_ids: Tensor | None  # [B, S]: of the batch


class Seq2Seq(TranslationModel):
    """Encoder-decoder network: p(y | x) = Π_i softmax(readout(s_i, c_i, y_{i-1})).

    Args:
        target_embedding: embedding of the target tokens; may be the same object as `source_embedding`.
        features: encodes sources that end with features, using the encoder; None for the encoder alone.
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
        features: Features | None = None,
    ) -> None:
        super().__init__()
        self.source_embedding = source_embedding
        self.encoder = encoder
        self.features = features
        self.bridge = bridge
        self.target_embedding = target_embedding
        self.decoder = decoder
        self.readout = readout

    @property
    def parameter_count(self) -> int:
        """Number of parameters, frozen ones included; a table that two parts share counts once."""
        return sum(parameter.numel() for parameter in self.parameters())

    @property
    def trainable_parameter_count(self) -> int:
        """Number of the parameters that are not frozen."""
        return sum(parameter.numel() for parameter in self.parameters() if parameter.requires_grad)

    def encode(self, batch: Batch) -> tuple[Encoded, Any]:
        return self.encode_embedded(self.source_embedding(batch.source), batch)

    def encode_embedded(self, embedded: Tensor, batch: Batch) -> tuple[Encoded, Any]:
        """Encode the sources of a batch, embedded as [B, S, E]: see `encode`."""
        if self.features is None:
            memory = self.encoder(embedded, batch.source_lengths, batch.source_mask)
        else:
            memory = self.features(self.encoder, embedded, batch)
        keys = self.decoder.attention.project(memory)  # [B, S, …]
        state = self.decoder.begin(self.bridge(memory), memory)
        return Encoded(memory, keys, batch.copy_ids), state

    def embed(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Return embedded tokens of a step [B, Q, E], and the decoder's inputs [B, Q, …]."""
        embedded = self.target_embedding(tokens)
        return embedded, self.decoder.project(embedded)

    def step(self, tokens: Tensor, state: Any, encoded: Encoded) -> tuple[Tensor, Tensor, Any]:
        (embedded, inputs), before = self.embed(tokens), self._top(state)
        output, state = self.decoder.step(inputs, state, encoded.memory, encoded.keys)
        weights = output.weights  # [B, Q, S]
        decoded = Decoded(self.readout.features(output, embedded, before), weights)
        return self.logits(decoded, encoded.copy_ids), weights, state

    def decode(self, encoded: Encoded, state: Any, batch: Batch, forced: Tensor | None = None) -> Decoded:
        tokens = batch.inputs  # [B, T]
        dropout = self.target_embedding.draw_dropout(tokens)  # [B, T, E]
        unroll = self.begin_unroll(encoded, state, batch.labels)
        first = self._top(state)  # [B, 1, H]
        if forced is not None:
            tokens = sample_inputs(tokens, forced, self._predictor(dropout, unroll, first, encoded))
        embedded = self.target_embedding(tokens, dropout)  # [B, T, E]
        output = unroll.finish(embedded)
        before = None if first is None else torch.cat([first, output.states[:, :-1]], dim=1)  # [B, T, H]
        weights = output.weights  # [B, T, S]
        return Decoded(self.readout.features(output, embedded, before), weights)

    def begin_unroll(self, encoded: Encoded, state: Any, labels: Tensor) -> Unroll:
        """Return an unroll of the decoder over targets with these labels [B, T].

        It computes all positions; a subclass may leave out those of PAD, whose outputs are not used.
        """
        return Unroll(self.decoder, state, encoded.memory, encoded.keys)

    def logits(self, decoded: Decoded, copy_ids: Tensor | None, where: Tensor | None = None) -> Tensor:
        features, weights = decoded
        if copy_ids is not None:
            copy_ids = copy_ids[:, None].expand_as(weights)  # [B, T, S]
        if where is not None:
            features, weights = features[where], weights[where]  # [N, F], [N, S]
            copy_ids = None if copy_ids is None else copy_ids[where]  # [N, S]
        return self.readout(features, weights, copy_ids)  # type: ignore[no-any-return]

    def _top(self, state: Any) -> Tensor | None:
        """Return the decoder's top state before a step, [B, Q, H]; None if the readout does not read it."""
        return state.layers[-1][0] if self.readout.reads_previous_state else None

    def _predictor(
        self, dropout: Tensor | None, unroll: Unroll, before: Tensor | None, encoded: Encoded
    ) -> Callable[[Tensor, int], Tensor]:
        """Return a function of the tokens [B, 1] and the step that returns logits [n, 1, V].

        n are the sentences that have not ended: the first ones, or all. Dropout and noise, except that of the
        embeddings, are not those with which the target is decoded afterwards.
        """

        def predict(tokens: Tensor, i: int) -> Tensor:
            nonlocal before
            factors = None if dropout is None else dropout[:, i : i + 1]  # [B, 1, E]
            embedded = self.target_embedding(tokens, factors)  # [B, 1, E]
            output = unroll.step(embedded)
            n = len(output.states)
            previous = None if before is None else before[:n]  # [n, 1, H]
            weights = output.weights  # [n, 1, S]
            decoded = Decoded(self.readout.features(output, embedded[:n], previous), weights)
            before = None if before is None else output.states
            return self.logits(decoded, None if encoded.copy_ids is None else encoded.copy_ids[:n])

        return predict


@torch.no_grad()
def sample_inputs(inputs: Tensor, forced: Tensor, predict: Callable[[Tensor, int], Tensor]) -> Tensor:
    """Scheduled sampling: return the input tokens [B, T], each a reference or the model's prediction.

    No gradient flows through the choice of a token. So the tokens are predicted first, step by step, and
    the target is then decoded with known tokens.

    Args:
        inputs: tokens of the reference, [B, T].
        forced: True where the decoder reads the reference, [B, T].
        predict: as returned by `Seq2Seq._predictor`.
    """
    sampled = (~forced).any(dim=0).tolist()  # steps at which some sentence reads a prediction
    last = max((i for i, is_sampled in enumerate(sampled) if is_sampled), default=0)
    tokens = inputs.clone()  # [B, T]
    for i in range(last):
        predicted = predict(tokens[:, i : i + 1], i)  # [n, 1, V]
        n = len(predicted)
        best = EOS + predicted[:, 0, EOS:].argmax(dim=-1)  # [n]: neither PAD nor SOS, as in searches
        tokens[:n, i + 1] = torch.where(forced[:n, i + 1], inputs[:n, i + 1], best)
    torch.clear_autocast_cache()  # the cached casts of the weights have no gradients
    return tokens


def select(tree: Any, *index: Tensor) -> Any:
    """Index every tensor of a nested tuple: `select(state, rows)` selects sentences; other leaves stay."""
    return map_tensors(lambda tensor: tensor[index], tree)
