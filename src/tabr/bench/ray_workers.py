"""A team on a Ray cluster: the same work, on as many machines as Ray has."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Self

from tabr.bench.tasks.task import SplitTable, Task, load
from tabr.bench.workers import KEPT_TABLES, Failure, Place, Work, attempt
from tabr.optional import require

LOCAL = "local"


class RayPool:
    """A team of Ray actors.

    Tables are read here and travel through Ray's store: other machines need no files.
    """

    def __init__(
        self,
        n: int,
        folder: Path | None,
        place: Place,
        *,
        address: str = LOCAL,
        gpus: float = 0.0,
    ) -> None:
        """Start n actors on the cluster at an address, or on a new one on this machine.

        Args:
            n: Workers.
            folder: Where the tables are.
            place: Where each of them computes.
            address: Of a running cluster, as Ray takes it, or "local".
            gpus: GPUs that Ray sets aside for each worker; a part of one is fine.
        """
        self._ray = ray = require("ray", extra="ray")
        self._started = not ray.is_initialized()
        if self._started:
            # On this machine Ray must not count cores: that many workers are wanted.
            more: dict[str, Any] = {"address": address}
            if address == LOCAL:
                more |= {"num_cpus": n, "include_dashboard": False}
            ray.init(log_to_driver=False, logging_level="error", **more)
        actor = ray.remote(num_cpus=1, num_gpus=gpus, max_restarts=0)(_Actor)
        self._start: Callable[[], Any] = partial(actor.remote, place)
        self._idle: list[Any] = [self._start() for _ in range(n)]
        self._busy: dict[Any, tuple[Any, Work]] = {}
        self._put: Callable[[Task], Any] = lru_cache(maxsize=KEPT_TABLES)(
            lambda task: ray.put(load(task, folder))
        )

    @property
    def n_idle(self) -> int:
        """Return how many workers have nothing to do."""
        return len(self._idle)

    @property
    def n_busy(self) -> int:
        """Return how many workers are at work."""
        return len(self._busy)

    def give(self, work: Work) -> None:
        """Start a piece of work; somebody must be idle."""
        actor = self._idle.pop()
        self._busy[actor.do.remote(work, self._put(work.task))] = actor, work

    def ended(self, timeout: float | None) -> list[tuple[Work, Any]]:
        """Wait until some work has ended; return it with its answer or a Failure."""
        if not self._busy:
            return []
        ready, _ = self._ray.wait(list(self._busy), num_returns=1, timeout=timeout)
        answers = []
        for answer in ready:
            actor, work = self._busy.pop(answer)
            try:
                said = self._ray.get(answer)
            except self._ray.exceptions.RayError as error:
                said = Failure(f"Ray: {str(error).strip().splitlines()[0]}")
            if isinstance(said, Failure):  # a broken GPU context would break the next
                self._ray.kill(actor)
                actor = self._start()
            self._idle.append(actor)
            answers.append((work, said))
        return answers

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for actor in [*self._idle, *(actor for actor, _ in self._busy.values())]:
            self._ray.kill(actor)
        if self._started:
            self._ray.shutdown()


class _Actor:
    """A worker, on whatever machine."""

    def __init__(self, place: Place) -> None:
        self.place = place

    def do(self, work: Work, parts: SplitTable) -> Any:
        """Do a piece of work; what goes wrong with it becomes a Failure."""

        def loaded(task: Task) -> SplitTable:
            return parts

        return attempt(work, loaded, self.place)
