"""Training with the functions of a student."""

import pytest

from attnlab.lesson.exercises import EXERCISES
from attnlab.lesson.training import train

SOLUTIONS = [exercise.solution for exercise in EXERCISES]


@pytest.mark.slow
def test_solutions_train_like_the_parts_of_attnlab() -> None:
    theirs = train(6, settings=["trainer.max_epochs=6"])
    mine = train(6, *SOLUTIONS, settings=["trainer.max_epochs=6"])
    assert mine.exact_match == pytest.approx(theirs.exact_match, abs=0.05)
    assert mine.exact_match > 0.5
    prediction = mine.predictions[0]
    assert prediction.weights.sum(axis=1) == pytest.approx(1, abs=1e-3)


@pytest.mark.slow
def test_functions_of_a_student_are_called() -> None:
    calls = set()

    def counted(function):
        def call(*arguments):
            calls.add((chapter, function.__name__))
            return function(*arguments)

        call.__name__ = function.__name__
        return call

    settings = ["trainer.max_epochs=1", "data.train_size=32", "data.test_size=5"]
    for chapter in (1, 5, 7):
        train(chapter, *map(counted, SOLUTIONS), settings=settings)
    five = {"score", "masked_softmax", "context", "decoder_step"}
    seven = {*five, "greedy", "hard_weights", "copy_probabilities"}
    assert calls == {(1, "final_state"), *((5, name) for name in five), *((7, name) for name in seven)}
