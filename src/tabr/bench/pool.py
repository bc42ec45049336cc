"""Many runs: what is to do, done by a team, each result kept as soon as it is there."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tabr.bench.baselines import METHODS
from tabr.bench.configs import has_tuned
from tabr.bench.progress import Progress, Summary
from tabr.bench.protocol import (
    DEFAULT_PLAN,
    Plan,
    Predictions,
    Result,
    result_path,
    run_one,
    write,
    write_predictions,
)
from tabr.bench.tasks import Parts, Task, check_files
from tabr.bench.team import Failure, Place, ProcessTeam, Team, countdown

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

    def do(self, parts: Parts, place: Place) -> tuple[Result, Predictions | None]:
        """Fit and score."""
        result, said = run_one(self.task, parts, self.seed, place, plan=self.plan)
        return result, said if self.keeps_predictions else None

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
    team: Callable[[int], Team] | None = None,
    budget_seconds: float | None = None,
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
    """
    place = place or Place()
    todo = [item for item in items if not item.is_done(out)]
    todo.sort(key=lambda item: -item.task.cost)  # stable: seeds of a task stay together
    check_files((item.task for item in todo), folder)
    waiting = deque(todo)
    n_workers = min(place.workers, len(waiting))
    progress = Progress(todo, len(items) - len(todo), n_workers)
    start, remaining = time.monotonic(), countdown(budget_seconds)
    if team is None:
        team = partial(ProcessTeam, folder=folder, place=place)
    if n_workers == 0:
        return progress.close(0.0)
    with team(n_workers) as workers:
        while waiting or workers.n_busy:
            while waiting and workers.n_idle and remaining() != 0:
                workers.give(waiting.popleft())
            ended = workers.ended(remaining())
            if not ended:
                break
            for item, answer in ended:
                assert isinstance(item, Item)
                if not isinstance(answer, Failure):
                    item.keep(out, *answer)
                    answer = answer[0]
                progress.report(item, answer)
    return progress.close(time.monotonic() - start)
