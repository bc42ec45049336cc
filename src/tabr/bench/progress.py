"""The progress of many runs: a line for each, and an estimate of the time left."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

from tabr.bench.results import Result
from tabr.bench.runs import Run
from tabr.bench.workers import Failure
from tabr.text import duration

Log = Callable[[str], None]  # takes a line


@dataclass
class Summary:
    """Numbers of runs."""

    n_before: int  # done by an earlier command
    n_done: int = 0
    n_failed: int = 0
    n_left: int = 0


class Forecast:
    """An estimate of the seconds of runs from those that have ended.

    It is the mean of the same method on the same table. Without such a run it follows
    from the same method on other tables, in proportion to their cost, and without
    those from all methods likewise.
    """

    def __init__(self) -> None:
        """Begin without runs."""
        self.seconds: dict[tuple[str, str], list[float]] = {}
        self.rates: dict[str, list[float]] = {}

    def add(self, run: Run, seconds: float) -> None:
        """Add a run that has ended."""
        key = run.plan.name, run.task.label
        self.seconds.setdefault(key, []).append(seconds)
        self.rates.setdefault(run.plan.name, []).append(seconds / run.task.cost)

    def of(self, run: Run) -> float:
        """Return the seconds that a run may take; some run must have ended."""
        same = self.seconds.get((run.plan.name, run.task.label))
        if same:
            return fmean(same)
        all_rates = [rate for rates in self.rates.values() for rate in rates]
        return fmean(self.rates.get(run.plan.name) or all_rates) * run.task.cost


class Progress:
    """The counts of runs; it logs a line for each that ends."""

    def __init__(
        self, todo: Sequence[Run], n_before: int, n_workers: int, log: Log = print
    ) -> None:
        """Log how many runs there are to do."""
        self.todo, self.n_workers, self.log = list(todo), n_workers, log
        self.summary = Summary(n_before, n_left=len(todo))
        self.forecast = Forecast()
        log(f"{len(todo)} runs to do, {n_before} done before")

    def add(self, run: Run, outcome: Result | Failure) -> None:
        """Count a run that has ended."""
        self.todo.remove(run)
        self.summary.n_left -= 1
        if isinstance(outcome, Failure):
            self.summary.n_failed += 1
            self.log(f"{run}: FAILED, {outcome.reason}; {self._left()}")
            return
        self.summary.n_done += 1
        self.forecast.add(run, outcome.seconds)
        epoch = outcome.best_epoch
        best = "" if epoch is None else f" best epoch {epoch},"
        self.log(
            f"{run}: {run.task.metric} {outcome.test:.6g} (val {outcome.val:.6g}),"
            f"{best} {outcome.seconds:.1f} s; {self._left()}"
        )

    def _left(self) -> str:
        text = f"{len(self.todo)} left"
        if self.todo and self.summary.n_done:
            seconds = sum(map(self.forecast.of, self.todo)) / self.n_workers
            text += f", about {duration(seconds)}"
        return text

    def close(self, seconds: float) -> Summary:
        """Log and return the summary."""
        s = self.summary
        self.log(
            f"{s.n_done} done, {s.n_failed} failed, {s.n_left} left,"
            f" {s.n_before} done before, in {duration(seconds)}"
        )
        return s
