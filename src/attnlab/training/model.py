"""Trained models: translation, and scores and attention of given translations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from math import inf
from typing import Any

import numpy as np
import torch
from omegaconf import DictConfig
from tqdm import tqdm

from attnlab.config.checks import check_values
from attnlab.data.corpus import Pair, Preparation
from attnlab.data.tokenization.vocabularies import Vocabularies
from attnlab.decoding.targets import score
from attnlab.decoding.translator import Translator
from attnlab.errors import UsageError, UserError
from attnlab.explain.attributions import METHODS, Method, relevance_map
from attnlab.files.predictions import Prediction
from attnlab.files.reading import SURROGATE
from attnlab.nn.positions import max_positions
from attnlab.nn.seq2seq import Seq2Seq, TranslationModel
from attnlab.training.build import build_translator, encode_pairs
from attnlab.types import EOS, Batch

BATCH = 64  # Number of pairs that are scored together, unless they are long

HYPOTHESES, MAX_HYPOTHESES, MAX_LOGITS = 256, 2048, 2**21
"""Smallest and largest number of hypotheses decoded together, and their logits at most if more than 256."""

MAX_PADDED_TOKENS = 2**17
"""Largest product of sentences, padded length and beam size of a batch; a single sentence may exceed it."""

PROGRESS_DELAY = 2.0  # Seconds before a progress bar is shown


@dataclass(frozen=True, kw_only=True)
class Score:
    """Log-probabilities of a given translation.

    Attributes:
        tokens: T tokens of the translation; the last is "<eos>".
        token_log_probabilities: log p(y_t | y_1 … y_{t-1}, x) of each token, T numbers.
    """

    tokens: list[str]
    token_log_probabilities: list[float]

    @property
    def log_probability(self) -> float:
        """Log-probability of the translation: the sum over its tokens."""
        return sum(self.token_log_probabilities)


@dataclass(frozen=True, kw_only=True, repr=False)
class Model:
    """A trained network with its tokenizers; created by `attnlab.load`.

    Attributes:
        config: configuration of the run; for an ensemble that of its first member that copies, or its first.
        vocabularies: tokenizers of both sides.
        network: the network or the ensemble, in evaluation mode.
        prepare: converts a source, and a target if there is one, to the pair that the network reads.
        device: device of the network.
    """

    config: DictConfig
    vocabularies: Vocabularies
    network: TranslationModel
    prepare: Preparation
    device: torch.device

    def translate(
        self,
        sentences: str | Iterable[str],
        *,
        prefixes: str | Iterable[str] | None = None,
        nbest: int = 1,
        batch_size: int | None = None,
        progress: bool = True,
        **search: Any,
    ) -> list[Prediction]:
        """Translate sentences with the search of the run.

        Args:
            sentences: source sentences; a single string is one sentence.
            prefixes: for each sentence, the text that its translation starts with; a string for one sentence.
            nbest: number of hypotheses per sentence, at most the beam size.
            batch_size: maximum number of sentences decoded together, which are of similar length; None for
                256 hypotheses, or up to 2,048 with a small vocabulary.
            progress: show a progress bar if it takes more than two seconds.
            search: settings of the group `search` that replace those of the run, such as `beam_size=5`.

        Returns:
            One prediction per sentence, in their order. With `nbest=N` at most N per sentence, best first:
            `index` is the position of the sentence, `rank` that among its hypotheses.

        Raises:
            UserError: if a sentence is empty or too long for the network, or has no output, a prefix is
                missing, or a setting is out of range.
        """
        if prefixes is not None:
            search["prefix_size"] = None
        translator = self.translator(**search)
        for name, number in (("nbest", nbest), ("batch_size", 1 if batch_size is None else batch_size)):
            if not isinstance(number, int) or number < 1:
                raise UserError(f"{name}={number}: give a whole number from 1 on")
        if nbest > translator.beam_size:
            raise UserError(f"nbest={nbest} needs a larger beam: set beam_size={nbest}")
        texts = [sentences] if isinstance(sentences, str) else list(sentences)
        starts = [""] * len(texts)
        if prefixes is not None:
            starts = [prefixes] if isinstance(prefixes, str) else list(prefixes)
        if len(starts) != len(texts):
            raise UserError(f"{len(starts)} prefixes for {len(texts)} sentences: give one for each")
        pairs = [
            replace(self.read(text, start, name=f"sentences[{i}]"), reference="")
            for i, (text, start) in enumerate(zip(texts, starts, strict=True))
        ]
        found = self.decode(pairs, translator, nbest, batch_size=batch_size, progress=progress)
        if [] in found:
            raise UserError(
                f"sentences[{found.index([])}] has no output: none satisfies the restrictions of the search, "
                "or the outputs of the network are not numbers"
            )
        return list(chain(*found))

    def score(
        self, pairs: Iterable[tuple[str, str] | Pair], *, batch_size: int = BATCH, progress: bool = True
    ) -> list[Score]:
        """Compute the log-probabilities of given translations.

        Args:
            pairs: source sentences and their translations, or pairs of `read`.
            batch_size: maximum number of pairs scored together.
            progress: show a progress bar if it takes more than two seconds.

        Returns:
            One score per pair, in their order.

        Raises:
            UserError: if a source is empty, or a text is too long for the network.
        """
        read = []
        for i, pair in enumerate(pairs):
            if not isinstance(pair, Pair) and (isinstance(pair, str) or len(pair) != 2):
                raise UserError(f"pairs[{i}] is {pair!r}: give a source and its translation")
            read.append(pair if isinstance(pair, Pair) else self.read(*pair, name=f"pairs[{i}]"))
        results: dict[int, Score] = {}
        for rows, batch in self._batches(read, batch_size, progress):
            log_p = score(self.network, batch).tolist()  # [B, T]
            for row, ids, values in zip(rows, batch.labels.tolist(), log_p, strict=True):
                size = ids.index(EOS)
                tokens = self.vocabularies.tokens(ids[:size], read[row].source, read[row].target)
                results[row] = Score(tokens=[*tokens, "<eos>"], token_log_probabilities=values[: size + 1])
        return [results[row] for row in range(len(read))]

    def read(self, source: str, target: str = "", *, name: str = "source") -> Pair:
        """Return the pair of a source, and of a target or prefix, as the network reads it, if it is valid."""
        if not isinstance(source, str) or not source.strip():
            raise UserError(f"{name} is {source!r}: give a string with at least one token")
        if not isinstance(target, str):
            raise UserError(f"{name}: the target or prefix is {target!r}: give a string")
        for text in (source, target):
            if SURROGATE.search(text):
                raise UserError(
                    f"{name}: {text!r} contains half of a surrogate pair, which is not a character"
                )
        pair = self.prepare(source, target)
        vocabularies = self.vocabularies
        tokens = len(vocabularies.source.encode(pair.source))
        if not tokens:
            raise UserError(f"{name}: the source contains no token of the vocabulary")
        source_eos, longest = self._source_settings
        lengths = min(tokens + source_eos, longest), len(vocabularies.target.encode(pair.target)) + 1
        for part, length, limit in zip(("encoder", "decoder"), lengths, self.max_lengths, strict=True):
            if length > limit:
                raise UserError(
                    f"{name}: {length} tokens, but positions=learned of the {part} has {limit} positions: "
                    f"shorten the text, or train with a larger {part}.max_positions"
                )
        return pair

    @cached_property
    def hypotheses(self) -> int:
        """Number of hypotheses decoded together, unless they are long: sentences times the beam size."""
        return max(HYPOTHESES, min(MAX_LOGITS // self.vocabularies.target.size, MAX_HYPOTHESES))

    @cached_property
    def _source_settings(self) -> tuple[bool, float]:
        """`batching.source_eos` and the maximum source length, read once because OmegaConf is slow."""
        batching = self.config.batching
        return batching.source_eos, batching.max_source_length or inf

    @cached_property
    def max_lengths(self) -> tuple[float, float]:
        """Largest S and T of the network: the learned positions of encoder and decoder; else infinity."""
        return max_positions(self.network, "encoder"), max_positions(self.network, "decoder")

    def translator(self, **search: Any) -> Translator:
        """Build the search of the run, with these settings of the group `search` replaced."""
        check_values({"search": {**self.config.search, **search}})
        translator = build_translator(self.config, self.vocabularies, **search)
        if translator.max_length >= self.max_lengths[1]:
            raise UsageError(
                f"search.max_length={translator.max_length}: positions=learned of the decoder has "
                f"{self.max_lengths[1]} positions, one of them for <eos>: give a smaller one"
            )
        return translator

    def decode(
        self,
        pairs: Sequence[Pair],
        translator: Translator,
        nbest: int = 1,
        *,
        indices: Sequence[int] | None = None,
        batch_size: int | None = None,
        weights: bool = True,
        progress: bool = False,
    ) -> list[list[Prediction]]:
        """Decode pairs of `read`, whose targets are prefixes; see `translate`.

        Args:
            indices: `Prediction.index` of each pair, which also seeds its samples; its position by default.
            weights: whether `Prediction.weights` are used. If not, they are None.

        Returns:
            For each pair at most `nbest` predictions, best first.
        """
        results: list[list[Prediction]] = [[] for _ in pairs]
        numbers = torch.arange(len(pairs)) if indices is None else torch.tensor(indices)
        beam_size = translator.beam_size
        batch_size = batch_size or max(1, self.hypotheses // beam_size)
        for rows, batch in self._batches(pairs, batch_size, progress, beam_size=beam_size):
            numbered = batch._replace(indices=numbers[rows])
            outputs = translator(
                self.network, numbered, [pairs[row] for row in rows], nbest=nbest, weights=weights
            )
            for row, predictions in zip(rows, outputs, strict=True):
                results[row] = [each.with_own_weights() for each in predictions]
        return results

    def attention(self, source: str, target: str) -> Prediction:
        """Compute the attention weights of a given translation (teacher forcing).

        Returns:
            A prediction whose hypothesis is the target. Its score is length-normalised as in `translate`,
            without the reranking of the run.
        """
        pair = self.read(source, target)
        batch = encode_pairs(self.config, self.vocabularies, [pair])[[0]]
        on_device = batch.to(self.device)
        with torch.no_grad():
            weights = self.network(on_device).weights[0].float().cpu()  # [T, S]
        log_p = score(self.network, on_device)[0].tolist()  # T values
        normalised = sum(log_p) / len(weights) ** self.config.search.length_penalty
        tokens = batch.labels[0, :-1].tolist()
        describe = self.translator().describe
        return describe(batch, 0, pair, tokens, normalised, weights, log_p, target=pair.target)

    def explain(self, source: str, target: str, method: Method = "integrated_gradients") -> Prediction:
        """Attribute each token of a given translation to the source tokens.

        Args:
            method: "gradient" (shares of the norms of the gradients), "integrated_gradients" (shares of the
                absolute values) or "erasure" (drop of the probability if a source token is erased).

        Returns:
            A prediction as of `attention`, with these values, 0 to 1, in place of the attention weights.

        Raises:
            UserError: as in `score`, or if the method is unknown, or the model is an ensemble.
        """
        if method not in METHODS:
            raise UserError(f"Unknown method {method!r}: choose from {', '.join(METHODS)}")
        if not isinstance(self.network, Seq2Seq):
            raise UserError("An ensemble has no explanations: load one run")
        pair = self.read(source, target)
        batch = encode_pairs(self.config, self.vocabularies, [pair])[[0]].to(self.device)
        values = relevance_map(self.network, batch, method).float().cpu()  # [T, S]
        return replace(self.attention(source, target), weights=values.numpy())

    def _batches(
        self, pairs: Sequence[Pair], batch_size: int, progress: bool, *, beam_size: int = 1
    ) -> Iterator[tuple[list[int], Batch]]:
        """Yield batches of similar length with the positions of their pairs, and show the progress."""
        if not pairs:
            return
        examples = encode_pairs(self.config, self.vocabularies, list(pairs))
        lengths = np.maximum(examples.source_lengths, examples.target_lengths)
        order = lengths.argsort(kind="stable").tolist()
        with tqdm(total=len(pairs), unit=" sentences", delay=PROGRESS_DELAY, disable=not progress) as bar:
            start = 0
            while start < len(order):
                end = start + 1  # sorted by length: the last one determines the padding
                while (
                    end < min(len(order), start + batch_size)
                    and (end + 1 - start) * int(lengths[order[end]]) * beam_size <= MAX_PADDED_TOKENS
                ):
                    end += 1
                rows = order[start:end]
                yield rows, examples[rows].to(self.device)
                bar.update(len(rows))
                start = end

    def __repr__(self) -> str:
        return f"<attnlab.Model {self.config.name}/{self.config.variant} on {self.device}>"
