"""Decoded texts and their references, as text metrics read them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from attnlab.files.predictions import Prediction

WORDS = "13a"  # sacreBLEU's default tokenizer: words and punctuation marks


class UndefinedScoreError(Exception):
    """The texts do not define a score; the message is the reason."""


@dataclass(frozen=True)
class Texts:
    """Decoded texts with their references."""

    predictions: Sequence[Prediction]  # N predictions
    tokenize: Callable[[str], list[str]] = str.split  # splits a text into target tokens
    bleu_tokenizer: str = WORDS  # sacreBLEU's name of the tokenizer of BLEU

    def __post_init__(self) -> None:
        if not self.predictions:
            raise ValueError(
                "No predictions to score: the corpus, or the part of it that was decoded, is empty"
            )

    @property
    def hypotheses(self) -> list[str]:
        """The N decoded texts."""
        return [prediction.hypothesis for prediction in self.predictions]

    @property
    def references(self) -> list[tuple[str, ...]]:
        """The texts that each of them is compared with, at least one."""
        return [*map(references_of, self.predictions)]

    def share(self, is_right: Callable[[str, str], bool]) -> float:
        """Return the share (0 to 1) of hypotheses that are right, given one of their references."""
        return sum(map(partial(matches, is_right), self.predictions)) / len(self.predictions)


def references_of(prediction: Prediction) -> tuple[str, ...]:
    """Return the references of a prediction that is scored; the empty text if it has none."""
    return prediction.references or ("",)


def matches(is_right: Callable[[str, str], bool], prediction: Prediction) -> bool:
    """Return whether the hypothesis is right, given one of its references."""
    return any(is_right(prediction.hypothesis, reference) for reference in references_of(prediction))
