"""The model at work for requests: in threads, in batches, counted for Prometheus."""

from __future__ import annotations

import asyncio
import gc
import logging
import math
import random
import time
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeVar

from fastapi import FastAPI
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from starlette.types import Scope

from tabr.errors import TabrError
from tabr.serving.messages import COVERAGE, Compaction
from tabr.serving.served_model import ServedModel
from tabr.serving.store.connection import StoreError

logger = logging.getLogger("tabr.serving")

APART_SECONDS = 5.0  # at most, between services that would compact at once
RETRY_SECONDS = 60.0  # after a compaction that failed
HEALTH_SECONDS = 1.0  # for the store to answer
CATCH_UP_SECONDS = 1.0  # between readings of a store that others may write to

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)

Result = TypeVar("Result")


class Metrics:
    """Requests by route and status, their seconds, batches, the size of the model."""

    def __init__(self, served: ServedModel) -> None:
        self.registry = registry = CollectorRegistry()  # each app has its own
        histogram = partial(Histogram, registry=registry)
        self._requests = Counter(
            "tabr_requests", "Requests.", ["path", "status"], registry=registry
        )
        self._seconds = histogram(
            "tabr_request_seconds", "Seconds of a request.", ["path"], buckets=SECONDS
        )
        self.batch_rows = histogram(
            "tabr_batch_rows", "Rows that were predicted together.", buckets=ROWS
        )
        size = Gauge("tabr_candidates", "Rows of the memory.", registry=registry)
        size.set_function(lambda: len(served.model.candidates_))
        changes = Gauge("tabr_changes", "Changes applied.", registry=registry)
        changes.set_function(lambda: served.applied)

    def count(self, scope: Scope, status: int, seconds: float) -> None:
        """Count a request by its route, so that no path of a client's is a label."""
        route = getattr(scope.get("route"), "path", None) or "other"
        self._requests.labels(route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)


def warm_up(served: ServedModel) -> None:
    """Do beforehand what is done once, so that no request waits for it.

    Kernels are compiled, libraries imported, and what is there by now is left out of
    the collection of garbage: to look through all of it holds all threads up for a
    second, every now and then.
    """
    rows = [candidate["row"] for candidate in served.sample(2)]
    with suppress(TabrError):  # as of a coverage that takes more rows
        served.explain(served.schema.to_frame(rows), COVERAGE, top=1)
    gc.collect()
    gc.freeze()


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
            batch: list[_Request] = []
            n_rows = 0
            while self._waiting and n_rows < self._most_rows:
                batch.append(self._waiting.pop(0))
                n_rows += len(batch[-1].rows)
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


@dataclass(frozen=True)
class Compacting:
    """When changes become a model file without being asked to."""

    changes: int = 1000  # so many are not yet in one
    seconds: float = 24 * 3600.0  # one of them waits so long
    at_end: bool = True  # the service ends


class Health:
    """Whether the store of a model answers; asked at most twice a second."""

    def __init__(self, check: Callable[[], None]) -> None:
        self._check = check
        self._thread = ThreadPoolExecutor(1, "health")
        self._asked: asyncio.Future[str] | None = None
        self._moment = -math.inf

    async def trouble(self) -> str:
        """Return what is wrong, in a few words; nothing if all is well."""
        loop = asyncio.get_running_loop()
        is_old = time.monotonic() > self._moment + HEALTH_SECONDS / 2
        if self._asked is None or (self._asked.done() and is_old):
            self._asked = loop.run_in_executor(self._thread, self._ask)
            self._moment = time.monotonic()
        try:
            return await asyncio.wait_for(asyncio.shield(self._asked), HEALTH_SECONDS)
        except TimeoutError:
            return f"the store has not answered for {HEALTH_SECONDS:g} s"

    def _ask(self) -> str:
        try:
            self._check()
        except StoreError as error:
            logger.warning("%s", error)
            return "the store cannot be used, so changes are refused"
        return ""

    def close(self) -> None:
        """Ask no more."""
        self._thread.shutdown(wait=False, cancel_futures=True)


class Service:
    """What requests share: the model, its counters, and the threads for their work.

    The model is closed when the app ends.
    """

    def __init__(self, served: ServedModel, compacting: Compacting) -> None:
        self.served, self.compacting = served, compacting
        self._compactor = ThreadPoolExecutor(1, "compaction")
        self._waiting_since: float | None = None  # of changes for a compaction
        self._compaction: asyncio.Task[None] | None = None
        self.metrics = Metrics(served)
        self.predictions = Batcher(self._predict)
        self._readers = ThreadPoolExecutor(1, "explanations")
        self._writers = ThreadPoolExecutor(1, "changes")
        self.health = Health(served.store.check)
        self._bodies = ThreadPoolExecutor(1, "bodies")
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

    async def parse(self, work: Callable[..., Result], *arguments: Any) -> Result:
        """Run what reads a long body; bodies wait for one another."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._bodies, work, *arguments)

    async def change(self, work: Callable[..., Result], *arguments: Any) -> Result:
        """Run a change of the model; changes wait for one another."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._writers, work, *arguments)

    async def compact(self, key: str | None = None) -> Compaction:
        """Write a model file with all changes, while others are made."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._compactor, self.served.compact, key)

    def _is_compaction_due(self) -> bool:
        n = self.served.n_uncompacted
        if not n:
            self._waiting_since = None
            return False
        if self._waiting_since is None:
            self._waiting_since = time.monotonic()
        is_old = time.monotonic() - self._waiting_since >= self.compacting.seconds
        return n >= self.compacting.changes or is_old

    async def _compact_if_due(self) -> None:
        """Compact, unless another service of the store has done so meanwhile."""
        try:
            await asyncio.sleep(random.uniform(0, APART_SECONDS))
            await self.read(self.served.learn_of_compaction)
            if self._is_compaction_due():
                await self.compact()
        except Exception as error:  # nothing is lost: the store has all changes
            logger.warning("changes were not compacted: %s", error)
            await asyncio.sleep(RETRY_SECONDS)

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
            if self._compaction is not None:
                self._compaction.cancel()
            await self.change(self._close)
            self._compactor.shutdown(wait=False, cancel_futures=True)
            self.predictions.close()
            self.health.close()
            self._readers.shutdown(wait=False, cancel_futures=True)
            self._bodies.shutdown(wait=False, cancel_futures=True)
            self._writers.shutdown(wait=False)

    async def _follow_store(self) -> None:
        while True:
            await asyncio.sleep(CATCH_UP_SECONDS)
            try:
                await self.change(self.served.catch_up)
            except Exception as error:  # the store may come back
                logger.warning("the store cannot be read: %s", error)
            is_idle = self._compaction is None or self._compaction.done()
            if is_idle and self._is_compaction_due():
                self._compaction = asyncio.create_task(self._compact_if_due())

    def _close(self) -> None:
        try:
            if self.compacting.at_end and self.served.n_uncompacted:
                self.served.compact()
        except Exception as error:  # nothing is lost: the store has all changes
            logger.warning("changes were not compacted: %s", error)
        finally:
            self.served.close()
