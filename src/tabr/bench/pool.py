"""Many runs at once: processes on this machine that share out the work."""

from __future__ import annotations

import multiprocessing
import signal
import sys
import time
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import torch

from tabr.bench.baselines import METHODS
from tabr.bench.configs import has_tuned
from tabr.bench.protocol import (
    DEFAULT_PLAN,
    Plan,
    Result,
    result_path,
    run_one,
    write,
)
from tabr.bench.tasks import Parts, Task, check_files, load

# The long ones, by label.
FEW_SEEDS = ("black-friday", "covtype", "microsoft", "weather-small", "weather-big")
_KEPT_TABLES = 2  # split tables that a process keeps
_PATIENCE = 5.0  # seconds that a process may take to end


@dataclass(frozen=True)
class Item:
    """One run to do."""

    task: Task
    seed: int
    plan: Plan = DEFAULT_PLAN

    def __str__(self) -> str:
        about = f"{self.task.label} split {self.task.split} seed {self.seed}"
        return about if self.plan == DEFAULT_PLAN else f"{self.plan.name} {about}"


@dataclass
class Summary:
    """How the work went, in numbers of items."""

    n_before: int  # were done before
    n_done: int = 0
    n_failed: int = 0
    n_left: int = 0


def items_of(
    tasks: Iterable[Task],
    n_seeds: int,
    n_few_seeds: int | None = None,
    n_why_seeds: int | None = None,
    plans: Sequence[Plan] = (DEFAULT_PLAN,),
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
            items += [Item(task, seed, plan) for seed in range(n)]
    return items


def run_all(
    items: Sequence[Item],
    folder: Path,
    out: Path,
    *,
    workers: int = 1,
    device: str | None = None,
    budget_seconds: float | None = None,
) -> Summary:
    """Do all items that are not done yet, the longest first, and report progress.

    Only this process writes results, so ending the others leaves nothing behind.

    Args:
        items: What to do.
        folder: Where the tables are.
        out: Where results go.
        workers: Processes.
        device: Where they compute; None is a GPU if there is one.
        budget_seconds: When to end what still runs; None waits for all.
    """
    todo = [i for i in items if not _path(out, i).is_file()]
    todo.sort(key=lambda item: -item.task.cost)  # stable: seeds of a task stay together
    check_files((item.task for item in todo), folder)
    progress = _Progress(todo, n_before=len(items) - len(todo))
    waiting = deque(todo)
    start = time.monotonic()

    def remaining() -> float | None:
        if budget_seconds is None:
            return None
        return max(0.0, start + budget_seconds - time.monotonic())

    n_workers = min(workers, len(waiting))
    settings = (folder, device, n_workers)
    team = [_Worker(settings) for _ in range(n_workers)]
    try:
        for worker in team:
            worker.give(waiting.popleft())
        while busy := {worker.pipe: worker for worker in team if worker.item}:
            ready = wait(list(busy), timeout=remaining())
            if not ready:
                break
            for pipe in ready:
                assert isinstance(pipe, Connection)
                worker = busy[pipe]
                item, answer = worker.answer()
                if isinstance(answer, Result):
                    write(answer, _path(out, item))
                progress.report(item, answer)
                if not waiting or remaining() == 0:
                    continue
                if isinstance(answer, str):  # a broken GPU context would break the next
                    worker.end()
                    worker.join()
                    team[team.index(worker)] = worker = _Worker(settings)
                worker.give(waiting.popleft())
    finally:
        for worker in team:
            worker.end()
        for worker in team:
            worker.join()
    return progress.close(time.monotonic() - start)


def _path(out: Path, item: Item) -> Path:
    return result_path(out, item.task, item.seed, item.plan)


class _Worker:
    """A process that does one item at a time, seen from outside."""

    def __init__(self, settings: tuple[Any, ...]) -> None:
        context = multiprocessing.get_context("spawn")  # CUDA does not survive a fork
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(
            target=_work, args=(theirs, *settings), daemon=True
        )
        self.process.start()
        theirs.close()
        self.item: Item | None = None

    def give(self, item: Item) -> None:
        """Start an item."""
        self.item = item
        with suppress(BrokenPipeError):  # it has died; `answer` will tell
            self.pipe.send(item)

    def answer(self) -> tuple[Item, Result | str]:
        """Return the item that has ended, and its result or what went wrong."""
        item, self.item = self.item, None
        assert item is not None
        answer: Result | str
        try:
            answer = self.pipe.recv()
        except (EOFError, ConnectionResetError):
            self.process.join()
            answer = f"the process ended with status {self.process.exitcode}"
        return item, answer

    def end(self) -> None:
        """Tell the process to end, at once if it is busy; do not wait."""
        if self.item is not None:
            self.process.terminate()
        self.pipe.close()

    def join(self) -> None:
        """Wait for the end, and no longer than a moment."""
        self.process.join(_PATIENCE)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()


def _work(
    pipe: Connection[Any, Any],
    folder: Path,
    device: str | None,
    workers: int,
) -> None:
    """Do items as they come, until nobody is there to give them."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a fit would stop early and count
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    if workers > 1:
        torch.set_num_threads(1)

    @lru_cache(maxsize=_KEPT_TABLES)
    def loaded(task: Task) -> Parts:
        return load(task, folder)

    while True:
        try:
            item = pipe.recv()
        except EOFError:
            return
        answer: Result | str
        try:
            parts = loaded(item.task)
            answer = run_one(
                item.task, parts, item.seed, device, plan=item.plan, workers=workers
            )
        except Exception as error:  # the other items can still be done
            answer = " ".join(f"{type(error).__name__}: {error}".split())
        try:
            pipe.send(answer)
        except BrokenPipeError:
            return


@dataclass
class _Progress:
    """Counts what is done and prints a line for each item."""

    left: list[Item]
    n_before: int
    start: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self.summary = Summary(self.n_before, n_left=len(self.left))
        self.total = self.todo = sum(item.task.cost for item in self.left)
        _say(f"{len(self.left)} to do, {self.n_before} done before")

    def report(self, item: Item, answer: Result | str) -> None:
        """Take note of an item that has ended."""
        self.summary.n_left -= 1
        self.todo -= item.task.cost
        pace = (time.monotonic() - self.start) / max(self.total - self.todo, 1e-9)
        left = f"{self.summary.n_left} left"
        if self.summary.n_left:
            left += f", about {pace * self.todo:.0f} s at this pace"
        if isinstance(answer, str):
            self.summary.n_failed += 1
            _say(f"{item}: FAILED, {answer}; {left}")
            return
        self.summary.n_done += 1
        known = answer.best_epoch is not None
        best = f" best epoch {answer.best_epoch}" if known else " no epochs"
        _say(
            f"{item}: {item.task.metric} {answer.test:.6g} (val {answer.val:.6g}),"
            f"{best}, {answer.seconds:.1f} s; {left}"
        )

    def close(self, seconds: float) -> Summary:
        """Print and return the summary."""
        s = self.summary
        _say(
            f"{s.n_done} done, {s.n_failed} failed, {s.n_left} left,"
            f" {s.n_before} done before, in {seconds:.0f} s"
        )
        return s


def _say(line: str) -> None:
    print(line, flush=True)
