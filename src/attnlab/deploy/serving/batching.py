"""Batching of concurrent requests: sentences that wait for the same model are decoded together."""

import asyncio
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Options = TypeVar("Options", bound=Hashable)
Item = TypeVar("Item")
Result = TypeVar("Result")


class QueueFullError(Exception):
    """More items wait than the queue holds."""


@dataclass
class Batcher(Generic[Options, Item, Result]):
    """Calls a function on batches of items of concurrent callers, in a separate thread.

    While the function computes one batch, new items wait; the next batch consists of all of them that share
    the options of the one that has waited longest. A single caller therefore never waits for others to come.

    Args:
        compute: returns one result per item, given their options. An exception is raised to the caller whose
            item caused it.
    """

    compute: Callable[[Options, Sequence[Item]], Sequence[Result]]
    batch_size: int
    queue_size: int
    waiting: deque[tuple[Options, Item, asyncio.Future[Result]]] = field(default_factory=deque)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)

    async def submit(self, options: Options, items: Sequence[Item]) -> list[Result]:
        """Return the results of the items once they are computed.

        Raises:
            QueueFullError: if the queue cannot hold all of them.
            Exception: that of `compute`, if it fails for one of the items.
        """
        if sum(not future.done() for _, _, future in self.waiting) + len(items) > self.queue_size:
            raise QueueFullError
        loop = asyncio.get_running_loop()
        futures: list[asyncio.Future[Result]] = [loop.create_future() for _ in items]
        self.waiting.extend((options, item, future) for item, future in zip(items, futures, strict=True))
        if items:
            self.arrived.set()
        try:
            return list(await asyncio.gather(*futures))
        finally:
            for future in futures:  # after an error, or if the caller was cancelled, none is needed
                future.cancel()

    async def run(self) -> None:
        """Compute batches until cancelled."""
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(max_workers=1) as thread:
            while True:
                await self.arrived.wait()
                options, items, futures = self._next_batch()
                if not items:
                    continue
                results = await loop.run_in_executor(thread, self._compute_each, options, items)
                for future, result in zip(futures, results, strict=True):
                    if future.cancelled():
                        continue
                    if isinstance(result, BaseException):
                        future.set_exception(result)
                    else:
                        future.set_result(result)

    def _next_batch(self) -> tuple[Options, list[Item], list[asyncio.Future[Result]]]:
        wanted = self.waiting[0][0]
        batch: list[tuple[Options, Item, asyncio.Future[Result]]] = []
        others: deque[tuple[Options, Item, asyncio.Future[Result]]] = deque()
        for entry in self.waiting:
            fits = entry[0] == wanted and len(batch) < self.batch_size
            (batch if fits else others).append(entry)
        self.waiting = others
        if not others:
            self.arrived.clear()
        batch = [entry for entry in batch if not entry[2].done()]
        return wanted, [item for _, item, _ in batch], [future for _, _, future in batch]

    def _compute_each(self, options: Options, items: Sequence[Item]) -> Sequence[Result | BaseException]:
        """Compute a batch; if that fails, compute its items one by one, so that no other item fails."""
        try:
            return self.compute(options, items)
        except Exception as error:
            if len(items) == 1:
                return [error]
        return [self._compute_each(options, [item])[0] for item in items]
