"""Who does the work: processes on this machine, one piece of work at a time each."""

from __future__ import annotations

import multiprocessing
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Protocol, Self

import torch

from tabr.bench.tasks.task import SplitTable, Task, load

KEPT_TABLES = 2  # split tables that a worker keeps
_PATIENCE = 5.0  # seconds that a process may take to end


@dataclass(frozen=True)
class Place:
    """Where and beside how many others work is done.

    Attributes:
        device: Where to compute; None is a GPU if there is one.
        workers: Workers that share the machine, for the record.
        threads: Threads of one piece of work. It is one unless asked for otherwise:
            sums over threads round differently, and results must not depend on who
            works beside.
    """

    device: str | None = None
    workers: int = 1
    threads: int = 1


class Work(Protocol):
    """Something to be done with a split table; it travels to the worker."""

    @property
    def task(self) -> Task:
        """Return which table and split it needs."""
        ...

    def do(self, parts: SplitTable, place: Place) -> Any:
        """Do it, and return what travels back."""
        ...


@dataclass(frozen=True)
class Failure:
    """What went wrong with a piece of work, in one line."""

    reason: str


class WorkerPool(Protocol):
    """Workers, seen from outside. Use it as a context: leaving it ends all work."""

    @property
    def n_idle(self) -> int:
        """Return how many workers have nothing to do."""
        ...

    @property
    def n_busy(self) -> int:
        """Return how many workers are at work."""
        ...

    def give(self, work: Work) -> None:
        """Start a piece of work; somebody must be idle."""
        ...

    def ended(self, timeout: float | None) -> list[tuple[Work, Any]]:
        """Wait until some work has ended; return it with its answer or a Failure."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *error: object) -> None: ...


def countdown(seconds: float | None) -> Callable[[], float | None]:
    """Return a function that tells the seconds left from now on; None is no limit."""
    end = None if seconds is None else time.monotonic() + seconds
    return lambda: None if end is None else max(0.0, end - time.monotonic())


class ProcessPool:
    """A team of processes on this machine."""

    def __init__(self, n: int, folder: Path | None, place: Place) -> None:
        """Start n processes; the tables are in the folder."""
        self._start: Callable[[], _Worker] = partial(_Worker, folder, place)
        self._workers = [self._start() for _ in range(n)]

    @property
    def n_idle(self) -> int:
        """Return how many workers have nothing to do."""
        return len(self._workers) - self.n_busy

    @property
    def n_busy(self) -> int:
        """Return how many workers are at work."""
        return sum(worker.work is not None for worker in self._workers)

    def give(self, work: Work) -> None:
        """Start a piece of work; somebody must be idle."""
        place, worker = next(
            (i, w) for i, w in enumerate(self._workers) if w.work is None
        )
        if worker.failed:  # a broken GPU context would break the next piece too
            worker.end()
            worker.join()
            self._workers[place] = worker = self._start()
        worker.give(work)

    def ended(self, timeout: float | None) -> list[tuple[Work, Any]]:
        """Wait until some work has ended; return it with its answer or a Failure."""
        busy = {w.pipe: w for w in self._workers if w.work is not None}
        ready = wait(list(busy), timeout=timeout)
        return [worker.answer() for pipe, worker in busy.items() if pipe in ready]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for worker in self._workers:
            worker.end()
        for worker in self._workers:
            worker.join()


class _Worker:
    """A process that does one piece of work at a time, seen from outside."""

    def __init__(self, folder: Path | None, place: Place) -> None:
        context = multiprocessing.get_context("spawn")  # CUDA does not survive a fork
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(
            target=_work, args=(theirs, folder, place), daemon=True
        )
        self.process.start()
        theirs.close()
        self.work: Work | None = None
        self.failed = False

    def give(self, work: Work) -> None:
        """Start a piece of work."""
        self.work = work
        with suppress(BrokenPipeError):  # it has died; `answer` will tell
            self.pipe.send(work)

    def answer(self) -> tuple[Work, Any]:
        """Return the work that has ended, and its answer or what went wrong."""
        work, self.work = self.work, None
        assert work is not None
        try:
            answer = self.pipe.recv()
        except (EOFError, ConnectionResetError):
            self.process.join()
            answer = Failure(f"the process ended with status {self.process.exitcode}")
        self.failed = isinstance(answer, Failure)
        return work, answer

    def end(self) -> None:
        """Tell the process to end, at once if it is busy; do not wait."""
        if self.work is not None:
            self.process.terminate()
        self.pipe.close()

    def join(self) -> None:
        """Wait for the end, and no longer than a moment."""
        self.process.join(_PATIENCE)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()


def _work(pipe: Connection[Any, Any], folder: Path | None, place: Place) -> None:
    """Do work as it comes, until nobody is there to give it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a fit would stop early and count
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    loaded = lru_cache(maxsize=KEPT_TABLES)(lambda task: load(task, folder))
    while True:
        try:
            work = pipe.recv()
        except EOFError:
            return
        try:
            pipe.send(attempt(work, loaded, place))
        except BrokenPipeError:
            return


def attempt(work: Work, loaded: Callable[[Task], SplitTable], place: Place) -> Any:
    """Do a piece of work; what goes wrong with it becomes a Failure."""
    torch.set_num_threads(place.threads)
    try:
        return work.do(loaded(work.task), place)
    except Exception as error:  # the other work can still be done
        return Failure(" ".join(f"{type(error).__name__}: {error}".split()))
