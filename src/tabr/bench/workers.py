"""Workers of this machine: processes that run one job at a time each."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Protocol, Self

import torch

from tabr.bench.tasks.task import SplitTable, Task, load
from tabr.device.devices import choose_device

CACHED_TABLES = 2  # split tables that a worker keeps
_SECONDS_TO_END = 5.0  # that a process may take


@dataclass(frozen=True)
class Resources:
    """The hardware that jobs use.

    Attributes:
        device: Where to compute; None is a GPU if there is one.
        workers: Jobs that run at a time and share the machine.
        threads: Threads of one job. It is one unless asked for otherwise: sums over
            threads round differently, and results must not depend on the other jobs.
        ray: Address of a Ray cluster, or "local"; None takes processes.
        gpus: GPUs that Ray sets aside for each worker; a part of one is fine.
    """

    device: str | None = None
    workers: int = 1
    threads: int = 1
    ray: str | None = None
    gpus: float = 0.0


def default_workers(device: str | None, threads: int) -> int:
    """Return how many workers use all cores; on a GPU it is one."""
    if choose_device(device).type != "cpu":
        return 1
    return max(1, (os.cpu_count() or 1) // threads)


class Job(Protocol):
    """Something to be computed from a split table; it travels to the worker."""

    @property
    def task(self) -> Task:
        """The table and split that it needs."""
        ...

    def run(self, parts: SplitTable, resources: Resources) -> Any:
        """Return the outcome, which travels back."""
        ...


@dataclass(frozen=True)
class Failure:
    """The reason why a job failed, in one line."""

    reason: str


class WorkerPool(ABC):
    """Several workers. Use it as a context: leaving it ends all jobs."""

    def __init__(self, n: int) -> None:
        """Count n workers."""
        self.n_workers = n

    @property
    def n_idle(self) -> int:
        """The number of workers without a job."""
        return self.n_workers - self.n_busy

    @property
    @abstractmethod
    def n_busy(self) -> int:
        """The number of workers with a job."""

    @abstractmethod
    def submit(self, job: Job) -> None:
        """Start a job; a worker must be idle."""

    @abstractmethod
    def finished(self, timeout: float | None) -> list[tuple[Job, Any]]:
        """Wait until jobs have ended; return them with their outcome or a Failure."""

    @abstractmethod
    def close(self) -> None:
        """End all workers and their jobs."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def countdown(seconds: float | None) -> Callable[[], float | None]:
    """Return a function for the seconds left from now on; None is no limit."""
    end = None if seconds is None else time.monotonic() + seconds
    return lambda: None if end is None else max(0.0, end - time.monotonic())


def exit_on_sigterm() -> None:
    """Turn SIGTERM into an ordinary exit, so that a pool ends its workers."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))


class ProcessPool(WorkerPool):
    """A pool of processes on this machine."""

    def __init__(self, n: int, folder: Path | None, resources: Resources) -> None:
        """Start n processes; the tables are in the folder."""
        super().__init__(n)
        self._start: Callable[[], _Worker] = partial(_Worker, folder, resources)
        self._workers = [self._start() for _ in range(n)]

    @property
    def n_busy(self) -> int:
        """The number of workers with a job."""
        return sum(worker.job is not None for worker in self._workers)

    def submit(self, job: Job) -> None:
        """Start a job; a worker must be idle."""
        index, worker = next(
            (i, w) for i, w in enumerate(self._workers) if w.job is None
        )
        if worker.failed:  # a broken GPU context would break the next job too
            worker.end()
            worker.join()
            self._workers[index] = worker = self._start()
        worker.submit(job)

    def finished(self, timeout: float | None) -> list[tuple[Job, Any]]:
        """Wait until jobs have ended; return them with their outcome or a Failure."""
        busy = {w.pipe: w for w in self._workers if w.job is not None}
        ready = wait(list(busy), timeout=timeout)
        return [worker.receive() for pipe, worker in busy.items() if pipe in ready]

    def close(self) -> None:
        """End all processes."""
        for worker in self._workers:
            worker.end()
        for worker in self._workers:
            worker.join()


class _Worker:
    """A process with a pipe to it."""

    def __init__(self, folder: Path | None, resources: Resources) -> None:
        context = multiprocessing.get_context("spawn")  # CUDA does not survive a fork
        self.pipe, worker_pipe = context.Pipe()
        self.process = context.Process(
            target=_run_jobs, args=(worker_pipe, folder, resources), daemon=True
        )
        self.process.start()
        worker_pipe.close()
        self.job: Job | None = None
        self.failed = False

    def submit(self, job: Job) -> None:
        """Start a job."""
        self.job = job
        with suppress(BrokenPipeError):  # the process has died; `receive` reports it
            self.pipe.send(job)

    def receive(self) -> tuple[Job, Any]:
        """Return the job that has ended, and its outcome or a Failure."""
        job, self.job = self.job, None
        assert job is not None
        try:
            outcome = self.pipe.recv()
        except (EOFError, ConnectionResetError):
            self.process.join()
            outcome = Failure(f"the process ended with status {self.process.exitcode}")
        self.failed = isinstance(outcome, Failure)
        return job, outcome

    def end(self) -> None:
        """Make the process end, at once if it is busy; do not wait."""
        if self.job is not None:
            self.process.terminate()
        self.pipe.close()

    def join(self) -> None:
        """Wait for the end of the process, and kill it after a moment."""
        self.process.join(_SECONDS_TO_END)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()


def _run_jobs(
    pipe: Connection[Any, Any], folder: Path | None, resources: Resources
) -> None:
    """Run jobs from a pipe until it is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a fit would stop early and count
    exit_on_sigterm()
    load_cached = lru_cache(maxsize=CACHED_TABLES)(lambda task: load(task, folder))
    while True:
        try:
            job = pipe.recv()
        except EOFError:
            return
        try:
            pipe.send(run_job(job, load_cached, resources))
        except BrokenPipeError:
            return


def run_job(job: Job, load: Callable[[Task], SplitTable], resources: Resources) -> Any:
    """Return the outcome of a job, or a Failure."""
    torch.set_num_threads(resources.threads)
    try:
        return job.run(load(job.task), resources)
    except Exception as error:  # the other jobs can still run
        return Failure(" ".join(f"{type(error).__name__}: {error}".split()))
