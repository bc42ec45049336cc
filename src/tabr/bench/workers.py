"""Workers that run one job at a time each: processes, or actors of a Ray cluster."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any, NamedTuple, Protocol, Self

import torch

from tabr.bench.tasks.task import SplitTable, Task, load
from tabr.device.devices import choose_device
from tabr.optional import require

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


def countdown(seconds: float | None) -> Callable[[], float | None]:
    """Return a function for the seconds left from now on; None is no limit."""
    end = None if seconds is None else time.monotonic() + seconds
    return lambda: None if end is None else max(0.0, end - time.monotonic())


def exit_on_sigterm() -> None:
    """Turn SIGTERM into an ordinary exit, so that a pool ends its workers."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))


def run_job(job: Job, load: Callable[[Task], SplitTable], resources: Resources) -> Any:
    """Return the outcome of a job, or a Failure."""
    torch.set_num_threads(resources.threads)
    try:
        return job.run(load(job.task), resources)
    except Exception as error:  # the other jobs can still run
        return Failure(" ".join(f"{type(error).__name__}: {error}".split()))


class WorkerPool(ABC):
    """Several workers, each started for its first job, and anew after a failure.

    Use it as a context: leaving it ends all jobs.
    """

    def __init__(self, n: int, start: Callable[[], Any]) -> None:
        """Count n workers."""
        self._start = start
        self._idle: list[Any] = [None] * n  # None is still to be started
        self._busy: dict[Any, tuple[Any, Job]] = {}  # by what `_send` returned

    @property
    def n_idle(self) -> int:
        """The number of workers without a job."""
        return len(self._idle)

    @property
    def n_busy(self) -> int:
        """The number of workers with a job."""
        return len(self._busy)

    def submit(self, job: Job) -> None:
        """Start a job; a worker must be idle."""
        worker = self._idle.pop() or self._start()
        self._busy[self._send(worker, job)] = worker, job

    def finished(self, timeout: float | None) -> list[tuple[Job, Any]]:
        """Wait until jobs have ended; return them with their outcome or a Failure."""
        outcomes = []
        for key in self._wait(list(self._busy), timeout) if self._busy else ():
            worker, job = self._busy.pop(key)
            outcome = self._receive(worker, key)
            if isinstance(outcome, Failure):  # a broken GPU would break the next job
                self._end([worker])
                worker = None
            self._idle.append(worker)
            outcomes.append((job, outcome))
        return outcomes

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        workers = [*self._idle, *(worker for worker, _ in self._busy.values())]
        self._end([worker for worker in workers if worker is not None])

    @abstractmethod
    def _send(self, worker: Any, job: Job) -> Any:
        """Start a job; return a key of its outcome."""

    @abstractmethod
    def _wait(self, keys: list[Any], timeout: float | None) -> list[Any]:
        """Return the keys of jobs that have ended."""

    @abstractmethod
    def _receive(self, worker: Any, key: Any) -> Any:
        """Return the outcome of a job that has ended, or a Failure."""

    @abstractmethod
    def _end(self, workers: Sequence[Any]) -> None:
        """End workers and their jobs."""


def open_pool(n: int, folder: Path | None, resources: Resources) -> WorkerPool:
    """Return n new workers: Ray's if the resources have an address, else processes."""
    pool = ProcessPool if resources.ray is None else RayPool
    return pool(n, folder, resources)


# --- processes ----------------------------------------------------------------------


class _Worker(NamedTuple):
    process: SpawnProcess
    pipe: Connection[Any, Any]


class ProcessPool(WorkerPool):
    """A pool of processes on this machine."""

    def __init__(self, n: int, folder: Path | None, resources: Resources) -> None:
        """Count n processes; the tables are in the folder."""
        super().__init__(n, partial(_start_process, folder, resources))

    def _send(self, worker: _Worker, job: Job) -> Any:
        with suppress(BrokenPipeError):  # the process has died; `_receive` reports it
            worker.pipe.send(job)
        return worker.pipe

    def _wait(self, keys: list[Any], timeout: float | None) -> list[Any]:
        return wait(keys, timeout)

    def _receive(self, worker: _Worker, key: Any) -> Any:
        try:
            return worker.pipe.recv()
        except (EOFError, ConnectionResetError):
            worker.process.join()
            return Failure(f"the process ended with status {worker.process.exitcode}")

    def _end(self, workers: Sequence[_Worker]) -> None:
        for worker in workers:
            worker.process.terminate()
            worker.pipe.close()
        for worker in workers:
            worker.process.join(_SECONDS_TO_END)
            worker.process.kill()
            worker.process.join()


def _start_process(folder: Path | None, resources: Resources) -> _Worker:
    context = multiprocessing.get_context("spawn")  # CUDA does not survive a fork
    pipe, worker_pipe = context.Pipe()
    arguments = worker_pipe, folder, resources
    process = context.Process(target=_run_jobs, args=arguments, daemon=True)
    process.start()
    worker_pipe.close()
    return _Worker(process, pipe)


def _run_jobs(
    pipe: Connection[Any, Any], folder: Path | None, resources: Resources
) -> None:
    """Run jobs from a pipe until it is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a fit would stop early and count
    exit_on_sigterm()
    load_cached = lru_cache(maxsize=CACHED_TABLES)(partial(load, folder=folder))
    with suppress(EOFError, BrokenPipeError):
        while True:
            pipe.send(run_job(pipe.recv(), load_cached, resources))


# --- Ray ----------------------------------------------------------------------------


class RayPool(WorkerPool):
    """A pool of Ray actors, on as many machines as Ray has.

    Tables are read here and travel through Ray's store: other machines need no files.
    """

    def __init__(self, n: int, folder: Path | None, resources: Resources) -> None:
        """Join a running cluster, or start a new one on this machine."""
        self._ray = ray = require("ray", extra="ray")
        self._is_new = not ray.is_initialized()
        if self._is_new:
            # On this machine Ray must not count cores: that many workers are wanted.
            options: dict[str, Any] = {"address": resources.ray}
            if resources.ray == "local":
                options |= {"num_cpus": n, "include_dashboard": False}
            ray.init(log_to_driver=False, logging_level="error", **options)
        actor = ray.remote(num_cpus=1, num_gpus=resources.gpus, max_restarts=0)(_Actor)
        super().__init__(n, partial(actor.remote, resources))
        self._put = lru_cache(CACHED_TABLES)(lambda task: ray.put(load(task, folder)))

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        if self._is_new:
            self._ray.shutdown()

    def _send(self, worker: Any, job: Job) -> Any:
        return worker.run.remote(job, self._put(job.task))

    def _wait(self, keys: list[Any], timeout: float | None) -> list[Any]:
        ready, _ = self._ray.wait(keys, num_returns=1, timeout=timeout)
        return list(ready)

    def _receive(self, worker: Any, key: Any) -> Any:
        try:
            return self._ray.get(key)
        except self._ray.exceptions.RayError as error:
            return Failure(f"Ray: {str(error).strip().splitlines()[0]}")

    def _end(self, workers: Sequence[Any]) -> None:
        for actor in workers:
            self._ray.kill(actor)


class _Actor:
    """A worker, on any machine of the cluster."""

    def __init__(self, resources: Resources) -> None:
        self.resources = resources

    def run(self, job: Job, parts: SplitTable) -> Any:
        """Return the outcome of a job, or a Failure."""
        return run_job(job, lambda task: parts, self.resources)
