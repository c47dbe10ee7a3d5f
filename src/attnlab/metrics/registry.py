"""How a score is called, shown and read: its label, its unit, and which way is better."""

from __future__ import annotations

from typing import Literal

MAIN = ("conala_bleu", "bleu", "chrf", "exact_match")
"""The scores a study is compared by unless others are asked for; the first that runs have orders them."""

LABELS = {
    "conala_bleu": "CoNaLa BLEU",
    "conala_exact_match": "CoNaLa exact match",
    "bleu": "BLEU",
    "chrf": "chrF",
    "train/loss_epoch": "training loss",
    "attention/alignment_accuracy": "alignment accuracy",
    "attention/alignment_error": "alignment error",
}
"""Names that are not the metric's own words."""

SHARES = (
    "exact_match",
    "conala_exact_match",
    "parses",
    "slot_accuracy",
    "token_accuracy",
    "attention/alignment_accuracy",
    "attention/alignment_error",
)
"""Scores from 0 to 1, shown as percentages."""

NATS = ("loss", "train/loss_epoch", "attention/entropy")
LOWER_IS_BETTER = ("edit_distance", "loss", "perplexity", "attention/alignment_error")
HIGHER_IS_BETTER = {*MAIN, *SHARES} - {*LOWER_IS_BETTER}


def split(metric: str) -> Literal["test", "val"]:
    """The split a metric was computed on."""
    return "test" if metric.startswith("test/") else "val"


def name(metric: str) -> str:
    """The metric without its split: "bleu" of "test/bleu"."""
    return metric.removeprefix("test/").removeprefix("val/")


def label(metric: str) -> str:
    """What to call a metric: "BLEU", and "BLEU (val)" where it is not of the test split."""
    called = LABELS.get(name(metric), name(metric).replace("_", " ").replace("/", " "))
    return called if split(metric) == "test" else f"{called} (val)"


def unit(metric: str) -> Literal["%", "nats", ""]:
    """The unit it is shown in."""
    if name(metric) in SHARES:
        return "%"
    return "nats" if name(metric) in NATS else ""


def scale(metric: str) -> int:
    """What to multiply a value with to have it in `unit`."""
    return 100 if unit(metric) == "%" else 1


def digits(metric: str) -> int:
    """Decimal places to show."""
    return 1 if name(metric) in (*MAIN, *SHARES) else 3


def better(metric: str) -> Literal["higher", "lower"] | None:
    """Which way is better; None where neither is, as for the entropy of attention."""
    if name(metric) in LOWER_IS_BETTER:
        return "lower"
    return "higher" if name(metric) in HIGHER_IS_BETTER else None


def number(metric: str, value: float) -> str:
    """A value as it is shown, without its unit."""
    return f"{round(value * scale(metric), digits(metric)) + 0:.{digits(metric)}f}"  # + 0: no "-0.0"


def amount(metric: str, value: float) -> str:
    """A difference in words: "4.1 BLEU", "2.0 points of exact match", "0.150 nats of loss"."""
    shown = number(metric, value)
    if value != 0 and float(shown) == 0:
        shown = f"less than {10 ** -digits(metric)}"
    of = {"%": " points of", "nats": " nats of", "": ""}[unit(metric)]
    return f"{shown}{of} {label(metric)}"
