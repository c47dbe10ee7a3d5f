"""Errors of decoded texts: confusions of tokens, wrong outputs, calibration, accuracy by group."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from rapidfuzz.distance import Levenshtein

from attnlab.files.predictions import Prediction
from attnlab.files.table_file import format_csv
from attnlab.files.writing import write_atomically
from attnlab.metrics.text import edit_distance
from attnlab.metrics.text.exact_match import has_equal_words
from attnlab.metrics.texts import matches, references_of

EXAMPLES = 3  # Number of sources that a confusion names
VISIBLE = {"": "∅", " ": "␣"}  # Symbols in tables for a missing token and for a space


class Edit(NamedTuple):
    """One edit of a minimal edit script from an output to its reference."""

    expected: str  # token of the reference; "" if the output has an additional token
    output: str  # token of the output; "" if one is missing
    # Source token with the largest attention weight of the output token; of a missing token the source tokens
    # between those of its neighbours, or else that of the token before it; "" if unknown
    aligned: str = ""

    def __str__(self) -> str:
        return f"{VISIBLE.get(self.expected, self.expected)} > {VISIBLE.get(self.output, self.output)}"


class Errors(NamedTuple):
    """Errors of the outputs of a split, as data frames."""

    confusions: pd.DataFrame
    """Most frequent first: `expected`, `output`, `count`, `aligned` source tokens with their counts, and
    `examples` of sources.
    `expected` is empty for an additional token, and `output` for a missing one."""
    wrong: pd.DataFrame
    """Wrong outputs, the most confident first: `source`, `reference`, `output`, `confidence`, `edits`."""
    groups: pd.DataFrame  # Right outputs by `kind` (`groups_of`) and `value`: `inputs`, `right`, `accuracy`
    calibration: pd.DataFrame
    """By tenth of the confidence: `outputs`, mean `confidence`, and `accuracy`, which should equal it."""
    found: pd.DataFrame
    """If the least confident outputs are checked first: the shares `checked` and `found` of the errors."""

    def found_in(self, share: float) -> float:
        """Return the share of the wrong outputs among the least confident `share` of all outputs."""
        return float(max(self.found["found"][self.found["checked"] <= share + 1e-9], default=0.0))

    def write(self, folder: Path) -> None:
        """Write a CSV file for each table."""
        for name, table in self._asdict().items():
            write_atomically(folder / f"{name}.csv", format_csv(table))


def find_errors(
    predictions: Sequence[Prediction],
    tokenize: Callable[[str], list[str]] = str.split,
    groups: Mapping[str, Sequence[Iterable[str]]] | None = None,
) -> Errors:
    """Find the errors of decoded texts. An output is right if its words are those of a reference.

    The confidence is the probability within the beam (`Prediction.p_beam`), or with greedy search the
    probability; NaN for predictions of versions that did not store it.

    Args:
        groups: for each kind of group the values of each output, such as {"feature": [["N", "PL"], …]}.
    """
    uses_beam = any(each.p_beam not in (None, 1.0) for each in predictions)
    edits = [edits_of(each, tokenize) for each in predictions]
    outputs = pd.DataFrame(
        {
            "source": [" ".join(each.columns) for each in predictions],
            "reference": [_nearest(each, tokenize) for each in predictions],
            "output": [each.hypothesis for each in predictions],
            "confidence": np.array([each.p_beam if uses_beam else each.p for each in predictions], float),
            "edits": [", ".join(map(str, row)) for row in edits],
            "right": [matches(has_equal_words, each) for each in predictions],
        }
    ).sort_values("confidence", kind="stable")
    wrong = outputs[~outputs["right"]]
    tenths = outputs.groupby(np.minimum(np.floor((outputs["confidence"] * 10).round(6)), 9))
    members = [
        (kind, value, is_right)
        for kind, values in (groups or {}).items()
        for row, is_right in zip(values, outputs["right"].sort_index(), strict=True)
        for value in {*row}
    ]
    by_group = pd.DataFrame(members, columns=["kind", "value", "right"]).groupby(["kind", "value"])["right"]
    table_of_groups = by_group.agg(inputs="size", right="sum", accuracy="mean").reset_index()
    return Errors(
        confusions=_confusions(predictions, edits),
        wrong=wrong[::-1].drop(columns="right"),
        # Numbers in their order, features by their length and name
        groups=table_of_groups.sort_values(["kind", "value"], key=lambda column: column.str.zfill(99)),
        calibration=tenths.agg(
            outputs=("right", "size"), confidence=("confidence", "mean"), accuracy=("right", "mean")
        ).reset_index(drop=True),
        found=pd.DataFrame(
            {
                "checked": np.arange(1, len(outputs) + 1) / len(outputs),
                "found": (~outputs["right"]).cumsum() / max(len(wrong), 1),
            }
        ),
    )


def groups_of(
    predictions: Sequence[Prediction], lengths: Iterable[int], seen: Iterable[bool | None]
) -> dict[str, list[list[str]]]:
    """Return the groups of outputs by kind, for `find_errors`.

    They are the length of the source, its features one by one (`feature`) and together (`cell`), and whether
    it is in the training data, with its features (`source`); None if that is not recorded.
    """
    return {
        "length": [[str(length)] for length in lengths],
        "feature": [each.features for each in predictions],
        "cell": [each.columns[1:] for each in predictions],
        "source": [[] if each is None else ["known" if each else "unknown"] for each in seen],
    }


def edits_of(prediction: Prediction, tokenize: Callable[[str], list[str]] = str.split) -> list[Edit]:
    """Return the edits that make the output equal to its nearest reference, from left to right."""
    output, reference = tokenize(prediction.hypothesis), tokenize(_nearest(prediction, tokenize))
    columns: list[int] = []
    weights = prediction.weights  # [T, S], with a row of "<eos>"
    if weights is not None and len(weights) == len(output) + 1 and weights.any():
        columns = [-1, *map(int, weights.argmax(axis=1))]  # of the token before each
    edits = []
    for op in Levenshtein.editops(output, reference):
        place = slice(0)
        if columns and op.tag == "insert":
            before, after = columns[op.src_pos], columns[op.src_pos + 1]
            place = slice(before + 1, after) if after > before + 1 else slice(before, before + 1)
        elif columns:
            place = slice(columns[op.src_pos + 1], columns[op.src_pos + 1] + 1)
        edits.append(
            Edit(
                "" if op.tag == "delete" else reference[op.dest_pos],
                "" if op.tag == "insert" else output[op.src_pos],
                " ".join(prediction.source_tokens[place]),
            )
        )
    return edits


def _nearest(prediction: Prediction, tokenize: Callable[[str], list[str]]) -> str:
    references = references_of(prediction)
    return references[edit_distance.edits(prediction.hypothesis, references, tokenize).position]


def _counted(aligned: "pd.Series[str]") -> str:
    counts = aligned[aligned != ""].replace(VISIBLE).value_counts()
    return ", ".join(f"{token} {count}" for token, count in counts.items())


def _confusions(predictions: Sequence[Prediction], edits: Sequence[Sequence[Edit]]) -> pd.DataFrame:
    columns = [*Edit._fields, "source"]
    rows = [
        (*edit, " ".join(each.columns)) for each, row in zip(predictions, edits, strict=True) for edit in row
    ]
    found = pd.DataFrame(rows, columns=columns).groupby(["expected", "output"], sort=False)
    table = found.agg(
        count=("source", "size"),
        aligned=("aligned", _counted),
        examples=("source", lambda sources: " | ".join(sources.unique()[:EXAMPLES])),
    )
    return table.sort_values("count", ascending=False, kind="stable").reset_index()
