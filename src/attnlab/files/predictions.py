"""Decoded sentences and the JSON-lines files that hold them.

`Prediction` is the one record of a decoded sentence, from the search to `predictions/*.jsonl`, the commands,
the Python interface, the server and the report. Imports neither torch nor matplotlib.

T: target tokens, "<eos>" included · S: source tokens
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from math import exp
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from attnlab.files.writing import write_atomically

if TYPE_CHECKING:
    from attnlab.report.files import InlineFigure

TEXTS = ("index", "line", "source", "references", "hypothesis", "annotations", "log_p", "p_beam")
"""Fields of a file without weights."""

FEATURE = r" ⟨[^⟨⟩ ]+⟩"  # Pattern of a feature in a source, with the space before it
FEATURES = re.compile(f"(?:{FEATURE})+$")  # Pattern of all features of a source
PACKED_STEPS = 255  # Packed weights are rounded to the nearest of this many equal steps between 0 and 1


@dataclass(frozen=True, kw_only=True, repr=False)
class Prediction:
    """Record of one decoded sentence. A notebook shows it with its attention weights.

    Attributes:
        index: position of the sentence in its split, or of its line in the input of `attnlab predict`, from
            0.
        line: number of the line of its file that the sentence was read from, from 1 (`Pair.origin`); None if
            it is generated.
        source: source text.
        references: different texts that the hypothesis is scored against, one of which is enough; empty if
            there are none.
        hypothesis: decoded text.
        annotations: plain JSON data of the dataset (`Pair.annotations`), read by its own metrics.
        rank: position among the hypotheses of this source, 1 for the best.
        score: log-probability divided by length ** length_penalty, reranking included.
        log_p: natural logarithm of the probability of the hypothesis given the source, "<eos>" included.
        p_beam: its probability divided by the sum over all hypotheses of the search.
        source_tokens: S tokens as the network reads them; `<unk:SPELLING>` for one outside its vocabulary.
        tokens: T decoded tokens; the last is "<eos>".
        probabilities: of the T tokens, each given the source and the tokens before; None where unknown.
        weights: attention weights [T, S], each 0 to 1; None where they were not kept, and for a mechanism
            without weights.
        alignment: [row, column] of each gold link between `tokens` and `source_tokens`, for as long as the
            hypothesis equals the first reference; None if there is no gold alignment.
    """

    index: int
    line: int | None = None
    source: str
    references: tuple[str, ...] = ()
    hypothesis: str
    annotations: Mapping[str, Any] = field(default_factory=dict)
    rank: int = 1
    score: float | None = None
    log_p: float | None = None
    p_beam: float | None = None
    source_tokens: list[str] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)
    probabilities: list[float] | None = None
    weights: NDArray[np.floating[Any]] | None = field(default=None, compare=False)
    alignment: list[list[int]] | None = None

    @property
    def p(self) -> float | None:
        """Probability of the hypothesis given the source."""
        return None if self.log_p is None else exp(self.log_p)

    @property
    def columns(self) -> list[str]:
        """The source as text and features, ["ev", "N;ABL(PL)"]; a source without features as one text."""
        found = FEATURES.search(self.source)
        if found is None:
            return [self.source]
        joined = re.sub(r";?\(;", "(", ";".join(re.findall("⟨(.+?)⟩", found[0]))).replace(";)", ")")
        return [self.source[: found.start()], joined]

    @property
    def features(self) -> list[str]:
        """Features of the source, such as ["N", "PL"]."""
        found = FEATURES.search(self.source)
        signs = [] if found is None else re.findall("⟨(.+?)⟩", found[0])
        return [sign for sign in signs if re.search(r"\w", sign)]  # without brackets

    def plot(self, title: str = "") -> InlineFigure:
        """Plot the weights [T, S] as a heat map; raise `UserError` if there are none."""
        from attnlab.report.heat_map_figure import plot_heatmap

        return plot_heatmap(self, title)

    def with_own_weights(self) -> Prediction:
        """Return a copy whose weights are no view of an array of the whole batch."""
        return self if self.weights is None else replace(self, weights=self.weights.copy())

    def to(self, device: Any) -> Prediction:
        """Return the record itself: Lightning moves what `predict_step` returns to the CPU."""
        return self

    def __repr__(self) -> str:
        score = "" if self.score is None else f", score={self.score:.4f}"
        return f"Prediction({self.hypothesis!r}{score})"

    def _repr_html_(self) -> str:
        from attnlab.report.heat_map import prediction_html

        return prediction_html(self)


Weights = Literal["omit", "pack", "round"]
"""Format of the weights in a file: none; one byte each (base64), exact to 1/510; or four decimals."""


def write_predictions(path: Path, predictions: Iterable[Prediction], *, weights: Weights) -> None:
    """Write one JSON object per line, atomically."""
    write_atomically(path, "".join(to_json_line(prediction, weights) for prediction in predictions))


def write_columns(path: Path, rows: Iterable[Sequence[str]]) -> None:
    """Write texts in columns, atomically; tabs and newlines inside a text become spaces."""
    lines = ("\t".join(re.sub(r"[\t\r\n]", " ", text) for text in row) for row in rows)
    write_atomically(path, "".join(f"{line}\n" for line in lines))


def read_predictions(path: Path) -> list[Prediction]:
    """Read a file of `write_predictions`; an empty list if the file does not exist."""
    if not path.is_file():
        return []
    # str.splitlines would also split at U+2028, which a token may contain
    return [_from_json(json.loads(line)) for line in path.read_text(encoding="utf-8").split("\n") if line]


def to_json_line(prediction: Prediction, weights: Weights) -> str:
    """Return one line of a predictions file, newline included."""
    return json.dumps(_to_json(prediction, weights), ensure_ascii=False) + "\n"


def pack_weights(weights: NDArray[np.floating[Any]] | None) -> str | None:
    """Encode weights [T, S], each 0 to 1, as base64 with one byte per weight; None if all round to 0."""
    if weights is None:
        return None
    steps = np.rint(np.asarray(weights, dtype=float).clip(0, 1) * PACKED_STEPS)
    if not steps.any():
        return None
    return base64.b64encode(steps.astype(np.uint8).tobytes()).decode("ascii")


def unpack_weights(packed: str, shape: tuple[int, int]) -> NDArray[np.float64]:
    """Decode the weights [T, S] of `pack_weights`, exact to 1/510."""
    return np.frombuffer(base64.b64decode(packed), dtype=np.uint8).reshape(shape) / PACKED_STEPS


def _to_json(prediction: Prediction, weights: Weights) -> dict[str, Any]:
    record = {field.name: getattr(prediction, field.name) for field in fields(prediction)}
    record["annotations"] = dict(prediction.annotations)
    record["references"] = list(prediction.references)
    if weights == "omit":
        return {name: record[name] for name in TEXTS}
    rounded = None if prediction.weights is None else prediction.weights.round(4).tolist()
    return {**record, "weights": pack_weights(prediction.weights) if weights == "pack" else rounded}


def _from_json(record: Mapping[str, Any]) -> Prediction:
    weights = record.get("weights")
    if isinstance(weights, str):
        weights = unpack_weights(weights, (len(record["tokens"]), len(record["source_tokens"])))
    elif weights is not None:
        weights = np.array(weights)
    return Prediction(**{**record, "references": tuple(record["references"]), "weights": weights})
