"""Result of a measure of the attention weights, for `attnlab evaluate RUN explain=OPTION`.

An option of the group `explain` is a class of the user. Its instance is called with the model (see
`attnlab.load`), whose network has attention weights, the pairs of the split and the argument `seed`, and
returns a `Score` by its name.
"""

from typing import NamedTuple

FILE = "explanations.json"  # Name of the scores in the folder of an evaluation


class Score(NamedTuple):
    """A mean over units, and its 95 % bootstrap interval over sentences."""

    value: float  # sum over units / their number
    low: float | None  # None for a single sentence
    high: float | None
    units: int  # their number; for the alignment error rate, |A| + |S|
    sentences: int
