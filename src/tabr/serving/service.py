"""The model at work for requests: in threads, in batches, beside other services."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from fastapi import FastAPI

from tabr.serving.batching import Batcher
from tabr.serving.metrics import Metrics
from tabr.serving.served_model import ServedModel

logger = logging.getLogger("tabr.serving")

CATCH_UP_SECONDS = 1.0  # between readings of a store that others may write to

Result = TypeVar("Result")


class Service:
    """What requests share: the model, its counters, and the threads for their work."""

    def __init__(self, served: ServedModel, compact_at_end: bool) -> None:
        """Take a model; it is closed when the app ends."""
        self.served, self.compact_at_end = served, compact_at_end
        self.metrics = Metrics(served)
        self.predictions = Batcher(self._predict)
        self._readers = ThreadPoolExecutor(1, "explanations")
        self._writers = ThreadPoolExecutor(1, "changes")
        self.ready = False

    def _predict(self, rows: Sequence[tuple[Any, float]]) -> list[Any]:
        """Answer rows that each come with a coverage."""
        frame = self.served.schema.to_frame([row for row, _ in rows])
        self.metrics.batch_rows.observe(len(rows))
        coverages = [coverage for _, coverage in rows]
        version, predictions = self.served.predict(frame, coverages)
        return [(version, prediction) for prediction in predictions]

    async def read(self, work: Callable[..., Result], *arguments: Any) -> Result:
        """Run what takes longer than a prediction and changes nothing."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._readers, work, *arguments)

    async def change(self, work: Callable[..., Result], *arguments: Any) -> Result:
        """Run a change of the model; changes wait for one another."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._writers, work, *arguments)

    @asynccontextmanager
    async def lifespan(self, app: FastAPI) -> AsyncIterator[None]:
        """Follow a shared store while the app runs; then compact and close."""
        following = asyncio.create_task(self._follow_store())
        self.ready = True
        try:
            yield
        finally:
            self.ready = False
            following.cancel()
            await self.change(self._close)
            self.predictions.close()
            self._readers.shutdown(wait=False, cancel_futures=True)
            self._writers.shutdown(wait=False)

    async def _follow_store(self) -> None:
        while True:
            await asyncio.sleep(CATCH_UP_SECONDS)
            try:
                await self.change(self.served.catch_up)
            except Exception as error:  # the store may come back
                logger.warning("the store cannot be read: %s", error)

    def _close(self) -> None:
        try:
            if self.compact_at_end and self.served.n_uncompacted:
                self.served.compact()
        except Exception as error:  # nothing is lost: the store has all changes
            logger.warning("changes were not compacted: %s", error)
        finally:
            self.served.close()
