"""Many requests at once: what arrives while the model is busy is asked together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

Answer = Callable[[Sequence[Any]], list[Any]]  # rows -> an answer for each


class Batcher:
    """Asks about rows in batches, in one thread.

    Nobody waits for a batch to fill: the first request is asked at once, and those that
    come meanwhile are the next batch.
    """

    def __init__(self, answer: Answer, most_rows: int = 1024) -> None:
        """Take what answers rows; it is called from a thread."""
        self._answer, self._most_rows = answer, most_rows
        self._waiting: list[tuple[Sequence[Any], asyncio.Future[list[Any]]]] = []
        self._task: asyncio.Task[None] | None = None
        self._thread = ThreadPoolExecutor(1, "answers")

    @property
    def n_waiting(self) -> int:
        """Return how many requests wait."""
        return len(self._waiting)

    async def ask(self, rows: Sequence[Any]) -> list[Any]:
        """Return an answer for each row."""
        future: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
        self._waiting.append((rows, future))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())
        return await future

    async def _run(self) -> None:
        while self._waiting:
            n_rows, n = 0, 0
            while n < len(self._waiting) and (n == 0 or n_rows < self._most_rows):
                n_rows += len(self._waiting[n][0])
                n += 1
            batch, self._waiting = self._waiting[:n], self._waiting[n:]
            await self._settle(batch)

    async def _settle(
        self, batch: list[tuple[Sequence[Any], asyncio.Future[list[Any]]]]
    ) -> None:
        loop = asyncio.get_running_loop()
        every = [row for rows, _ in batch for row in rows]
        try:
            answers = await loop.run_in_executor(self._thread, self._answer, every)
        except Exception as error:
            if len(batch) > 1:  # who is to blame must not spoil it for the others
                for one in batch:
                    await self._settle([one])
            elif not batch[0][1].done():
                batch[0][1].set_exception(error)
            return
        start = 0
        for rows, future in batch:
            if not future.done():  # its client may have left
                future.set_result(answers[start : start + len(rows)])
            start += len(rows)

    def close(self) -> None:
        """End the thread."""
        self._thread.shutdown(wait=False, cancel_futures=True)
