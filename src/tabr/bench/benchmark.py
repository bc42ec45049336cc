"""A benchmark: methods on tasks, run by workers; each result is kept as it comes."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from tabr.bench.ensembles import make_ensembles
from tabr.bench.methods import METHODS
from tabr.bench.parameters import Config, check_libraries, check_methods
from tabr.bench.ranks import read_results, standings
from tabr.bench.results import Plan, write
from tabr.bench.runs import (
    Log,
    Progress,
    Run,
    SeedBatch,
    SeedCounts,
    Summary,
    batches_of,
    runs_of,
)
from tabr.bench.searches import read_best
from tabr.bench.tasks.selection import TaskSelection
from tabr.bench.tasks.task import Task, check_files
from tabr.bench.trial_ensembles import score_ensembles
from tabr.bench.workers import Failure, Resources, countdown, open_pool
from tabr.errors import DataError

# Methods for a user's table: retrieval, trees, a network, and plain neighbours.
FIRST_METHODS = (
    "tabr-d",
    "tabr-s",
    "lightgbm",
    "catboost",
    "xgboost",
    "mlp",
    "knn",
)


@dataclass(frozen=True)
class Benchmark:
    """Methods with their parameters, tasks and seeds.

    Attributes:
        selection: The tasks.
        methods: Names of methods, or "all"; None takes several for a user's table, and
            TabR-S for the paper's.
        config: Where parameters come from.
        params: Parameters to try, which make the config "trial".
        seeds: Runs of each method and task.
        ensembles: Whether predictions are kept and averaged over five seeds.
        scoring: The measure that methods stop by and are ranked by; None is the
            paper's, and of some methods their own.
    """

    selection: TaskSelection
    methods: Sequence[str] | None = None
    config: Config = "default"
    params: Mapping[str, Any] | None = None
    seeds: SeedCounts = field(default_factory=SeedCounts)
    ensembles: bool = False
    scoring: str | None = None

    @property
    def method_names(self) -> list[str]:
        """The names of the methods, each once."""
        if self.methods is None:
            return list(FIRST_METHODS) if self.selection.table else ["tabr-s"]
        return list(METHODS if "all" in self.methods else dict.fromkeys(self.methods))

    @property
    def has_trial_ensembles(self) -> bool:
        """Whether its runs are ensembles of trials, which are not fitted again."""
        return self.config == "retuned-ensemble" and not self.params

    def runs(self, out: Path, log: Log = print) -> list[Run]:
        """Return all runs; a method without any is refused if it was named."""
        names = self.method_names
        check_methods(names)
        # An ensemble of trials is one, whatever its members' seed.
        seeds = SeedCounts(1) if self.has_trial_ensembles else self.seeds
        runs = [
            run
            for task in self.selection.available_tasks(log)
            for run in runs_of(
                [task],
                seeds,
                [self._plan(name, task, out) for name in names],
                keep_predictions=self.ensembles,
            )
        ]
        unused = sorted(set(names) - {run.plan.method for run in runs}, key=names.index)
        if unused and "all" not in (self.methods or ()):
            config = "trial" if self.params else self.config
            raise DataError(
                f"a method must have something to run, however {', '.join(unused)}"
                f" cannot predict these tasks, or has no {config} parameters for them:"
                " choose other --tasks or --config default"
            )
        return runs

    def _plan(self, method: str, task: Task, out: Path) -> Plan:
        scoring = self.scoring and task.measure(self.scoring).name
        if self.params:
            return Plan(method, "trial", self.params, scoring)
        if self.config == "retuned":
            best = read_best(out, task, method, scoring)
            return Plan(method, "retuned", best["params"], scoring)
        return Plan(method, self.config, scoring=scoring)


def run_benchmark(
    benchmark: Benchmark,
    out: Path,
    resources: Resources,
    *,
    budget_seconds: float | None = None,
    seeds_per_fit: int = 1,
    log: Log = print,
) -> tuple[Summary, list[tuple[Task, pd.DataFrame]]]:
    """Do the runs of a benchmark; return their counts, and standings of each table.

    Args:
        benchmark: Methods, tasks and seeds.
        out: The folder of results.
        resources: The hardware.
        budget_seconds: When to end what still runs; None waits for all.
        seeds_per_fit: Seeds of a method that are fitted as one, where it can.
        log: Takes messages.
    """
    runs, folder = benchmark.runs(out, log), benchmark.selection.folder
    if benchmark.has_trial_ensembles:
        summary = score_ensembles(runs, folder, out, log)
    else:
        check_libraries(run.plan.method for run in runs if not run.is_done(out))
        summary = run_all(
            runs,
            folder,
            out,
            resources,
            budget_seconds=budget_seconds,
            seeds_per_fit=seeds_per_fit,
            log=log,
        )
        if benchmark.ensembles:
            pairs = [(run.task, run.plan) for run in runs]
            n_new = make_ensembles(pairs, benchmark.seeds.n, out, folder)
            log(f"{n_new} new ensembles of five seeds")
    plans = {run.plan.name for run in runs}
    tasks = {run.task.label: run.task for run in runs if run.is_done(out)}
    return summary, [
        (task, standings(read_results(out, task, plans), task, benchmark.scoring))
        for task in tasks.values()
    ]


def run_all(
    runs: Sequence[Run],
    folder: Path | None,
    out: Path,
    resources: Resources,
    *,
    budget_seconds: float | None = None,
    seeds_per_fit: int = 1,
    log: Log = print,
) -> Summary:
    """Do the runs that are not done yet, the longest first, and log the progress.

    Only this process writes results, so ending the others leaves nothing behind. The
    arguments are those of `run_benchmark`; `folder` is that of the tables.
    """
    todo = [run for run in runs if not run.is_done(out)]
    todo.sort(key=lambda run: -run.task.cost)  # stable: seeds of a task stay adjacent
    check_files((run.task for run in todo), folder)
    waiting = deque(batches_of(todo, seeds_per_fit))
    n_workers = min(resources.workers, len(waiting))
    runs_at_a_time = round(n_workers * len(todo) / max(1, len(waiting)))
    progress = Progress(todo, len(runs) - len(todo), runs_at_a_time, log)
    start, seconds_left = time.monotonic(), countdown(budget_seconds)
    if n_workers == 0:
        return progress.close(0.0)
    with open_pool(n_workers, folder, resources) as pool:
        while waiting or pool.n_busy:
            while waiting and pool.n_idle and seconds_left() != 0:
                pool.submit(waiting.popleft())
            finished = pool.finished(seconds_left())
            if not finished:
                break
            for batch, outcome in finished:
                assert isinstance(batch, SeedBatch)
                _keep(batch, outcome, out, progress)
    return progress.close(time.monotonic() - start)


def _keep(batch: SeedBatch, outcome: Any, out: Path, progress: Progress) -> None:
    """Write the results of a batch, or count its runs as failed."""
    is_failure = isinstance(outcome, Failure)
    pairs = [(outcome, None)] * len(batch.runs) if is_failure else outcome
    for run, (result, predictions) in zip(batch.runs, pairs, strict=True):
        if not is_failure:
            write(result, run.path(out), predictions)
        progress.add(run, result)
