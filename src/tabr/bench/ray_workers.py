"""Workers of a Ray cluster: the same jobs, on as many machines as Ray has."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from tabr.bench.tasks.task import SplitTable, Task, load
from tabr.bench.workers import (
    CACHED_TABLES,
    Failure,
    Job,
    ProcessPool,
    Resources,
    WorkerPool,
    run_job,
)
from tabr.optional import require

LOCAL = "local"


def open_pool(n: int, folder: Path | None, resources: Resources) -> WorkerPool:
    """Return n new workers: Ray's if the resources have an address, else processes."""
    pool = ProcessPool if resources.ray is None else RayPool
    return pool(n, folder, resources)


class RayPool(WorkerPool):
    """A pool of Ray actors.

    Tables are read here and travel through Ray's store: other machines need no files.
    """

    def __init__(self, n: int, folder: Path | None, resources: Resources) -> None:
        """Start n actors on a running cluster, or on a new one on this machine."""
        super().__init__(n)
        self._ray = ray = require("ray", extra="ray")
        self._started = not ray.is_initialized()
        if self._started:
            # On this machine Ray must not count cores: that many workers are wanted.
            options: dict[str, Any] = {"address": resources.ray or LOCAL}
            if options["address"] == LOCAL:
                options |= {"num_cpus": n, "include_dashboard": False}
            ray.init(log_to_driver=False, logging_level="error", **options)
        actor = ray.remote(num_cpus=1, num_gpus=resources.gpus, max_restarts=0)(_Actor)
        self._start: Callable[[], Any] = partial(actor.remote, resources)
        self._idle: list[Any] = [self._start() for _ in range(n)]
        self._busy: dict[Any, tuple[Any, Job]] = {}
        self._put: Callable[[Task], Any] = lru_cache(maxsize=CACHED_TABLES)(
            lambda task: ray.put(load(task, folder))
        )

    @property
    def n_busy(self) -> int:
        """The number of workers with a job."""
        return len(self._busy)

    def submit(self, job: Job) -> None:
        """Start a job; a worker must be idle."""
        actor = self._idle.pop()
        self._busy[actor.run.remote(job, self._put(job.task))] = actor, job

    def finished(self, timeout: float | None) -> list[tuple[Job, Any]]:
        """Wait until jobs have ended; return them with their outcome or a Failure."""
        if not self._busy:
            return []
        ready, _ = self._ray.wait(list(self._busy), num_returns=1, timeout=timeout)
        outcomes = []
        for reference in ready:
            actor, job = self._busy.pop(reference)
            try:
                outcome = self._ray.get(reference)
            except self._ray.exceptions.RayError as error:
                outcome = Failure(f"Ray: {str(error).strip().splitlines()[0]}")
            if isinstance(outcome, Failure):  # a broken GPU would break the next job
                self._ray.kill(actor)
                actor = self._start()
            self._idle.append(actor)
            outcomes.append((job, outcome))
        return outcomes

    def close(self) -> None:
        """End all actors, and the cluster if it is new."""
        for actor in [*self._idle, *(actor for actor, _ in self._busy.values())]:
            self._ray.kill(actor)
        if self._started:
            self._ray.shutdown()


class _Actor:
    """A worker, on any machine of the cluster."""

    def __init__(self, resources: Resources) -> None:
        self.resources = resources

    def run(self, job: Job, parts: SplitTable) -> Any:
        """Return the outcome of a job, or a Failure."""
        return run_job(job, lambda task: parts, self.resources)
