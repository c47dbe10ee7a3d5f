"""`attnlab predict`: one source sentence per line in, one translation per line out."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import torch
from omegaconf import DictConfig

from attnlab.cli import attention_output
from attnlab.cli.input_lines import Line, read_lines
from attnlab.config.build import build_preparation, build_translator, encode_pairs
from attnlab.config.compose import apply_overrides
from attnlab.config.range_checks import check_ranges
from attnlab.config.restore import restore_networks
from attnlab.data.corpus import Pair, Preparation
from attnlab.data.tokenization.vocabularies import Vocabularies
from attnlab.decoding.translator import Translator
from attnlab.errors import UsageError, UserError
from attnlab.nn.seq2seq import TranslationModel
from attnlab.plotting.text import truncate
from attnlab.runs.directory import locate
from attnlab.runs.launcher import import_from_current_folder
from attnlab.runs.predictions import Prediction
from attnlab.runs.text import printable

BATCH = 64
"""Number of sentences decoded together."""
MAX_PROBLEM = 300
"""Maximum number of characters that describe why a line cannot be translated."""


@dataclass(frozen=True, kw_only=True)
class _Model:
    """A trained model with the settings of the command."""

    config: DictConfig
    vocabularies: Vocabularies
    network: TranslationModel
    prepare: Preparation
    translator: Translator
    prefix: bool = False  # lines contain a prefix of the output

    def translate(self, lines: Sequence[Line], nbest: int) -> list[list[Prediction] | UserError]:
        """Return the predictions of each line, or the reason why it cannot be translated."""
        read = [self._read(line) for line in lines]
        pairs = {line.number: pair for line, pair in zip(lines, read, strict=True) if isinstance(pair, Pair)}
        predictions: dict[int, list[Prediction]] = {}
        if pairs:
            batch = encode_pairs(self.config, self.vocabularies, [*pairs.values()])[list(range(len(pairs)))]
            batch = batch._replace(indices=torch.tensor([number - 1 for number in pairs]))
            results = self.translator(self.network, batch, [*pairs.values()], nbest=nbest)
            predictions = dict(zip(pairs, results, strict=True))
        return [
            predictions[line.number] if isinstance(pair, Pair) else pair
            for line, pair in zip(lines, read, strict=True)
        ]

    def limits(self, predictions: Sequence[Prediction]) -> Iterator[str]:
        """Yield a warning for each limit of the length that cut the input or the output of a line."""
        limit = self.translator.max_length
        if not predictions:
            return
        if any(len(prediction.tokens) > limit for prediction in predictions):  # tokens include <eos>
            yield f"the output reached {limit} tokens and may be incomplete; --max-length sets the limit"
        batching, best = self.config.batching, predictions[0]
        if len(self.vocabularies.source.encode(best.source)) + batching.source_eos > len(best.source_tokens):
            yield f"the input was truncated to batching.max_source_length={batching.max_source_length} tokens"

    def _read(self, line: Line) -> Pair | UserError:
        """Return the pair of a line, or the reason why it cannot be translated."""
        try:
            pair = self._pair(line.decode())
            if not self.vocabularies.source.encode(pair.source):
                raise UserError("it contains no token of the vocabulary")
        except UserError as error:
            problem = truncate(printable(str(error)), MAX_PROBLEM)
            return UserError(f"line {line.number} of standard input: {problem}")
        return pair

    def _pair(self, text: str) -> Pair:
        """Return the pair of a text, whose target is the prefix of the output."""
        if not self.prefix:
            return self.prepare(text)
        source, tab, prefix = text.partition("\t")
        if not tab or "\t" in prefix:
            raise UserError("--prefix needs two columns: a source and a prefix, separated by a tab")
        pair = self.prepare(source, prefix)._replace(reference="")
        self.vocabularies.target.encode(pair.target)
        return pair


def main(options: argparse.Namespace) -> int:
    """Run the command; returns 1 if a line could not be translated, else 0."""
    attention = attention_output.check(options.attention)
    if sys.stdin is None:
        raise UserError("Standard input is closed: give one sentence per line")
    model = _restore(options)
    interactive = sys.stdin.isatty()
    lines = read_lines(sys.stdin.buffer, interactive=interactive)
    failed = 0
    warnings: Counter[str] = Counter()
    with attention_output.open_output(attention, model.config) as write_attention:
        while batch := list(islice(lines, 1 if interactive else BATCH)):
            for line, result in zip(batch, model.translate(batch, options.nbest), strict=True):
                if isinstance(result, UserError):
                    if options.strict:
                        raise result
                    print(f"attnlab: {result}", file=sys.stderr)
                    failed += 1
                predictions = [] if isinstance(result, UserError) else result
                _print(line.number, predictions, nbest=options.nbest)
                for prediction in predictions:
                    write_attention(prediction)
                warnings.update(model.limits(predictions))
            if interactive:
                _warn(warnings)
    _warn(warnings)
    return 1 if failed else 0


def _restore(options: argparse.Namespace) -> _Model:
    """Restore the model, with the search settings of the options."""
    if options.trust:
        import_from_current_folder()
    words = options.runs_and_overrides
    overrides = [word for word in words if "=" in word and not Path(word).exists()]
    checkpoints = [locate(word)[1] for word in words if word not in overrides]
    if not checkpoints:
        raise UsageError("No RUN to translate with: give a run directory or a checkpoint file")
    for override in overrides:
        if not override.startswith("search.") and override.partition("=")[0].split(".")[0] != "reranking":
            raise UsageError(
                f"{override}: attnlab predict changes only search.… and reranking; evaluate changes the data"
            )
    if options.beam is not None:
        overrides.append(f"search.beam_size={options.beam}")
    if options.max_length is not None:
        overrides.append(f"search.max_length={options.max_length}")
    trained, vocabularies, network = restore_networks(checkpoints, options.trust)
    config = apply_overrides(trained, overrides)
    check_ranges(config)
    translator = build_translator(config, vocabularies)
    if options.prefix:
        translator = replace(translator, prefix_size=None)
    if options.nbest > translator.beam_size:
        raise UsageError(f"--nbest {options.nbest} needs a larger beam: add --beam {options.nbest}")
    return _Model(
        config=config,
        vocabularies=vocabularies,
        network=network,
        prepare=build_preparation(config),
        translator=translator,
        prefix=options.prefix,
    )


def _print(number: int, predictions: Sequence[Prediction], *, nbest: int) -> None:
    """Print the hypotheses of a line; an empty one if there is none."""
    texts = [(prediction.score, prediction.hypothesis.replace("\n", "\\n")) for prediction in predictions]
    if nbest == 1:
        print(texts[0][1] if texts else "", flush=True)
        return
    for score, text in texts:
        print(f"{number}\t{score:.4f}\t{text}", flush=True)
    if not texts:
        print(f"{number}\t\t", flush=True)


def _warn(warnings: Counter[str]) -> None:
    """Print the warnings, each with the number of its lines, and clear them."""
    for warning, count in warnings.items():
        print(f"attnlab: {count} line{'s' * (count != 1)}: {warning}", file=sys.stderr)
    warnings.clear()
