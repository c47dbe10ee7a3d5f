"""Translation of source batches to predictions: search, reranking, conversion of token ids to text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from torch import Tensor

from attnlab.data.alignment import output_links
from attnlab.data.corpus import Pair
from attnlab.data.tokenization.vocabularies import Vocabularies
from attnlab.decoding.reranking import Reranker
from attnlab.decoding.search import beam, greedy
from attnlab.nn.seq2seq import TranslationModel
from attnlab.runs.predictions import Prediction
from attnlab.types import Batch, Hypotheses


@dataclass(frozen=True, kw_only=True)
class Translator:
    """Decodes batches of sources, for evaluation and for `attnlab predict`.

    Args:
        vocabularies: tokenizers of both sides.
        beam_size: hypotheses kept in beam search; 1 is greedy search.
        length_penalty: exponent of the length that log-probabilities are divided by.
        max_length: maximum number of output tokens, EOS excluded.
        reranking: applied to the hypotheses of each sentence, in this order.
    """

    vocabularies: Vocabularies
    beam_size: int = 1
    length_penalty: float = 1.0
    max_length: int = 100
    reranking: Sequence[Reranker] = ()

    def __call__(
        self,
        model: TranslationModel,
        batch: Batch,
        pairs: Sequence[Pair],
        *,
        encoded: tuple[Any, Any] | None = None,
        nbest: int = 1,
    ) -> list[list[Prediction]]:
        """Decode a batch.

        Args:
            model: in evaluation mode.
            batch: B sentences. Targets are read only to find out how far gold alignments apply.
            pairs: the B sentences as text, in the same order.
            encoded: result of `model.encode(batch)`, if it was computed before.
            nbest: number of hypotheses to return for each sentence, at most `beam_size`.

        Returns:
            For each sentence at most `nbest` predictions, best first. `Prediction.weights` are views of an
            array of the whole batch: copy those that are kept.
        """
        hypotheses = self.search(model, batch, encoded)
        batch = batch.to("cpu")  # at once: each prediction would wait for several small transfers
        candidates = self.beam_size if self.reranking else nbest
        results = []
        for row, pair in enumerate(pairs):
            hypotheses_of_row = zip(*(part[row] for part in hypotheses), strict=True)
            predictions = [
                self.describe(batch, row, pair, tokens, score, weights)
                for tokens, score, weights in islice(hypotheses_of_row, candidates)
            ]
            for rerank in self.reranking:
                predictions = rerank(predictions)
            ranked = enumerate(predictions[:nbest], start=1)
            results.append([replace(prediction, rank=rank) for rank, prediction in ranked])
        return results

    def search(
        self, model: TranslationModel, batch: Batch, encoded: tuple[Any, Any] | None = None
    ) -> Hypotheses:
        """Search without reranking: greedy for `beam_size=1`, else with a beam. Arguments as for a call."""
        if self.beam_size == 1:
            return greedy(
                model,
                batch,
                max_length=self.max_length,
                length_penalty=self.length_penalty,
                encoded=encoded,
            )
        return beam(
            model,
            batch,
            size=self.beam_size,
            max_length=self.max_length,
            length_penalty=self.length_penalty,
            encoded=encoded,
        )

    def describe(
        self, batch: Batch, row: int, pair: Pair, tokens: list[int], score: float, weights: Tensor
    ) -> Prediction:
        """Convert one hypothesis to a prediction.

        Args:
            batch: the batch of the sentence, on the CPU.
            row: position of the sentence in the batch.
            pair: the sentence as text.
            tokens: ids of the hypothesis, without SOS and EOS.
            score: its score.
            weights: attention weights of the tokens and of EOS, [length + 1, S].
        """
        vocabularies = self.vocabularies
        source = batch.source[row, : int(batch.source_lengths[row])].tolist()  # S ids
        reference = pair.reference
        if reference is None:
            reference = vocabularies.target.clean(pair.target)
        gold = vocabularies.gold_alignment(pair)
        return Prediction(
            index=int(batch.indices[row]),
            source=pair.source,
            reference=reference,
            hypothesis=vocabularies.output_text(tokens, pair),
            annotations=pair.annotations or {},
            score=score,
            source_tokens=vocabularies.source.tokens(source),
            tokens=[*vocabularies.tokens(tokens, pair.source), "<eos>"],
            weights=weights.numpy(),
            alignment=None if gold is None else output_links(gold, batch, row, tokens),
        )
