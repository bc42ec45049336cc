"""The runs of a benchmark, a method, a task and a seed each, and their progress."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

from tabr.bench.methods import METHODS
from tabr.bench.parameters import has_tuned
from tabr.bench.protocol import run_seeds
from tabr.bench.ranks import short_name
from tabr.bench.results import DEFAULT_PLAN, Plan, Predictions, Result, result_path
from tabr.bench.tasks.task import SplitTable, Task
from tabr.bench.workers import Failure, Resources
from tabr.text import duration, number

Log = Callable[[str], None]  # takes a line

LONG_TASKS = ("black-friday", "covtype", "microsoft", "weather-small", "weather-big")


@dataclass(frozen=True)
class Run:
    """A fit with one seed, and where its result is kept."""

    task: Task
    seed: int
    plan: Plan = DEFAULT_PLAN
    keeps_predictions: bool = False

    def __str__(self) -> str:
        method, task = short_name(self.plan.name), self.task
        return f"{method} {task.label} split {task.split} seed {self.seed}"

    def path(self, out: Path) -> Path:
        """Return the path of its result."""
        return result_path(out, self.task, self.seed, self.plan)

    def is_done(self, out: Path) -> bool:
        """Whether its result, and its predictions if wanted, are there."""
        path = self.path(out)
        is_whole = path.with_suffix(".npz").is_file() or not self.keeps_predictions
        return is_whole and path.is_file()


@dataclass(frozen=True)
class SeedBatch:
    """Runs that differ by successive seeds and are fitted as one."""

    runs: tuple[Run, ...]

    @property
    def task(self) -> Task:
        """The table and split of its runs."""
        return self.runs[0].task

    def run(
        self, parts: SplitTable, resources: Resources
    ) -> list[tuple[Result, Predictions | None]]:
        """Return the result of each run, and its predictions if it keeps them."""
        first, seeds = self.runs[0], [run.seed for run in self.runs]
        pairs = run_seeds(first.task, parts, seeds, resources, first.plan)
        keeps = first.keeps_predictions
        return [(result, values if keeps else None) for result, values in pairs]


def batches_of(runs: Iterable[Run], seeds_per_fit: int) -> list[SeedBatch]:
    """Return adjacent runs that can be fitted as one in batches of so many seeds."""
    groups: list[list[Run]] = []
    for run in runs:
        previous = groups[-1][-1] if groups else None
        if (
            previous is not None
            and len(groups[-1]) < seeds_per_fit
            and METHODS[run.plan.method].method.fits_as_one
            and replace(previous, seed=run.seed) == run
            and previous.seed + 1 == run.seed
        ):
            groups[-1].append(run)
        else:
            groups.append([run])
    return [SeedBatch(tuple(group)) for group in groups]


@dataclass(frozen=True)
class SeedCounts:
    """The number of seeds of a task.

    Attributes:
        n: Of most tasks.
        n_long: Of the longest tasks, if fewer.
        n_why: Of each split of the second benchmark, if it differs.
    """

    n: int = 15
    n_long: int | None = None
    n_why: int | None = None

    def of(self, task: Task) -> int:
        """Return the number of seeds of a task."""
        if self.n_why is not None and task.benchmark == "why":
            return self.n_why
        if self.n_long is not None and task.label in LONG_TASKS:
            return min(self.n, self.n_long)
        return self.n


def runs_of(
    tasks: Iterable[Task],
    seeds: SeedCounts,
    plans: Sequence[Plan] = (DEFAULT_PLAN,),
    *,
    keep_predictions: bool = False,
) -> list[Run]:
    """Return the runs of tasks.

    A plan is left out of tasks that its method cannot predict, and of tasks without a
    published configuration if it needs one.
    """
    return [
        Run(task, seed, plan, keep_predictions)
        for task in tasks
        for plan in plans
        if task.kind in METHODS[plan.method].method.outcomes
        and (plan.config != "tuned" or has_tuned(task, plan.method))
        for seed in range(seeds.of(task))
    ]


# --- progress -----------------------------------------------------------------------


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


def scores_text(result: Result, task: Task, scoring: str | None) -> str:
    """Return the scores of a run's test and validation rows, by one measure."""
    if scoring is None:
        return f"{task.metric} {result.test:.6g} (val {result.val:.6g})"
    measure = task.measure(scoring)
    test, val = result.score(measure, "test"), result.score(measure, "val")
    return f"{measure.label} {number(test, 6)} (val {number(val, 6)})"


def stopping_note(result: Result, plan: Plan, task: Task) -> str:
    """Return what stops a method instead of the scoring; nothing if that does."""
    if result.stopped_by is None:
        return ""
    return (
        f"{plan.method} has no {plan.scoring} to stop by on {task.label}: it stops by"
        f" {result.stopped_by}"
    )


class Progress:
    """The counts of runs; it logs a line for each that ends."""

    def __init__(
        self, todo: Sequence[Run], n_before: int, n_workers: int, log: Log = print
    ) -> None:
        """Log how many runs there are to do."""
        self.todo, self.n_workers, self.log = list(todo), n_workers, log
        self.summary = Summary(n_before, n_left=len(todo))
        self.forecast, self.notes = Forecast(), set[str]()
        log(f"{len(todo)} runs to do, {n_before} done before")

    def add(self, run: Run, outcome: Result | Failure) -> None:
        """Count a run that has ended.

        What stops a method instead of the scoring is told once.
        """
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
            f"{run}: {scores_text(outcome, run.task, run.plan.scoring)},"
            f"{best} {outcome.seconds:.1f} s; {self._left()}"
        )
        note = stopping_note(outcome, run.plan, run.task) if run.plan.scoring else ""
        if note and note not in self.notes:
            self.notes.add(note)
            self.log(note)

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
