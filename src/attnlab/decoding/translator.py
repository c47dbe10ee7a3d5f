"""Translation of source batches to predictions: search, reranking, conversion of token ids to text."""

import re
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import lru_cache
from math import exp
from typing import Any, Literal

import torch
from torch import Tensor

from attnlab.data.alignment import output_links
from attnlab.data.corpus import Pair
from attnlab.data.tokenization.tokenizer import UNKNOWN, Tokenizer
from attnlab.data.tokenization.vocabularies import Vocabularies
from attnlab.decoding.beam import beam
from attnlab.decoding.constraints import Accepts, Constraints, Grammar
from attnlab.decoding.reranking import Reranker
from attnlab.decoding.sampling import Sampler
from attnlab.decoding.search import sample
from attnlab.decoding.targets import with_posterior_weights
from attnlab.errors import UsageError, UserError
from attnlab.fast import int8_products, search_precision
from attnlab.files.predictions import Prediction
from attnlab.nn.seq2seq import TranslationModel
from attnlab.settings import Count, LengthPenalty, Positive, PositiveFraction, Seed, Size
from attnlab.types import PAD, Batch, Hypotheses


@lru_cache(maxsize=256)  # the sentences of a corpus have few different expressions
def _matches(tokenizer: Tokenizer, expression: str | None) -> Tensor:
    """Return which tokens of a vocabulary are matches of a regular expression, [V] bool."""
    if expression is None:
        return torch.zeros(tokenizer.size, dtype=torch.bool)
    tokens = tokenizer.tokens(range(tokenizer.size))
    return torch.tensor([re.fullmatch(expression, token) is not None for token in tokens])


@dataclass(frozen=True, kw_only=True)
class Translator:
    """Decodes batches of sources, for evaluation and for `attnlab predict`.

    A model that copies never outputs UNK: it can copy the unknown words of the source instead.

    Args:
        beam_size: hypotheses kept in beam search, 1 for greedy search; with a temperature, samples per
            sentence.
        length_penalty: exponent of the length that log-probabilities are divided by.
        early_stopping: end beam search when `beam_size` hypotheses have finished, even if others can still
            score higher.
        max_length: maximum number of output tokens, EOS excluded.
        min_length: minimum number of output tokens, EOS excluded.
        no_repeat_ngram_size: no n-gram of this size occurs twice in an output; 0 for no restriction.
        prefix_size: outputs start with the first this many tokens of the batch's targets; None for all.
        grammar: accepts the outputs, and their beginnings; None for no restriction.
        temperature: sample at this temperature; None for greedy or beam search.
        top_k: sample from the k most probable tokens; None for all.
        top_p: sample from the most probable tokens with this total probability; None for all.
        seed: seed of the samples.
        reranking: applied to the hypotheses of each sentence, in this order.
        precision: "bf16" or "int8": the steps of the search compute their large matrix products in it;
            "auto" for the fastest on this machine, by a timing; None for the precision of the caller.
    """

    vocabularies: Vocabularies
    beam_size: Size = 1
    length_penalty: LengthPenalty = 1.0
    early_stopping: bool = False
    max_length: Size = 100
    min_length: Count = 0
    no_repeat_ngram_size: Count = 0
    prefix_size: Count | None = 0
    grammar: Accepts | None = None
    temperature: Positive | None = None
    top_k: Size | None = None
    top_p: PositiveFraction | None = None
    seed: Seed = 0
    reranking: Sequence[Reranker] = ()
    precision: Literal["auto", "bf16", "int8"] | None = None

    def __post_init__(self) -> None:
        if self.min_length > self.max_length:
            raise UsageError(
                f"search.min_length={self.min_length} is above search.max_length={self.max_length}"
            )
        if self.temperature is None and (self.top_k is not None or self.top_p is not None):
            raise UsageError("search.top_k and search.top_p restrict sampling: set search.temperature=1")
        if self.grammar is not None and self.temperature is not None:
            raise UsageError(
                "A grammar needs greedy or beam search: set search.temperature=null, or grammar=none"
            )

    @torch.no_grad()
    def __call__(
        self,
        model: TranslationModel,
        batch: Batch,
        pairs: Sequence[Pair],
        *,
        encoded: tuple[Any, Any] | None = None,
        nbest: int = 1,
        weights: bool = True,
    ) -> list[list[Prediction]]:
        """Decode a batch: return at most `nbest` predictions of each sentence, best first.

        `Prediction.weights` are views of an array of the whole batch: copy those that are kept.

        Args:
            model: in evaluation mode.
            batch: B sentences. Targets are read for `prefix_size`, and to find out how far gold alignments
                apply.
            pairs: the B sentences as text, in the same order.
            encoded: result of `model.encode(batch)`, if it was computed before.
            nbest: at most `beam_size`.
            weights: whether `Prediction.weights` are used. If not, they are None.
        """
        candidates = self.beam_size if self.reranking else nbest
        encoded = model.encode(batch) if encoded is None else encoded
        found = self.search(model, batch, pairs, encoded)
        hypotheses = Hypotheses(*([row[:candidates] for row in part] for part in found))  # type: ignore[arg-type]
        if model.latent_alignment and (weights or self.reranking):
            hypotheses = with_posterior_weights(model, batch, hypotheses, encoded)
        batch = batch.to("cpu")  # at once: each prediction would wait for several small transfers
        results = []
        for row, pair in enumerate(pairs):
            hypotheses_of_row = zip(*(part[row] for part in hypotheses), strict=True)
            predictions = [
                self.describe(batch, row, pair, tokens, score, rows, log_p)
                for tokens, score, rows, log_p in hypotheses_of_row
            ]
            for rerank in self.reranking:
                predictions = rerank(predictions)
            sums = [sum(log_p) for log_p in found.log_p[row]]
            highest = max(sums, default=0.0)  # subtracted first: probabilities of long outputs underflow
            total = sum(exp(each - highest) for each in sums) or 1.0
            ranked = []
            for rank, each in enumerate(predictions[:nbest], start=1):
                p_beam = round(exp((each.log_p or 0.0) - highest) / total, 4)
                shown = each.weights if weights else None
                ranked.append(replace(each, rank=rank, p_beam=p_beam, weights=shown))
            results.append(ranked)
        return results

    def search(
        self,
        model: TranslationModel,
        batch: Batch,
        pairs: Sequence[Pair],
        encoded: tuple[Any, Any] | None = None,
    ) -> Hypotheses:
        """Sample, or search greedily or with a beam, without reranking. Arguments as for a call."""
        settings: Any = {
            "size": self.beam_size,
            "max_length": self.max_length,
            "length_penalty": self.length_penalty,
            "constraints": self._constraints(batch, pairs),
            "encoded": encoded,
        }
        with self._precision(model, batch.source.device.type):
            if self.temperature is None:
                return beam(model, batch, early_stopping=self.early_stopping, **settings)
            sampler = Sampler(
                temperature=self.temperature, top_k=self.top_k, top_p=self.top_p, seed=self.seed
            )
            return sample(model, batch, sampler, **settings)

    def _precision(self, model: TranslationModel, device: str) -> AbstractContextManager[object]:
        precision = search_precision(model) if self.precision == "auto" else self.precision
        if precision == "int8":
            return int8_products(model)
        return torch.autocast(device, torch.bfloat16) if precision == "bf16" else nullcontext()

    def _constraints(self, batch: Batch, pairs: Sequence[Pair]) -> Constraints:
        prefix = batch.labels.where(batch.target_text, PAD)[:, : self.prefix_size]  # [B, P]
        if (longest := int((prefix != PAD).sum(dim=1).max())) > self.max_length:
            raise UserError(
                f"a prefix has {longest} tokens, and an output at most search.max_length={self.max_length}: "
                "increase it"
            )
        return Constraints(
            min_length=self.min_length,
            no_repeat_ngram_size=self.no_repeat_ngram_size,
            excluded=self._excluded(batch, pairs),
            forced=None if self.prefix_size == 0 else prefix,
            grammar=self._grammar(pairs),
        )

    def _excluded(self, batch: Batch, pairs: Sequence[Pair]) -> Tensor | None:
        """Return the tokens that no output of a sentence contains, [B, V]; None if there are none."""
        target = self.vocabularies.target
        unknown = None if batch.copy_ids is None else target.id_of(UNKNOWN)
        if unknown is None and not any(pair.excludes for pair in pairs):
            return None
        excluded = torch.stack([_matches(target, pair.excludes) for pair in pairs])  # [B, V]
        if unknown is not None:
            excluded[:, unknown] = True
        return excluded.to(batch.source.device)

    def _grammar(self, pairs: Sequence[Pair]) -> Grammar | None:
        def decode(row: int, ids: Sequence[int]) -> str:
            return self.vocabularies.decode(ids, pairs[row].source)

        return self.grammar and Grammar(accepts=self.grammar, decode=decode, count=2 * self.beam_size)

    def describe(
        self,
        batch: Batch,
        row: int,
        pair: Pair,
        tokens: list[int],
        score: float,
        weights: Tensor,
        log_p: Sequence[float],
        target: str = "",
    ) -> Prediction:
        """Convert one hypothesis to a prediction.

        Args:
            batch: the batch of the sentence, on the CPU.
            row: position of the sentence in the batch.
            tokens: ids of the hypothesis, without SOS and EOS.
            weights: attention weights of the tokens and of EOS, [length + 1, S].
            log_p: log-probabilities of the tokens and of EOS.
            target: the given target whose ids the tokens are; "" if they were decoded.
        """
        vocabularies = self.vocabularies
        source = batch.source[row, : int(batch.source_lengths[row])].tolist()  # S ids
        gold = vocabularies.gold_alignment(pair)
        return Prediction(
            index=int(batch.indices[row]),
            line=None if pair.origin is None else pair.origin.line,
            source=pair.source,
            references=tuple(filter(None, [vocabularies.reference(pair)])),
            hypothesis=vocabularies.output_text(tokens, pair),
            annotations=pair.annotations or {},
            score=score,
            log_p=round(sum(log_p), 4),
            source_tokens=vocabularies.source.labels(source, pair.source),
            tokens=[*vocabularies.tokens(tokens, pair.source, target), "<eos>"],
            probabilities=[round(exp(value), 4) for value in log_p],
            weights=weights.numpy(),
            alignment=None if gold is None else output_links(gold, batch, row, tokens),
        )
