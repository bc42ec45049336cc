"""Requests that come at the same time, answered together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple


class _Request(NamedTuple):
    """Rows of a client, and where their answers go."""

    rows: Sequence[Any]
    answers: asyncio.Future[list[Any]]


class Batcher:
    """Answers rows in batches, in one thread.

    No request waits for a batch to fill: the first is answered at once, and those that
    come meanwhile are the next batch.
    """

    def __init__(
        self, answer: Callable[[Sequence[Any]], list[Any]], most_rows: int = 1024
    ) -> None:
        """Take the function that answers rows; it is called from a thread."""
        self._answer, self._most_rows = answer, most_rows
        self._waiting: list[_Request] = []
        self._task: asyncio.Task[None] | None = None
        self._thread = ThreadPoolExecutor(1, "answers")

    async def ask(self, rows: Sequence[Any]) -> list[Any]:
        """Return an answer for each row."""
        request = _Request(rows, asyncio.get_running_loop().create_future())
        self._waiting.append(request)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())
        return await request.answers

    async def _run(self) -> None:
        while self._waiting:
            n_rows, n = 0, 0
            while n < len(self._waiting) and (n == 0 or n_rows < self._most_rows):
                n_rows += len(self._waiting[n].rows)
                n += 1
            batch, self._waiting = self._waiting[:n], self._waiting[n:]
            await self._settle(batch)

    async def _settle(self, batch: list[_Request]) -> None:
        loop = asyncio.get_running_loop()
        rows = [row for request in batch for row in request.rows]
        try:
            answers = await loop.run_in_executor(self._thread, self._answer, rows)
        except Exception as error:
            if len(batch) > 1:  # the other requests must not suffer from a wrong one
                for request in batch:
                    await self._settle([request])
            elif not batch[0].answers.done():
                batch[0].answers.set_exception(error)
            return
        start = 0
        for request in batch:
            if not request.answers.done():  # its client may have left
                request.answers.set_result(answers[start : start + len(request.rows)])
            start += len(request.rows)

    def close(self) -> None:
        """End the thread."""
        self._thread.shutdown(wait=False, cancel_futures=True)
