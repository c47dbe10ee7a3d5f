"""Trained models: translation, and scores and attention of given translations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig
from tqdm import tqdm

from attnlab.api.prediction import Prediction
from attnlab.config.build import build_preparation, build_translator, encode_pairs
from attnlab.config.range_checks import check_ranges
from attnlab.data.corpus import Pair, Preparation
from attnlab.data.tokenization.vocabularies import Vocabularies
from attnlab.decoding.scoring import score
from attnlab.decoding.translator import Translator
from attnlab.errors import UserError
from attnlab.explain.attributions import METHODS, Method, relevance_map
from attnlab.files.run_directory import Run, locate
from attnlab.jobs.launcher import import_from_current_folder
from attnlab.nn.seq2seq import Seq2Seq, TranslationModel
from attnlab.training.restore import restore_networks
from attnlab.types import EOS, Batch

PROGRESS_DELAY = 2.0
"""Seconds before a progress bar is shown."""

RunPath = str | Path | Run
"""A run, the path of its directory, or the path of a checkpoint file."""


def load(
    runs: RunPath | Sequence[RunPath],
    *,
    trust: str | Sequence[str] = (),
    device: torch.device | str = "cpu",
) -> Model:
    """Load a trained model, in evaluation mode.

    Args:
        runs: a run directory, of which the best checkpoint is used, or a checkpoint file. A list is an
            ensemble: the probabilities of its members are averaged.
        trust: modules, or dotted names of classes, that the configuration of the run may name in addition to
            attnlab's, such as the file of a custom mechanism in the current folder.
        device: where to compute, such as "cuda".

    Raises:
        UserError: if a checkpoint is missing or damaged, or names a class that is not trusted; or if the
            members of an ensemble have different vocabularies.
    """
    members = [runs] if isinstance(runs, (str, Path, Run)) else list(runs)
    trusted = [trust] if isinstance(trust, str) else list(trust)
    if not members:
        raise UserError("No run to load: give a run directory or a checkpoint file")
    if trusted:
        import_from_current_folder()
    paths = [str(member.directory if isinstance(member, Run) else member) for member in members]
    config, vocabularies, network = restore_networks([locate(path)[1] for path in paths], trusted)
    return Model(
        config=config,
        vocabularies=vocabularies,
        network=network.to(device),
        prepare=build_preparation(config),
        device=torch.device(device),
    )


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
        config: configuration of the run; of the first one for an ensemble.
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
        prefixes: str | Sequence[str] | None = None,
        nbest: int = 1,
        batch_size: int = 64,
        progress: bool = True,
        **search: Any,
    ) -> list[Prediction]:
        """Translate sentences with the search of the run.

        Args:
            sentences: source sentences; a single string is one sentence.
            prefixes: for each sentence, the text that its translation starts with; a string for one sentence.
            nbest: number of hypotheses per sentence, at most the beam size.
            batch_size: number of sentences decoded together; sentences of similar length share a batch.
            progress: show a progress bar if it takes more than two seconds.
            search: settings of the group `search` that replace those of the run, such as `beam_size=5`.

        Returns:
            One prediction per sentence, in their order. With `nbest=N` at most N per sentence, best first:
            `index` is the position of the sentence, `rank` that among its hypotheses.

        Raises:
            UserError: if a sentence is empty, a prefix is missing, or a setting is out of range.
        """
        if prefixes is not None:
            search["prefix_size"] = None
        translator = self.translator(**search)
        if nbest > translator.beam_size:
            raise UserError(f"nbest={nbest} needs a larger beam: set beam_size={nbest}")
        texts = [sentences] if isinstance(sentences, str) else list(sentences)
        if prefixes is None:
            prefixes = [""] * len(texts)
        elif isinstance(prefixes, str):
            prefixes = [prefixes]
        if len(prefixes) != len(texts):
            raise UserError(f"{len(prefixes)} prefixes for {len(texts)} sentences: give one for each")
        pairs = [
            self.prepare(_checked(text, f"sentences[{i}]"), prefix)._replace(reference="")
            for i, (text, prefix) in enumerate(zip(texts, prefixes, strict=True))
        ]
        results: list[list[Prediction]] = [[] for _ in pairs]
        for rows, batch in self._batches(pairs, batch_size, progress):
            outputs = translator(self.network, batch, [pairs[row] for row in rows], nbest=nbest)
            for row, predictions in zip(rows, outputs, strict=True):
                results[row] = [Prediction.of(prediction) for prediction in predictions]
        return list(chain(*results))

    def score(
        self, pairs: Iterable[tuple[str, str]], *, batch_size: int = 64, progress: bool = True
    ) -> list[Score]:
        """Compute the log-probabilities of given translations.

        Args:
            pairs: source sentences and their translations.
            batch_size: number of pairs scored together.
            progress: show a progress bar if it takes more than two seconds.

        Returns:
            One score per pair, in their order.

        Raises:
            UserError: if a source is empty.
        """
        prepared = [
            self.prepare(_checked(source, f"pairs[{i}]"), target) for i, (source, target) in enumerate(pairs)
        ]
        results: dict[int, Score] = {}
        for rows, batch in self._batches(prepared, batch_size, progress):
            log_p = score(self.network, batch).tolist()  # [B, T]
            for row, ids, values in zip(rows, batch.labels.tolist(), log_p, strict=True):
                size = ids.index(EOS)
                tokens = [*self.vocabularies.tokens(ids[:size], prepared[row].source), "<eos>"]
                results[row] = Score(tokens=tokens, token_log_probabilities=values[: size + 1])
        return [results[row] for row in range(len(prepared))]

    def translator(self, **search: Any) -> Translator:
        """Build the search of the run, with these settings of the group `search` replaced.

        Raises:
            UserError: if a setting is out of range.
        """
        config = self.config.copy()
        config.search = {**config.search, **search}
        check_ranges(config)
        return build_translator(config, self.vocabularies)

    def attention(self, source: str, target: str) -> Prediction:
        """Compute the attention weights of a given translation (teacher forcing).

        Args:
            source: source sentence.
            target: its translation.

        Returns:
            A prediction whose text is the target, and whose score is comparable with those of `translate`.

        Raises:
            UserError: if the source is empty.
        """
        pair: Pair = self.prepare(_checked(source, "source"), target)
        batch = encode_pairs(self.config, self.vocabularies, [pair])[[0]]
        on_device = batch.to(self.device)
        with torch.no_grad():
            weights = self.network(on_device).weights[0].float().cpu()  # [T, S]
        log_p = (
            float(score(self.network, on_device).sum()) / len(weights) ** self.config.search.length_penalty
        )
        tokens = batch.labels[0, :-1].tolist()
        return Prediction.of(self.translator().describe(batch, 0, pair, tokens, log_p, weights))

    def explain(self, source: str, target: str, method: Method = "integrated_gradients") -> Prediction:
        """Attribute each token of a given translation to the source tokens.

        Args:
            source: source sentence.
            target: its translation.
            method: "gradient" (shares of the norms of the gradients), "integrated_gradients" (shares of the
                absolute values) or "erasure" (drop of the probability if a source token is erased).

        Returns:
            A prediction as of `attention`, with these values, 0 to 1, in place of the attention weights.

        Raises:
            UserError: if the source is empty, the method is unknown, or the model is an ensemble.
        """
        if method not in METHODS:
            raise UserError(f"Unknown method {method!r}: choose from {', '.join(METHODS)}")
        if not isinstance(self.network, Seq2Seq):
            raise UserError("An ensemble has no explanations: load one run")
        pair = self.prepare(_checked(source, "source"), target)
        batch = encode_pairs(self.config, self.vocabularies, [pair])[[0]].to(self.device)
        values = relevance_map(self.network, batch, method).float().cpu()  # [T, S]
        return replace(self.attention(source, target), weights=values.numpy())

    def _batches(
        self, pairs: list[Pair], batch_size: int, progress: bool
    ) -> Iterator[tuple[list[int], Batch]]:
        """Yield batches of similar length with the positions of their pairs, and show the progress."""
        if not pairs:
            return
        examples = encode_pairs(self.config, self.vocabularies, pairs)
        order = examples.source_lengths.argsort(kind="stable").tolist()
        with tqdm(total=len(pairs), unit=" sentences", delay=PROGRESS_DELAY, disable=not progress) as bar:
            for start in range(0, len(pairs), batch_size):
                rows = order[start : start + batch_size]
                yield rows, examples[rows].to(self.device)
                bar.update(len(rows))

    def __repr__(self) -> str:
        return f"<attnlab.Model {self.config.name}/{self.config.variant} on {self.device}>"


def _checked(text: Any, name: str) -> str:
    """Return a source text, or raise `UserError` if it is empty or not a string."""
    if not isinstance(text, str) or not text.strip():
        raise UserError(f"{name} is {text!r}: give a string with at least one token")
    return text
