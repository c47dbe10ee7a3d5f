"""`attnlab predict`: one source sentence per line in, one translation per line out."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import torch

from attnlab.api.model import Model, load
from attnlab.cli import attention_output
from attnlab.cli.input_lines import Line, read_lines
from attnlab.config.build import encode_pairs
from attnlab.config.compose import apply_overrides
from attnlab.data.corpus import Pair
from attnlab.decoding.translator import Translator
from attnlab.errors import UsageError, UserError
from attnlab.files.predictions import Prediction
from attnlab.files.reading import exists

BATCH = 64
"""Number of sentences decoded together."""


@dataclass(frozen=True, kw_only=True)
class _Predictor:
    """A trained model with the search and the input format of the command."""

    model: Model
    translator: Translator
    prefix: bool = False  # lines contain a prefix of the output

    def translate(self, lines: Sequence[Line], nbest: int) -> list[list[Prediction] | UserError]:
        """Return the predictions of each line, or the reason why it cannot be translated."""
        read = [self._read(line) for line in lines]
        pairs = {line.number: pair for line, pair in zip(lines, read, strict=True) if isinstance(pair, Pair)}
        predictions: dict[int, list[Prediction]] = {}
        if pairs:
            examples = encode_pairs(self.model.config, self.model.vocabularies, [*pairs.values()])
            batch = examples[list(range(len(pairs)))]
            batch = batch._replace(indices=torch.tensor([number - 1 for number in pairs]))
            results = self.translator(self.model.network, batch, [*pairs.values()], nbest=nbest)
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
        batching, best = self.model.config.batching, predictions[0]
        length = len(self.model.vocabularies.source.encode(best.source)) + batching.source_eos
        if length > len(best.source_tokens):
            yield f"the input was truncated to batching.max_source_length={batching.max_source_length} tokens"

    def _read(self, line: Line) -> Pair | UserError:
        """Return the pair of a line, or the reason why it cannot be translated."""
        try:
            pair = self._pair(line.decode())
            if not self.model.vocabularies.source.encode(pair.source):
                raise UserError("it contains no token of the vocabulary")
        except UserError as error:
            return line.problem(error)
        return pair

    def _pair(self, text: str) -> Pair:
        """Return the pair of a text, whose target is the prefix of the output."""
        if not self.prefix:
            return self.model.prepare(text)
        source, tab, prefix = text.partition("\t")
        if not tab or "\t" in prefix:
            raise UserError("--prefix needs two columns: a source and a prefix, separated by a tab")
        pair = self.model.prepare(source, prefix)._replace(reference="")
        self.model.vocabularies.target.encode(pair.target)
        return pair


def main(options: argparse.Namespace) -> int:
    """Run the command; returns 1 if a line could not be translated, else 0."""
    attention = attention_output.check(options.attention)
    if sys.stdin is None:
        raise UserError("Standard input is closed: give one sentence per line")
    predictor = _restore(options)
    interactive = sys.stdin.isatty()
    lines = read_lines(sys.stdin.buffer, interactive=interactive)
    failed = 0
    warnings: Counter[str] = Counter()
    with attention_output.open_output(attention, predictor.model.config) as write_attention:
        while batch := list(islice(lines, 1 if interactive else BATCH)):
            for line, result in zip(batch, predictor.translate(batch, options.nbest), strict=True):
                if isinstance(result, UserError):
                    if options.strict:
                        raise result
                    print(f"attnlab: {result}", file=sys.stderr)
                    failed += 1
                predictions = [] if isinstance(result, UserError) else result
                _print(line.number, predictions, nbest=options.nbest)
                for prediction in predictions:
                    write_attention(prediction)
                warnings.update(predictor.limits(predictions))
            if interactive:
                _warn(warnings)
    _warn(warnings)
    return 1 if failed else 0


def _restore(options: argparse.Namespace) -> _Predictor:
    """Restore the model, with the search settings of the options."""
    words = options.runs_and_overrides
    overrides = [word for word in words if "=" in word and not exists(word)]
    runs = [word for word in words if word not in overrides]
    if not runs:
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
    model = load(runs, trust=options.trust)
    model = replace(model, config=apply_overrides(model.config, overrides))
    translator = model.translator()
    if options.prefix:
        translator = replace(translator, prefix_size=None)
    if options.nbest > translator.beam_size:
        raise UsageError(f"--nbest {options.nbest} needs a larger beam: add --beam {options.nbest}")
    return _Predictor(model=model, translator=translator, prefix=options.prefix)


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
