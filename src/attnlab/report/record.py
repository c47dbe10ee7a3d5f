"""Records of runs: settings, scores, costs and outputs."""

import re
from dataclasses import dataclass, field
from functools import cached_property
from math import isfinite, nan
from pathlib import Path
from typing import Any

from attnlab.files.predictions import Prediction
from attnlab.files.run_identity import identity
from attnlab.metrics import registry
from attnlab.metrics.texts import WORDS


@dataclass(frozen=True)
class RunRecord:
    """Contents of one run directory."""

    directory: Path
    study: str  # `name` in the configuration
    variant: str  # `variant` in the configuration, then the settings of `distinguish_variants`
    seed: int  # -1 if neither the configuration nor the name of the directory gives it
    # "finished", "not started", "running", "failed", "interrupted", or "broken": unreadable, or a duplicate
    status: str
    error: str | None = None  # why the run is not finished
    config: dict[str, Any] = field(default_factory=dict)  # interpolations are unresolved text
    scores: dict[str, float] = field(default_factory=dict)  # final metrics, such as "test/bleu"
    undefined: dict[str, str] = field(default_factory=dict)  # why these texts do not define a metric
    parameters: int | None = None  # frozen ones included
    steps: int | None = None
    seconds: float | None = None  # of the training
    peak_memory: int | None = None  # bytes, of the GPU if there is one, else of the host
    tokens_per_second: float | None = None  # source and target without padding, median over the training
    seconds_per_step: float | None = None  # median over the training
    series: dict[str, list[tuple[int, float]]] = field(default_factory=dict)  # (step, value) by metric
    # Decoded sentences of each test set by its split, "test" or "test/mscoco"; without one, of "val"
    predictions: dict[str, list[Prediction]] = field(default_factory=dict)
    seen: dict[str, set[int]] = field(default_factory=dict)  # outputs with a source of the training data
    # Bootstrap intervals over sentences, of all runs of the variant, from results.csv
    over_sentences: dict[str, tuple[float, float]] = field(default_factory=dict)
    signatures: dict[str, str] = field(default_factory=dict)  # of sacreBLEU, by metric
    data: dict[str, str] = field(default_factory=dict)  # SHA-256 of the pairs of each split, if recorded
    code: dict[str, str] = field(default_factory=dict)  # SHA-256 of the code of each part from outside
    commit: str | None = None
    cpu: str | None = None
    versions: dict[str, str] = field(default_factory=dict)  # of Python and of the packages

    def tokenizer(self, metric: str) -> str:
        """Return the tokenizer of a metric: sacreBLEU's in the signature, or that of the targets.

        That of the targets is "characters", or "characters:nfc" with a normalisation form; "" if its tokens
        do not follow from its name.
        """
        if registry.metric(metric).of_target_tokens:
            settings = self.config.get("target_tokenizer") or self.config.get("tokenizer") or {}
            form = settings.get("normalization") or ""
            if form == "auto" or any(settings.get(name) for name in ("lowercase", "graphemes")):
                return ""
            return f"{str(settings.get('_target_', '')).rpartition('.')[2]}:{form}".rstrip(":")
        found = re.search(r"\btok:([^|]+)", self.signatures.get(registry.name(metric), ""))
        return WORDS if found is None else found[1]

    def is_comparable(self, other: "RunRecord", split: str) -> bool:
        """Return whether the runs have the same pairs in a split and the same code, as far as recorded."""
        digests = {run.data.get(split) for run in (self, other)} - {None}
        return len(digests) < 2 and not self.changed_parts(other)

    def changed_parts(self, other: "RunRecord") -> list[str]:
        """Return the parts from outside that both runs have, with different code."""
        return sorted(part for part, digest in self.code.items() if other.code.get(part, digest) != digest)

    @property
    def evaluated_data(self) -> dict[str, str]:
        """Digests of the test sets that the run has scores of; without one, of the validation split."""
        scored = {registry.split(name) for name in self.scores}
        tests = scored - {"val"} or scored
        return {split: digest for split, digest in self.data.items() if split in tests}

    @cached_property
    def settings(self) -> dict[str, Any]:
        """Settings that determine the results, by dotted name, except the variant and the seed."""
        return {
            name: value for name, value in identity(self.config).items() if name not in ("variant", "seed")
        }

    @property
    def finished(self) -> bool:
        """True if the run is finished, so that its scores are used."""
        return self.status == "finished"

    def score(self, metric: str) -> float | None:
        """Return a score; None if the run does not have it, or it is not finite."""
        score = self.scores.get(metric, nan)
        return score if isfinite(score) else None
