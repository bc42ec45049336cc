"""Progress of many runs: a line for each, and an estimate of what is left."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Protocol

from tabr.bench.results import Plan, Result
from tabr.bench.tasks.task import Task
from tabr.bench.workers import Failure
from tabr.text import duration


class Run(Protocol):
    """What an item tells of itself."""

    @property
    def task(self) -> Task:
        """Return the task."""
        ...

    @property
    def plan(self) -> Plan:
        """Return what is fitted."""
        ...


@dataclass
class Summary:
    """How the work went, in numbers of items."""

    n_before: int  # were done before
    n_done: int = 0
    n_failed: int = 0
    n_left: int = 0


class Forecast:
    """Estimates the seconds of runs from those of others.

    The mean of the same method on the same table counts most; else the same method on
    other tables, in proportion to what they cost; else all methods likewise.
    """

    def __init__(self) -> None:
        """Know nothing yet."""
        self.seconds: dict[tuple[str, str], list[float]] = {}
        self.rates: dict[str, list[float]] = {}

    def learn(self, run: Run, seconds: float) -> None:
        """Take note of a run."""
        key = run.plan.name, run.task.label
        self.seconds.setdefault(key, []).append(seconds)
        self.rates.setdefault(run.plan.name, []).append(seconds / run.task.cost)

    def of(self, run: Run) -> float:
        """Return the seconds that a run may take; something must be known."""
        same = self.seconds.get((run.plan.name, run.task.label))
        if same:
            return fmean(same)
        every = [rate for rates in self.rates.values() for rate in rates]
        return fmean(self.rates.get(run.plan.name) or every) * run.task.cost


class Progress:
    """Counts what is done and prints a line for each item."""

    def __init__(self, todo: Sequence[Run], n_before: int, n_workers: int) -> None:
        """Say how much there is to do."""
        self.todo, self.n_workers = list(todo), n_workers
        self.summary = Summary(n_before, n_left=len(todo))
        self.forecast = Forecast()
        say(f"{len(todo)} to do, {n_before} done before")

    def report(self, item: Run, answer: Result | Failure) -> None:
        """Take note of an item that has ended."""
        self.todo.remove(item)
        self.summary.n_left -= 1
        if isinstance(answer, Failure):
            self.summary.n_failed += 1
            say(f"{item}: FAILED, {answer.reason}; {self._left()}")
            return
        self.summary.n_done += 1
        self.forecast.learn(item, answer.seconds)
        known = answer.best_epoch is not None
        best = f" best epoch {answer.best_epoch}" if known else " no epochs"
        say(
            f"{item}: {item.task.metric} {answer.test:.6g} (val {answer.val:.6g}),"
            f"{best}, {answer.seconds:.1f} s; {self._left()}"
        )

    def _left(self) -> str:
        text = f"{len(self.todo)} left"
        if self.todo and self.summary.n_done:
            seconds = sum(map(self.forecast.of, self.todo)) / self.n_workers
            text += f", about {duration(seconds)}"
        return text

    def close(self, seconds: float) -> Summary:
        """Print and return the summary."""
        s = self.summary
        say(
            f"{s.n_done} done, {s.n_failed} failed, {s.n_left} left,"
            f" {s.n_before} done before, in {duration(seconds)}"
        )
        return s


def say(line: str) -> None:
    """Print a line at once."""
    print(line, flush=True)
