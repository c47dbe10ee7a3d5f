"""`attnlab predict`: translate the lines of standard input to lines of standard output."""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

from attnlab.cli import arguments, input_lines
from attnlab.errors import UsageError, UserError
from attnlab.files.reading import count_lines

if TYPE_CHECKING:
    from attnlab.data.corpus import Pair
    from attnlab.decoding.translator import Translator
    from attnlab.files.predictions import Prediction
    from attnlab.training.model import Model

GROUPS = ("reranking", "grammar")  # Groups that can be changed, besides the section `search`

MARK = "\N{REPLACEMENT CHARACTER}"
NUMBERS = {"log_p": ".4f", "p": ".4g", "p_beam": ".4g", "score": ".4f"}
"""Attributes of a prediction that `--nbest` prints."""

IMPORTS = ("attnlab.api.model", "attnlab.cli.attention_output")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.add_runs_and_overrides(parser, "settings of the search to change: search.temperature=0.8")
    parser.add_argument(
        "--beam",
        type=arguments.positive,
        metavar="K",
        help="beam size (default: search.beam_size of the run)",
    )
    parser.add_argument(
        "--max-length",
        type=arguments.positive,
        metavar="N",
        help="maximum number of output tokens (default: search.max_length of the run)",
    )
    parser.add_argument(
        "--prefix",
        action="store_true",
        help="read a prefix of the output after the source, its features and a tab; outputs start with it",
    )
    parser.add_argument(
        "--nbest",
        type=arguments.positive,
        metavar="N",
        help="print a table of the N best hypotheses per line, with their probabilities",
    )
    parser.add_argument(
        "--lexicon",
        metavar="FILE",
        help="output the most frequent target of each source in FILE, which has the columns of the training "
        "file, and translate the other sources",
    )
    parser.add_argument(
        "--unknown",
        choices=("copy", "skip", "mark"),
        help="source symbols outside the vocabulary: copy them into the output where it attends to them, "
        f"mark these places with {MARK}, or leave them out of the source (default: the network reads <unk>)",
    )
    parser.add_argument(
        "--attention",
        metavar="FILE",
        help="write the attention weights: FILE.html, an interactive page of all lines; FILE.png or "
        "FILE.svg, one heat map per line; FILE.jsonl, numbers; -, heat maps in the terminal",
    )
    arguments.add_strict(parser, "translated")
    arguments.add_trust(parser)


def main(options: argparse.Namespace) -> int:
    """Run the command; returns 1 if a line could not be translated, else 0."""
    from tqdm import tqdm

    from attnlab.api import evaluation_data
    from attnlab.api.words import fill_unknown, read_lexicon, without_unknown
    from attnlab.cli import attention_output
    from attnlab.fast import machine
    from attnlab.files.predictions import Prediction
    from attnlab.training.model import PROGRESS_DELAY

    if options.lexicon is not None and options.prefix:
        raise UsageError("--lexicon outputs whole words: it cannot be given with --prefix")
    attention = attention_output.check(options.attention)
    stream = input_lines.standard_input("one sentence per line")
    model, translator = _load(options)
    machine.use_faster_threads()
    interactive = sys.stdin.isatty()
    lines = input_lines.read_lines(stream, interactive=interactive)
    warnings = _Warnings(model, translator, skips=options.unknown == "skip")
    layout = evaluation_data.layout_of(model.config)
    lexicon = {} if options.lexicon is None else read_lexicon(model, options.lexicon)
    tokenizer = model.vocabularies.source
    failed = 0
    looked_up = Counter[bool]()

    def look_up(pair: Pair) -> tuple[str, float] | None:
        return lexicon.get(tokenizer.normalise(pair.source))

    def read(number: int, text: str) -> tuple[Pair, Pair]:
        """Return the pair of a line, and what the network reads of it."""
        if options.prefix:
            source, prefix = _source_and_prefix(text, has_features=warnings.has_features)
            source = layout.input_of(source) if layout else source
            pair = replace(model.read(source, prefix), reference="")
        else:
            read_text = layout.input_of(text) if layout else text
            pair = model.read(read_text)
            warnings.check_columns(number, text, read_text)
        warnings.check_unknown(number, pair)
        skips = options.unknown == "skip" and look_up(pair) is None
        return pair, without_unknown(pair, tokenizer) if skips else pair

    def compute(pairs: dict[int, tuple[Pair, Pair]]) -> list[list[Prediction]]:
        forms = {number: look_up(pair) for number, (pair, _) in pairs.items()}
        looked_up.update(form is not None for form in forms.values())
        others = {number: pair for number, (_, pair) in pairs.items() if forms[number] is None}
        indices = [number - 1 for number in others]
        fills = options.unknown in ("copy", "mark")
        decoded = model.decode(
            list(others.values()),
            translator,
            options.nbest or 1,
            indices=indices,
            weights=fills or attention is not None,
        )
        if fills:
            mark = MARK if options.unknown == "mark" else None
            decoded = [
                [fill_unknown(each, pair, model.vocabularies.target, mark) for each in row]
                for pair, row in zip(others.values(), decoded, strict=True)
            ]
        rows = dict(zip(others, decoded, strict=True))
        for number, form in forms.items():
            if form is not None:
                source, (text, share) = pairs[number][0].source, form
                rows[number] = [Prediction(index=number - 1, source=source, hypothesis=text, p_beam=share)]
        return [rows[number] for number in pairs]

    def write(number: int, pairs: tuple[Pair, Pair] | None, predictions: list[Prediction] | None) -> None:
        if options.nbest is None:
            text = predictions[0].hypothesis if predictions else ""
            print(text.replace("\n", "\\n"), flush=True)
        else:
            _print_rows(number, predictions or [], has_features=warnings.has_features)
        if pairs is None or not predictions or not predictions[0].tokens:  # a bad line, or of the lexicon
            return
        for prediction in predictions:
            write_attention(prediction)
        warnings.check(number, pairs[1], predictions)

    if options.nbest is not None:
        print(*_columns(warnings.has_features), sep="\t", flush=True)
    no_bar = interactive or sys.stdout.isatty() or not sys.stderr.isatty()
    with (
        attention_output.open_output(attention, model.config) as write_attention,
        tqdm(unit=" lines", delay=PROGRESS_DELAY, disable=no_bar) as bar,
    ):
        while batch := list(islice(lines, 1 if interactive else model.hypotheses)):
            failed += input_lines.process(
                batch, read, compute, write, strict=options.strict, allow_empty=layout is not None
            )
            bar.update(len(batch))
            if interactive:
                warnings.print()
    warnings.print()
    if options.lexicon is not None:
        _warn(f"{looked_up[True]:,} of {looked_up.total():,} inputs have their output from {options.lexicon}")
    return 1 if failed else 0


def _load(options: argparse.Namespace) -> tuple[Model, Translator]:
    """Load the model, and build its search with the settings of the options."""
    from attnlab.api.model import load
    from attnlab.config.compose import apply_overrides

    runs, overrides = arguments.split_overrides(options, "translate with")
    for override in overrides:
        if not override.startswith("search.") and override.partition("=")[0].split(".")[0] not in GROUPS:
            raise UsageError(
                f"{override}: attnlab predict changes only search.…, reranking and grammar; evaluate changes "
                "the data"
            )
    if options.beam is not None:
        overrides.append(f"search.beam_size={options.beam}")
    if options.max_length is not None:
        overrides.append(f"search.max_length={options.max_length}")
    if len(runs) > 1:
        _warn(f"{len(runs)} runs are read as one ensemble")
    model = load(runs, trust=options.trust)
    model = replace(model, config=apply_overrides(model.config, overrides))
    translator = model.translator()
    if options.prefix:
        translator = replace(translator, prefix_size=None)
    if (options.nbest or 1) > translator.beam_size:
        raise UsageError(f"--nbest {options.nbest} needs a larger beam: add --beam {options.nbest}")
    return model, translator


def _source_and_prefix(text: str, *, has_features: bool) -> tuple[str, str]:
    """Return the source, followed by its columns of features if it has any, and the prefix of a line."""
    columns = text.split("\t")
    if len(columns) < 3 if has_features else len(columns) != 2:
        raise UserError(
            "--prefix needs three columns or more: a source, its features and a prefix, separated by tabs"
            if has_features
            else "--prefix needs two columns: a source and a prefix, separated by a tab"
        )
    *source, prefix = columns
    return "\t".join(source), prefix


def _columns(has_features: bool) -> list[str]:
    """Return the names of the columns of `--nbest`."""
    return [*("line", "rank", "input"), *["features"] * has_features, *("output", *NUMBERS)]


def _print_rows(number: int, predictions: Sequence[Prediction], *, has_features: bool) -> None:
    """Print a row for each hypothesis of a line; one without values if there is none."""
    for each in predictions:
        texts = [*each.columns, ""][:2] if has_features else [each.source]
        numbers = ((getattr(each, name), form) for name, form in NUMBERS.items())
        values = ["" if number is None else f"{number:{form}}" for number, form in numbers]
        cells = [re.sub(r"\s", " ", text) for text in (*texts, each.hypothesis)]
        print(number, each.rank, *cells, *values, sep="\t", flush=True)
    if not predictions:
        print(number, *[""] * (len(_columns(has_features)) - 1), sep="\t", flush=True)


class _Warnings:
    """Counts the lines to which something happened that their outputs do not show."""

    def __init__(self, model: Model, translator: Translator, *, skips: bool) -> None:
        from attnlab.nn.attention.location import scored_positions

        self.batching, self.tokenizer = model.config.batching, model.vocabularies.source
        self.skips = skips  # unknown symbols are left out
        self.max_length = translator.max_length
        self.window = scored_positions(model.network)
        self.has_features = model.config.data.get("features_column") is not None
        self.first_width: tuple[int, int] | None = None  # number of the first line, and of its columns
        self.lines: dict[str, list[int]] = {}
        self.tokens = 0
        self.unknown: Counter[str] = Counter()
        self.lines_of_unknown: list[int] = []

    def check(self, number: int, pair: Pair, predictions: Sequence[Prediction]) -> None:
        """Check a line that was translated."""
        if any(len(prediction.tokens) > self.max_length for prediction in predictions):  # <eos> included
            limit = f"{self.max_length} tokens"
            self._add(
                f"the output reached {limit} and may be incomplete; --max-length sets the limit", number
            )
        ids = self.tokenizer.encode(pair.source)
        length = len(predictions[0].source_tokens)
        if len(ids) + self.batching.source_eos > length:
            limit = f"batching.max_source_length={self.batching.max_source_length}"
            self._add(f"the input was truncated to {limit} tokens", number)
        if length > self.window:
            self._add(f"tokens after attention.max_length={self.window} got weight 0", number)

    def check_unknown(self, number: int, pair: Pair) -> None:
        """Count the source tokens outside the vocabulary of a line."""
        from attnlab.data.tokenization.tokenizer import UNKNOWN

        ids = self.tokenizer.encode(pair.source)
        self.tokens += len(ids)
        if (unk := self.tokenizer.id_of(UNKNOWN)) in ids:
            spelled = zip(self.tokenizer.spell(pair.source), ids, strict=True)
            self.unknown.update(token for token, id in spelled if id == unk)
            self.lines_of_unknown.append(number)

    def check_columns(self, number: int, text: str, read: str) -> None:
        """Check the columns of a line, of which some are read."""
        width = 1 + text.count("\t")
        first, expected = self.first_width = self.first_width or (number, width)
        if width != expected:
            self._add(f"another number of columns than line {first}, which has {expected}", number)
        if len(read) < len(text):
            columns = "text and features are" if self.has_features else "the source is"
            self._add(f"more columns: only {columns} read", number)
        elif "\t" in text and not self.has_features:
            self._add("a tab: all columns were read as one sentence; cut -f1 gives the first column", number)

    def _add(self, warning: str, number: int) -> None:
        self.lines.setdefault(warning, []).append(number)

    def print(self) -> None:
        """Print the warnings with the numbers of their lines, and clear them."""
        from attnlab.data.examples import describe_unknown

        for warning, numbers in self.lines.items():
            _warn(f"{count_lines('line', numbers)} of standard input: {warning}")
        if self.unknown:
            tokens = (token for token, _ in self.unknown.most_common())
            counted = describe_unknown(
                self.unknown.total(), self.tokens, "source", "standard input", tokens, self.tokenizer
            )
            if self.skips:
                counted = counted.replace("read as <unk>", "left out")
            _warn(f"{counted}; in {count_lines('line', self.lines_of_unknown)}")
        self.lines.clear()
        self.tokens = 0
        self.unknown.clear()
        self.lines_of_unknown.clear()


def _warn(warning: str) -> None:
    print(f"attnlab: {warning}", file=sys.stderr)
