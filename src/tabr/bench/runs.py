"""The runs of a benchmark: a method, a task and a seed each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tabr.bench.methods import METHODS
from tabr.bench.parameters import has_tuned
from tabr.bench.protocol import run_seeds
from tabr.bench.ranks import short_name
from tabr.bench.results import (
    DEFAULT_PLAN,
    Plan,
    Predictions,
    Result,
    result_path,
)
from tabr.bench.tasks.task import SplitTable, Task
from tabr.bench.workers import Resources

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
