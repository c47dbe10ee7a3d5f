"""Registry of metrics: the function, label, unit and direction of each, and scores of texts by their names.

A text metric is a function with the decorator `text_metric`, in a module of `attnlab.metrics.text` or in one
of the user's; logging, tables, report and dashboard read its row of `METRICS`. The other metrics are computed
together (`attnlab.metrics.tokens`, `attnlab.metrics.attention`, `attnlab.explain`), and their rows are in
`METRICS` below, so that reading results imports no torch.

Logged names have a prefix for the split: "val/bleu", "test/bleu", "attention/entropy" (validation) and
"test/attention/entropy". With several test sets the prefix contains the name of the set:
"test/mscoco/bleu". The functions below accept a name with or without the prefix.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from math import ceil, inf
from typing import Any, Literal, NamedTuple

from attnlab.errors import UserError
from attnlab.metrics.sentence_counts import SentenceCounts
from attnlab.metrics.texts import WORDS, Texts, UndefinedScoreError

TextMetric = Callable[[Texts], float]
"""Raises `UndefinedScoreError` for texts that do not define the score."""

Kind = Literal["text", "token", "attention", "explanation", "training"]
Direction = Literal["higher", "lower"]
Format = Literal["share", "percent", "points", "fraction", "signed", "nats", "positive", "number"]
"""share: 0 to 1, shown in percent · percent, points: 0 to 100 · fraction: 0 to 1 · signed: -1 to 1 · nats,
positive: at least 0 · number: any other."""

BOUNDS: dict[Format, tuple[float, float]] = {
    "share": (0, 1),
    "percent": (0, 100),
    "points": (0, 100),
    "fraction": (0, 1),
    "signed": (-1, 1),
    "nats": (0, inf),
    "positive": (0, inf),
    "number": (-inf, inf),
}
"""Smallest and largest possible value of each format."""


@dataclass(frozen=True, kw_only=True)
class MetricInfo:
    """Description of one metric."""

    label: str  # name in tables and figures
    # source of the values: decoded "text", the "token" distribution given the reference, "attention" weights,
    # an "explanation" (see `attnlab.explain`), or the "training" loop
    kind: Kind
    format: Format = "number"  # range and unit of the values
    direction: Direction | None = None  # whether higher or lower is better; None if neither is
    function: TextMetric | None = None  # function of a text metric
    # returns the settings of a metric with several definitions, given sacreBLEU's tokenizer
    signature: Callable[[str], str] | None = None
    # returns the metric's `SentenceCounts`, given its tokenizer, for metrics that follow from counts per
    # sentence and can therefore be tested for significance over the sentences; None if its tokens need a
    # vocabulary
    counts: Callable[[str], SentenceCounts | None] | None = None
    # the tokenizer of the counts is that of the targets, by the name of its option, not sacreBLEU's
    of_target_tokens: bool = False
    # a text metric that is computed for every corpus. The others are named by `Corpus.metrics`
    default: bool = False
    # position among the metrics that a study is compared by (1 first); None if it is not one of them
    rank: int | None = None


def _attention(label: str, format: Format = "number", direction: Direction | None = None) -> MetricInfo:
    return MetricInfo(label=label, kind="attention", format=format, direction=direction)


def _explanation(label: str, format: Format, direction: Direction | None = None) -> MetricInfo:
    return MetricInfo(label=label, kind="explanation", format=format, direction=direction)


METRICS: dict[str, MetricInfo] = {
    "loss": MetricInfo(label="loss", kind="token", format="nats", direction="lower"),
    "perplexity": MetricInfo(label="perplexity", kind="token", format="positive", direction="lower"),
    "token_accuracy": MetricInfo(label="token accuracy", kind="token", format="share", direction="higher"),
    "attention/entropy": _attention("attention entropy", "nats"),
    "attention/effective_positions": _attention("attention effective positions", "positive"),
    "attention/sharpness": _attention("attention sharpness", "fraction"),
    "attention/monotonicity": _attention("attention monotonicity", "fraction"),
    "attention/coverage": _attention("attention coverage", "fraction"),
    "attention/alignment_accuracy": _attention("alignment accuracy", "share", "higher"),
    "attention/alignment_error": _attention("alignment error", "share", "lower"),
    "explanation/gradient_tau": _explanation("τ with gradients", "signed", "higher"),
    "explanation/gradient_top": _explanation("same top token as gradients", "share", "higher"),
    "explanation/integrated_gradients_tau": _explanation("τ with integrated gradients", "signed", "higher"),
    "explanation/integrated_gradients_top": _explanation(
        "same top token as integrated gradients", "share", "higher"
    ),
    "explanation/integrated_gradients_error": _explanation("error of completeness", "nats", "lower"),
    "explanation/erasure_tau": _explanation("τ with erasure", "signed", "higher"),
    "explanation/erasure_top": _explanation("same top token as erasure", "share", "higher"),
    "explanation/comprehensiveness": _explanation("comprehensiveness", "signed", "higher"),
    "explanation/comprehensiveness_random": _explanation("comprehensiveness of random tokens", "signed"),
    "explanation/sufficiency": _explanation("sufficiency", "signed", "lower"),
    "explanation/sufficiency_random": _explanation("sufficiency of random tokens", "signed"),
    "explanation/adversarial_divergence": _explanation("adversarial divergence", "fraction", "lower"),
    "explanation/uniform_distance": _explanation("change of the output by uniform weights", "fraction"),
    "explanation/distractor_weight": _explanation("weight on the distractor", "share", "lower"),
    "explanation/distractor_crossing": _explanation("largest weight on the distractor", "share", "lower"),
    "explanation/distractor_drop": _explanation("drop of p by the distractor", "signed"),
    "explanation/alignment_error_rate": _explanation("alignment error rate", "share", "lower"),
    "explanation/symmetrised_alignment_error_rate": _explanation(
        "alignment error rate of both directions", "share", "lower"
    ),
    "train/loss_epoch": MetricInfo(label="training loss", kind="training", format="nats"),
}
"""Every metric by its name without the split."""


def text_metric(**info: Any) -> Callable[[TextMetric], TextMetric]:
    """Register a function as the text metric of its name; the arguments are attributes of `MetricInfo`."""

    def register(function: TextMetric) -> TextMetric:
        METRICS[function.__name__] = MetricInfo(kind="text", function=function, **info)
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
    info = METRICS.get(metric)
    if info is None or info.function is None:
        raise UserError(f"Unknown text metric {metric!r}. Choose from: {', '.join(names('text'))}")
    return info.function


def sentence_counts(metric: str, tokenizer: str = WORDS) -> SentenceCounts | None:
    """Return the per-sentence counts of a metric; None if the metric is not computed from such counts.

    Args:
        tokenizer: sacreBLEU's name, or the option of the tokenizer of the targets (`has_target_tokens`).
    """
    counts = _info(metric).counts
    return None if counts is None else counts(tokenizer)


def has_target_tokens(metric: str) -> bool:
    """Return whether a metric counts tokens of the target tokenizer."""
    return _info(metric).of_target_tokens


def signatures(metrics: Iterable[str], tokenizer: str = WORDS) -> dict[str, str]:
    """Return the settings string of each metric that has more than one definition, as sacreBLEU writes it."""
    signature_of = {metric: _info(metric).signature for metric in metrics}
    return {metric: write(tokenizer) for metric, write in signature_of.items() if write is not None}


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


def kind(metric: str) -> Kind:
    """Return the source of the values of a logged metric."""
    return _info(metric).kind


def label(metric: str) -> str:
    """Return the label of a logged metric: "BLEU" for the test split, else "BLEU (val)", "BLEU (mscoco)".

    A metric of the training loop has no split: "training loss".
    """
    text, of = _info(metric).label, split(metric)
    return text if of == "test" or metric.startswith("train/") else f"{text} ({of.removeprefix('test/')})"


def unit(metric: str) -> Literal["%", "nats", ""]:
    """Return the unit in which values are displayed."""
    units: dict[Format, Literal["%", "nats"]] = {"share": "%", "percent": "%", "nats": "nats"}
    return units.get(_info(metric).format, "")


def scale(metric: str) -> int:
    """Return the factor that converts a value to its `unit`."""
    return 100 if _info(metric).format == "share" else 1


def bounds(metric: str) -> tuple[float, float]:
    """Return the smallest and the largest possible value; infinite without a limit."""
    return BOUNDS[_info(metric).format]


def percentage(metric: str, value: float) -> float:
    """Convert a value to a scale of 0 to 100, to draw several metrics on one axis."""
    return value if _info(metric).format in ("percent", "points") else 100 * value


def digits(metric: str) -> int:
    """Return the number of decimal places to display."""
    return 1 if _info(metric).format in ("share", "percent", "points") else 3


def better(metric: str) -> Direction | None:
    """Return whether higher or lower values are better; None if neither, as for the attention entropy."""
    return _info(metric).direction


def number(metric: str, value: float) -> str:
    """Format a value in its `unit`, without the unit's name."""
    return f"{round(value * scale(metric), digits(metric)) + 0:.{digits(metric)}f}"  # + 0: no "-0.0"


def amount(metric: str, value: float) -> str:
    """Format a difference as words: "4.1 BLEU", "2.0 points of exact match", "0.150 nats of loss"."""
    shown = number(metric, value)
    if value != 0 and float(shown) == 0:
        shown = f"less than {10 ** -digits(metric)}"
    of = {"%": " points of", "nats": " nats of", "": ""}[unit(metric)]
    return f"{shown}{of} {label(metric)}"


def _info(metric: str) -> MetricInfo:
    """Return the row of a logged metric; a default row for names that are not in the table."""
    base = name(metric)
    return METRICS.get(base) or MetricInfo(label=base.replace("_", " ").replace("/", " "), kind="training")


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
    """Compute the metrics separately for short and long sentences.

    Args:
        texts: N predictions.
        lengths: the length of each, [N].
        bins: maximum number of length ranges. All have the same width and start at the shortest length;
            ranges without a sentence are left out. With few distinct lengths each one is a range.
    """
    metrics = list(metrics)
    first, last = min(lengths), max(lengths)
    width = ceil((last - first + 1) / bins)
    rows = []
    for shortest in range(first, last + 1, width):
        longest = min(shortest + width - 1, last)
        chosen = [
            prediction
            for prediction, length in zip(texts.predictions, lengths, strict=True)
            if shortest <= length <= longest
        ]
        if chosen:
            values = score(replace(texts, predictions=chosen), metrics).values
            scores = {metric: values.get(metric) for metric in metrics}
            rows.append(LengthScores(shortest, longest, len(chosen), scores))
    return rows
