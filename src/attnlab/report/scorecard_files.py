"""Scorecards of attention weights that `attnlab evaluate RUN explain=all` wrote."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import NamedTuple

from attnlab.metrics.registry import METRICS

FILE = "explanations.json"
"""Name of the file in the folder of an evaluation."""

log = logging.getLogger(__name__)


class Scorecard(NamedTuple):
    """Scores of one evaluation of a run.

    Attributes:
        split: evaluated split, such as "test".
        overrides: settings of the evaluation that differ from those of the run, without those of `explain`,
            and the checkpoint if it is not the best one.
        settings: those of `explain` that change the scores, such as "explain.sentences=200".
        scores: value of each measure, by names such as "test/explanation/gradient_tau".
        intervals: ends of their 95 % bootstrap intervals over sentences, where there are several.
    """

    split: str
    overrides: tuple[str, ...]
    settings: tuple[str, ...]
    scores: dict[str, float]
    intervals: dict[str, tuple[float, float]]


def read_scorecards(run: Path) -> list[Scorecard]:
    """Read the scorecards in a run directory, oldest first; damaged files are left out with a warning."""
    cards = []
    for path in sorted((run / "evaluations").glob(f"*/{FILE}"), key=lambda path: path.stat().st_mtime_ns):
        try:
            cards.append(_parse(json.loads(path.read_text(encoding="utf-8"))))
        except (OSError, KeyError, TypeError, ValueError, AttributeError) as error:
            log.warning("%s is left out: it is not a scorecard of attnlab evaluate (%r)", path, error)
    return cards


def _parse(record: dict[str, object]) -> Scorecard:
    split, scores, overrides = str(record["split"]), record["scores"], record["overrides"]
    settings = record.get("settings", {})
    if not isinstance(scores, dict) or not isinstance(overrides, list) or not isinstance(settings, dict):
        raise TypeError("scores, overrides or settings")
    known = {
        f"{split}/{name}": scores[name.removeprefix("explanation/")]
        for name, info in METRICS.items()
        if info.kind == "explanation" and name.removeprefix("explanation/") in scores
    }
    return Scorecard(
        split,
        tuple(map(str, overrides)),
        tuple(f"explain.{name}={value}" for name, value in settings.items()),
        {name: float(score["value"]) for name, score in known.items()},
        {
            name: (float(score["low"]), float(score["high"]))
            for name, score in known.items()
            if score["low"] is not None
        },
    )
