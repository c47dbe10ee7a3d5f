"""Requests of concurrent callers are computed in common batches, and answered separately."""

import asyncio
import threading
from collections.abc import Coroutine, Sequence
from typing import Any

import pytest

from attnlab.deploy.serving.batching import Batcher
from attnlab.errors import UserError


class Doubler:
    """Doubles numbers and records its batches; refuses 13, and waits for a permission before each batch."""

    def __init__(self) -> None:
        self.batches: list[tuple[str, list[int]]] = []
        self.permission = threading.Event()

    def __call__(self, options: str, numbers: Sequence[int]) -> list[int]:
        assert self.permission.wait(10)
        self.batches.append((options, list(numbers)))
        if 13 in numbers:
            raise UserError("13 is refused")
        if 14 in numbers:
            raise ZeroDivisionError
        return [2 * number for number in numbers]


def serve(
    *requests: tuple[str, list[int]], batch_size: int = 4, queue_size: int = 100
) -> tuple[list[Any], Doubler]:
    """Submit requests one after the other while the first batch is being computed; return their answers."""
    double = Doubler()

    async def run() -> list[Any]:
        batcher: Batcher[str, int, int] = Batcher(double, batch_size, queue_size)
        task = asyncio.create_task(batcher.run())
        answers = []
        for options, numbers in requests:
            answers.append(asyncio.create_task(collect(batcher.submit(options, numbers))))
            await asyncio.sleep(0.02)
        double.permission.set()
        results = await asyncio.gather(*answers)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return results

    return asyncio.run(run()), double


async def collect(answer: Coroutine[Any, Any, list[int]]) -> Any:
    try:
        return await answer
    except Exception as error:
        return repr(error)


def test_waiting_items_with_equal_options_share_a_batch() -> None:
    answers, double = serve(("a", [1]), ("a", [2, 3]), ("b", [4]), ("a", [5]))
    assert answers == [[2], [4, 6], [8], [10]]
    assert double.batches == [("a", [1]), ("a", [2, 3, 5]), ("b", [4])]


def test_batches_are_limited() -> None:
    answers, double = serve(("a", [1]), ("a", [2, 3, 4, 5, 6, 7]))
    assert answers == [[2], [4, 6, 8, 10, 12, 14]]
    assert [numbers for _, numbers in double.batches] == [[1], [2, 3, 4, 5], [6, 7]]


@pytest.mark.parametrize(
    ("number", "error"), [(13, "UserError('13 is refused')"), (14, "ZeroDivisionError()")]
)
def test_refused_item_fails_its_own_request_only(number: int, error: str) -> None:
    answers, _ = serve(("a", [1]), ("a", [2]), ("a", [number, 5]), ("a", [3]))
    assert answers == [[2], [4], error, [6]]


def test_request_without_items_stops_nothing() -> None:
    answers, double = serve(("a", []), ("a", [1]), ("a", []), ("a", [2]))
    assert answers == [[], [2], [], [4]]
    assert double.batches == [("a", [1]), ("a", [2])]


def test_full_queue_is_an_error_and_loses_nothing() -> None:
    answers, _ = serve(("a", [1]), ("a", [2, 3]), ("a", [4, 5]), ("a", [6]), queue_size=3)
    assert answers == [[2], [4, 6], "QueueFullError()", [12]]
