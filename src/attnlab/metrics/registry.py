"""Registry of metrics: one `Metric` for each, with its function, label, unit, range and direction.

A text metric is a function with the decorator `text_metric`, in a module of `attnlab.metrics.text` or of the
user. Others are computed together (`attnlab.metrics.tokens`, `attnlab.metrics.attention`); their rows are in
`METRICS`, so that reading results imports no torch. Runs store shares and rates as fractions of 1, and WER,
as its shared tasks do, in percent. Terminal, log, tables and figures show all of them in percent.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, inf
from typing import Any, Literal, NamedTuple

from attnlab.errors import UserError
from attnlab.metrics.sentence_counts import SentenceCounts
from attnlab.metrics.texts import WORDS, Texts, UndefinedScoreError

TORCHMETRICS = "torchmetrics.text."  # Start of the names of text metrics that are classes of torchmetrics

CLASSIFICATION = "torchmetrics.classification."
"""Start of the names of token metrics that are classes of torchmetrics."""

TextMetric = Callable[[Texts], float]  # Raises `UndefinedScoreError` for texts that do not define the score

Kind = Literal["text", "token", "attention", "explanation", "training"]
Direction = Literal["higher", "lower"]


class Format(NamedTuple):
    """Range of the stored values of a metric, and how they are displayed."""

    low: float  # smallest and largest possible value; infinite without a limit
    high: float
    unit: Literal["%", "nats", ""] = ""  # unit in which values are displayed
    scale: int = 1  # factor that converts a stored value to the unit
    digits: int = 3  # decimal places


FORMATS = {
    "share": Format(0, 1, "%", scale=100, digits=1),
    "rate": Format(0, inf, "%", scale=100, digits=1),
    "percent": Format(0, 100, "%", digits=1),
    "points": Format(0, 100, digits=1),
    "fraction": Format(0, 1),
    "signed": Format(-1, 1),
    "nats": Format(0, inf, "nats"),
    "positive": Format(0, inf),
    "number": Format(-inf, inf),
}


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One metric. Formatting methods take values as runs store them."""

    label: str  # name in tables and figures, without the split
    # source of the values: decoded "text", the "token" distribution given the reference, "attention" weights,
    # an "explanation" (an option of the group `explain`), or the "training" loop
    kind: Kind
    format: str = "number"  # key of `FORMATS`
    direction: Direction | None = None  # whether higher or lower is better; None if neither is
    function: TextMetric | None = None  # function of a text metric
    # returns the settings of a metric with several definitions, given the scored texts
    signature: Callable[[Texts], str] | None = None
    # returns the metric's `SentenceCounts`, given its tokenizer, for tests over sentences; None if the tokens
    # need a vocabulary
    counts: Callable[[str], SentenceCounts | None] | None = None
    of_target_tokens: bool = False  # the tokenizer of the counts is that of the targets, not sacreBLEU's
    default: bool = False  # computed for every corpus; the others are named by `Corpus.metrics`
    rank: int | None = None  # position among the metrics that studies are compared by; 1 is the first
    logged: str = ""  # name with the split, such as "test/bleu"; set by `metric`

    @property
    def name(self) -> str:
        """Name without the split: "bleu" for "test/bleu" and "test/mscoco/bleu"."""
        return name(self.logged)

    @property
    def split(self) -> str:
        """Split that the metric was computed on: "val", "test" or a named set, "test/mscoco"."""
        return split(self.logged)

    @property
    def title(self) -> str:
        """Label with the split, unless it is "test" or the metric has none: "BLEU", "BLEU (mscoco)"."""
        if self.split == "test" or self.logged.startswith("train/"):
            return self.label
        return f"{self.label} ({self.split.removeprefix('test/')})"

    @property
    def heading(self) -> str:
        """Title with the unit in brackets."""
        return f"{self.title} [{self.unit}]" if self.unit else self.title

    @property
    def label_with_unit(self) -> str:
        """Label with the unit in brackets, for tables whose title or column names the split."""
        return f"{self.label} [{self.unit}]" if self.unit else self.label

    @property
    def unit(self) -> Literal["%", "nats", ""]:
        """Unit in which values are displayed."""
        return FORMATS[self.format].unit

    @property
    def scale(self) -> int:
        """Factor that converts a stored value to the unit."""
        return FORMATS[self.format].scale

    @property
    def digits(self) -> int:
        """Number of decimal places to display."""
        return FORMATS[self.format].digits

    @property
    def bounds(self) -> tuple[float, float]:
        """Smallest and largest possible stored value; infinite without a limit."""
        return FORMATS[self.format][:2]

    @property
    def sign(self) -> Literal[-1, 1]:
        """-1 if lower values are better, else 1."""
        return -1 if self.direction == "lower" else 1

    def of_100(self, value: float) -> float:
        """Convert a value to a scale of 0 to 100, to draw several metrics on one axis."""
        return value if self.bounds[1] == 100 else 100 * value

    def number(self, value: float, sign: Literal["", "+"] = "") -> str:
        """Format a value in the unit, without the unit's name; `sign="+"` marks positive values."""
        shown = round(value * self.scale, self.digits) + 0  # + 0: no "-0.0"
        return f"{shown:{sign}.{self.digits}f}" if abs(shown) < 1e6 else f"{shown:{sign}.2e}"

    def with_unit(self, value: float) -> str:
        """Format a value for a line of text: "83.1 %" for shares and rates, else four digits."""
        return f"{self.number(value)} %" if self.unit == "%" else f"{value:.4g}"

    def amount(self, value: float) -> str:
        """Format a difference as words: "4.1 BLEU", "2.0 points of exact match", "0.150 nats of loss"."""
        shown = self.number(value)
        if value != 0 and float(shown) == 0:
            shown = f"less than {10**-self.digits}"
        of = {"%": " points of", "nats": " nats of", "": ""}[self.unit]
        return f"{shown}{of} {self.title}"

    def sentence_counts(self, tokenizer: str = WORDS) -> SentenceCounts | None:
        """Return the counts per sentence, given sacreBLEU's tokenizer or the option of that of the targets.

        None if the metric is not computed from such counts.
        """
        return None if self.counts is None else self.counts(tokenizer)


def _attention(label: str, format: str = "number", direction: Direction | None = None) -> Metric:
    return Metric(label=label, kind="attention", format=format, direction=direction)


METRICS: dict[str, Metric] = {
    "loss": Metric(label="loss", kind="token", format="nats", direction="lower"),
    "perplexity": Metric(label="perplexity", kind="token", format="positive", direction="lower"),
    "token_accuracy": Metric(label="token accuracy", kind="token", format="share", direction="higher"),
    "attention/entropy": _attention("attention entropy", "nats"),
    "attention/effective_positions": _attention("attention effective positions", "positive"),
    "attention/sharpness": _attention("attention sharpness", "fraction"),
    "attention/monotonicity": _attention("attention monotonicity", "fraction"),
    "attention/coverage": _attention("attention coverage", "fraction"),
    "attention/alignment_accuracy": _attention("alignment accuracy", "share", "higher"),
    "attention/alignment_error": _attention("alignment error", "share", "lower"),
    "train/loss_epoch": Metric(label="training loss", kind="training", format="nats"),
}
"""Every metric by its name without the split."""


def text_metric(**info: Any) -> Callable[[TextMetric], TextMetric]:
    """Register a function as the text metric of its name; the arguments are attributes of `Metric`."""

    def register(function: TextMetric) -> TextMetric:
        METRICS[function.__name__] = Metric(kind="text", function=function, **info)
        return function

    return register


def default_metrics() -> tuple[str, ...]:
    """Return the text metrics that are computed for every corpus."""
    return tuple(metric for metric, info in METRICS.items() if info.default)


def main_metrics() -> tuple[str, ...]:
    """Return the default metrics of a comparison; the first that the runs have sorts the variants."""
    ranks = {metric: info.rank for metric, info in METRICS.items() if info.rank is not None}
    return tuple(sorted(ranks, key=ranks.__getitem__))


def names(kind: Kind) -> tuple[str, ...]:
    """Return the names of all metrics of one kind, in the order of the table."""
    return tuple(metric for metric, info in METRICS.items() if info.kind == kind)


def function(metric: str) -> TextMetric:
    """Return the function of a text metric."""
    if not isinstance(metric, str):
        raise UserError(
            f"{metric!r} is not the name of a metric, such as {TORCHMETRICS}CharErrorRate of texts or "
            f"{CLASSIFICATION}MulticlassF1Score of tokens"
        )
    if metric.startswith(TORCHMETRICS):
        return _of_torchmetrics(metric)
    info = METRICS.get(metric)
    if info is None or info.function is None:
        raise UserError(f"Unknown text metric {metric!r}. Choose from: {', '.join(names('text'))}")
    return info.function


def _of_torchmetrics(metric: str) -> TextMetric:
    """Return the function of a class of torchmetrics with its default arguments, such as "CharErrorRate".

    Of a class with several scores, the name ends in one of them: "ROUGEScore.rougeL_fmeasure".
    """
    import torchmetrics.text

    name, _, key = metric.removeprefix(TORCHMETRICS).partition(".")
    kind = getattr(torchmetrics.text, name, None)
    if kind is None:
        raise UserError(f"{metric}: torchmetrics has no such metric of texts")
    several = name.endswith(
        ("BLEUScore", "CHRFScore", "TranslationEditRate", "ExtendedEditDistance", "ROUGEScore")
    )

    def compute(texts: Texts) -> float:
        # A class for one reference compares with the first
        references = [[*each] if several else each[0] for each in texts.references]
        try:
            scores = kind()(texts.hypotheses, references)
        except (ImportError, TypeError, ValueError) as error:
            raise UserError(f"{metric}: {' '.join(str(error).split())}") from error
        if isinstance(scores, Mapping):
            if key not in scores:
                keys = ", ".join(scores)
                raise UserError(
                    f"{metric} has several scores: write {TORCHMETRICS}{name}.KEY with one of {keys}"
                )
            scores = scores[key]
        return float(scores)

    return compute


def signatures(metrics: Iterable[str], texts: Texts) -> dict[str, str]:
    """Return the settings string of each metric that has more than one definition, as sacreBLEU writes it."""
    signature_of = {name: metric(name).signature for name in metrics}
    return {name: write(texts) for name, write in signature_of.items() if write is not None}


DESCRIBED = ("label", "format", "direction")
"""Attributes of metrics that are not part of attnlab, in `result.json`."""


def describe_foreign(metrics: Iterable[str]) -> dict[str, dict[str, str | None]]:
    """Return `DESCRIBED` of the text metrics from outside, whose module a report does not import."""
    known = {name: METRICS[name] for name in metrics if name in METRICS}
    return {
        name: {key: getattr(each, key) for key in DESCRIBED}
        for name, each in known.items()
        if each.function is not None and not each.function.__module__.startswith("attnlab.")
    }


def register_described(metrics: Mapping[str, Any]) -> None:
    """Register the metrics of `describe_foreign` that are unknown; ignore damaged descriptions."""
    for name, each in metrics.items():
        if isinstance(each, Mapping) and each.get("format") in FORMATS and isinstance(each.get("label"), str):
            attributes: dict[str, Any] = {key: each.get(key) for key in DESCRIBED}
            METRICS.setdefault(str(name), Metric(kind="text", **attributes))


def split(metric: str) -> str:
    """Return the split that a logged metric was computed on: "val", "test" or a named set, "test/mscoco"."""
    if not metric.startswith("test/"):
        return "val"
    rest = metric.removeprefix("test/")
    test_set, _, base = rest.partition("/")
    return "test" if not base or test_set in ("attention", "explanation") else f"test/{test_set}"


def name(metric: str) -> str:
    """Return the metric without its split: "bleu" for "test/bleu" and "test/mscoco/bleu"."""
    return metric.removeprefix(f"{split(metric)}/")


def metric(logged: str) -> Metric:
    """Return the metric of a logged name; one without direction and range for an unknown name."""
    base = name(logged)
    known = METRICS.get(base) or Metric(label=base.replace("_", " ").replace("/", " "), kind="training")
    return replace(known, logged=logged)


class Scores(NamedTuple):
    """Scores of texts by metric, and the reasons why the other metrics are undefined."""

    values: dict[str, float]
    undefined: dict[str, str]


class LengthScores(NamedTuple):
    """Scores of the predictions whose lengths are between `shortest` and `longest`, both included."""

    shortest: int
    longest: int
    sentences: int
    scores: dict[str, float | None]  # None: undefined for these predictions

    @property
    def span(self) -> str:
        """The lengths as text: "4", or "4–7"."""
        return f"{self.shortest}" if self.shortest == self.longest else f"{self.shortest}–{self.longest}"


def score(texts: Texts, metrics: Iterable[str] | None = None) -> Scores:
    """Compute the named metrics, by default those of every corpus."""
    scores = Scores({}, {})
    for metric in default_metrics() if metrics is None else metrics:
        try:
            scores.values[metric] = function(metric)(texts)
        except UndefinedScoreError as reason:
            scores.undefined[metric] = str(reason)
    return scores


def score_by_length(
    texts: Texts, lengths: Sequence[int], metrics: Iterable[str], *, bins: int = 10
) -> list[LengthScores]:
    """Compute the metrics for the predictions in each of `length_bins`."""
    metrics, rows = list(metrics), []
    for shortest, longest, members in length_bins(lengths, bins):
        part = replace(texts, predictions=[texts.predictions[row] for row in members])
        values = score(part, metrics).values
        scores = {metric: values.get(metric) for metric in metrics}
        rows.append(LengthScores(shortest, longest, len(members), scores))
    return rows


def length_bins(lengths: Sequence[int], bins: int = 10) -> Iterator[tuple[int, int, list[int]]]:
    """Yield the shortest and the longest length of each bin, and the positions of its lengths.

    All bins have the same width, and the first one starts at the shortest length. Empty ones are left out.
    """
    first, last = min(lengths), max(lengths)
    width = ceil((last - first + 1) / bins)
    for low in range(first, last + 1, width):
        high = min(low + width - 1, last)
        if members := [row for row, length in enumerate(lengths) if low <= length <= high]:
            yield low, high, members
