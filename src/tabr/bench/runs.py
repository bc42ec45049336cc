"""Many runs: what is to do, done by a team, each result kept as soon as it is there."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from tabr.bench.methods import METHODS
from tabr.bench.parameters import has_tuned
from tabr.bench.progress import Progress, Summary
from tabr.bench.protocol import run_seeds
from tabr.bench.results import (
    DEFAULT_PLAN,
    Plan,
    Predictions,
    Result,
    result_path,
    write,
    write_predictions,
)
from tabr.bench.tasks.task import SplitTable, Task, check_files
from tabr.bench.workers import Failure, Place, ProcessPool, WorkerPool, countdown

# The long ones, by label.
FEW_SEEDS = ("black-friday", "covtype", "microsoft", "weather-small", "weather-big")


@dataclass(frozen=True)
class Item:
    """One run to do."""

    task: Task
    seed: int
    plan: Plan = DEFAULT_PLAN
    keeps_predictions: bool = False

    def __str__(self) -> str:
        about = f"{self.task.label} split {self.task.split} seed {self.seed}"
        return about if self.plan == DEFAULT_PLAN else f"{self.plan.name} {about}"

    def path(self, out: Path) -> Path:
        """Return where its result is kept."""
        return result_path(out, self.task, self.seed, self.plan)

    def is_done(self, out: Path) -> bool:
        """Tell whether all that is asked for is there."""
        path = self.path(out)
        whole = path.with_suffix(".npz").is_file() or not self.keeps_predictions
        return whole and path.is_file()

    def keep(self, out: Path, result: Result, said: Predictions | None) -> None:
        """Write what `do` returned; the result last, as it tells that all is there."""
        if said is not None:
            write_predictions(said, self.path(out))
        write(result, self.path(out))


@dataclass(frozen=True)
class Batch:
    """Items of one plan and task with successive seeds, done as one."""

    items: tuple[Item, ...]

    @property
    def task(self) -> Task:
        """Return the task."""
        return self.items[0].task

    def do(
        self, parts: SplitTable, place: Place
    ) -> list[tuple[Result, Predictions | None]]:
        """Fit and score."""
        first = self.items[0]
        seeds = [item.seed for item in self.items]
        answers = run_seeds(first.task, parts, seeds, place, first.plan)
        keeps = first.keeps_predictions
        return [(result, said if keeps else None) for result, said in answers]


def batches_of(items: Iterable[Item], most: int) -> list[Batch]:
    """Join neighbours that can be done as one, so many at most."""
    groups: list[list[Item]] = []
    for item in items:
        joins = most > 1 and METHODS[item.plan.method].method.fits_as_one
        before = groups[-1][-1] if groups else None
        if (
            joins
            and before is not None
            and len(groups[-1]) < most
            and replace(before, seed=item.seed) == item
            and before.seed + 1 == item.seed
        ):
            groups[-1].append(item)
        else:
            groups.append([item])
    return [Batch(tuple(group)) for group in groups]


def items_of(
    tasks: Iterable[Task],
    n_seeds: int,
    n_few_seeds: int | None = None,
    n_why_seeds: int | None = None,
    plans: Sequence[Plan] = (DEFAULT_PLAN,),
    *,
    keep_predictions: bool = False,
) -> list[Item]:
    """Return the runs of tasks.

    A method is left out of tasks that it cannot predict, or that have no published
    configuration where one is asked for.

    Args:
        tasks: What to run on.
        n_seeds: Runs of each.
        n_few_seeds: Runs of the longest ones, if fewer.
        n_why_seeds: Runs of each split of the second benchmark, if others.
        plans: What to run.
        keep_predictions: Whether each run leaves its predictions too.
    """
    items = []
    for task in tasks:
        n = n_seeds
        if n_few_seeds is not None and task.label in FEW_SEEDS:
            n = min(n_seeds, n_few_seeds)
        if n_why_seeds is not None and task.benchmark == "why":
            n = n_why_seeds
        for plan in plans:
            if task.kind not in METHODS[plan.method].method.outcomes:
                continue
            if plan.config == "tuned" and not has_tuned(task, plan.method):
                continue
            items += [Item(task, seed, plan, keep_predictions) for seed in range(n)]
    return items


def run_all(
    items: Sequence[Item],
    folder: Path | None,
    out: Path,
    *,
    place: Place | None = None,
    team: Callable[[int], WorkerPool] | None = None,
    budget_seconds: float | None = None,
    together: int = 1,
) -> Summary:
    """Do all items that are not done yet, the longest first, and report progress.

    Only this process writes results, so ending the others leaves nothing behind.

    Args:
        items: What to do.
        folder: Where the tables are.
        out: Where results go.
        place: Where to compute, with how many workers.
        team: Makes a team of so many workers; by default processes on this machine.
        budget_seconds: When to end what still runs; None waits for all.
        together: Seeds of a method that are fitted as one, where it can.
    """
    place = place or Place()
    todo = [item for item in items if not item.is_done(out)]
    todo.sort(key=lambda item: -item.task.cost)  # stable: seeds of a task stay together
    check_files((item.task for item in todo), folder)
    waiting = deque(batches_of(todo, together))
    n_workers = min(place.workers, len(waiting))
    at_a_time = round(n_workers * len(todo) / max(1, len(waiting)))
    progress = Progress(todo, len(items) - len(todo), at_a_time)
    start, remaining = time.monotonic(), countdown(budget_seconds)
    if team is None:
        team = partial(ProcessPool, folder=folder, place=place)
    if n_workers == 0:
        return progress.close(0.0)
    with team(n_workers) as workers:
        while waiting or workers.n_busy:
            while waiting and workers.n_idle and remaining() != 0:
                workers.give(waiting.popleft())
            ended = workers.ended(remaining())
            if not ended:
                break
            for batch, answers in ended:
                assert isinstance(batch, Batch)
                if isinstance(answers, Failure):
                    for item in batch.items:
                        progress.report(item, answers)
                    continue
                for item, answer in zip(batch.items, answers, strict=True):
                    item.keep(out, *answer)
                    progress.report(item, answer[0])
    return progress.close(time.monotonic() - start)
