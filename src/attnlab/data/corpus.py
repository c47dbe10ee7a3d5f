"""Text pairs, and the corpus that every dataset returns."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from attnlab.errors import UserError

Alignment = tuple[tuple[int, int], ...]
"""Links (source token, target token), both counted from 0 without SOS and EOS."""


class Origin(NamedTuple):
    """Place of a pair in its file."""

    file: str  # the file, or the two aligned files
    line: int  # number of the line, from 1; for other units the number that the dataset gives
    unit: str = "line"  # "line", or "row" or "item" of a file without lines

    def __str__(self) -> str:
        return f"{self.file}, {self.unit} {self.line}"


@dataclass(frozen=True, order=True)
class Pair:
    """One example: a source text and a target text, with what its dataset adds to them.

    Attributes:
        source: text that the network reads.
        target: text that the network is trained to produce.
        alignment: gold alignment of the source and target tokens; None if unknown.
        reference: text that outputs are scored against; None for the target as its tokenizer normalises it.
        annotations: plain JSON data for the metrics of the dataset, copied into every prediction.
        postprocess: maps the decoded text to the final text, which is scored and shown; None for no change.
        excludes: regular expression of the target tokens that no output contains; None for none.
        origin: where the pair was read; None if it is generated. Equal pairs may have different origins.
    """

    source: str
    target: str = ""
    alignment: Alignment | None = None
    reference: str | None = None
    annotations: Mapping[str, Any] | None = None
    postprocess: Callable[[str], str] | None = None
    excludes: str | None = None
    origin: Origin | None = field(default=None, compare=False)


Preparation = Callable[..., Pair]
"""Converts a raw source and, if there is one, a raw target to the `Pair` that the network reads.

It is named in `data.preparation`, and `attnlab predict` applies it to input lines.
"""


TEST_SET_NAME = re.compile(r"(?!(?:attention|explanation|val)$)[A-Za-z0-9][A-Za-z0-9_.-]*")
"""Names of test sets, which are part of metric names (`test/NAME/bleu`) and of file names."""


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """Text pairs in three disjoint splits; the test split may consist of several named test sets.

    Attributes:
        test: test pairs, or several test sets by name; may be empty.
        metrics: names of metrics of decoded texts (`attnlab.metrics.registry`) beyond the default ones.
        files: files that the pairs were read from.
        evaluation_only: whether the corpus needs no training and validation pairs.
        draws: for successive parts of `train`, the number of pairs and how many are drawn per epoch; the
            second numbers have the same sum as the first ones. Empty to draw each pair once.
    """

    train: Sequence[Pair] = field(default_factory=list)
    val: Sequence[Pair] = field(default_factory=list)
    test: Sequence[Pair] | Mapping[str, Sequence[Pair]] = field(default_factory=list)
    metrics: tuple[str, ...] = ()
    files: tuple[Path, ...] = field(default=(), compare=False)
    evaluation_only: bool = False
    draws: tuple[tuple[int, int], ...] = ()

    def __post_init__(self) -> None:
        for name in self.test if isinstance(self.test, Mapping) else ():
            if not TEST_SET_NAME.fullmatch(str(name)):
                raise UserError(
                    f"data.test: {name!r} is not a valid name of a test set. Use letters, digits, '_', '-' "
                    "and '.', and not the names 'attention' and 'explanation'"
                )
        for name, pairs in (("training", self.train), ("validation", self.val)):
            if not pairs and not self.evaluation_only:
                tests = sum(len(self.splits[split]) for split in self.test_splits)
                raise UserError(
                    f"the {name} split is empty ({len(self.train)} training, {len(self.val)} validation "
                    f"and {tests} test pairs). Provide more data or change the sizes of the splits"
                )

    @cached_property
    def splits(self) -> dict[str, Sequence[Pair]]:
        """The pairs of each split: "train", "val", and "test" or "test/NAME" of each test set with pairs."""
        tests: dict[str, Sequence[Pair]]
        if isinstance(self.test, Mapping):
            tests = {f"test/{name}": pairs for name, pairs in self.test.items()}
        else:
            tests = {"test": self.test}
        return {"train": self.train, "val": self.val, **{name: each for name, each in tests.items() if each}}

    @property
    def test_splits(self) -> tuple[str, ...]:
        """Names in `splits` of the test split or the named test sets; empty if there is no test data."""
        return tuple(name for name in self.splits if name.partition("/")[0] == "test")
