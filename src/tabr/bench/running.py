"""The command `run`: fit and score methods on tasks, and say how they stand."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tabr.bench.ensembles import make_ensembles
from tabr.bench.methods import METHODS
from tabr.bench.parameters import CONFIGS, Config, check_method
from tabr.bench.ranks import standings, to_text
from tabr.bench.ray_workers import LOCAL, RayPool
from tabr.bench.results import Plan
from tabr.bench.runs import Item, items_of, run_all
from tabr.bench.tasks.catalog import BENCHMARKS, select
from tabr.bench.tasks.task import Task, UserTable, check_files, data_folder, present
from tabr.bench.tasks.user_table import tasks_of_table
from tabr.bench.tuning import read_choice
from tabr.bench.workers import Place, ProcessPool, WorkerPool
from tabr.device.devices import choose_device
from tabr.errors import DataError, MissingLibrary
from tabr.optional import require

# What a user's table is tried with: retrieval, trees, a network, and plain neighbours.
FIRST_CHOICE = ("tabr-s", "tabr", "lightgbm", "catboost", "xgboost", "mlp", "knn")


def positive(text: str) -> int:
    """Read a whole number from one on."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be 1 or more, however: {value}")
    return value


def add_table(parser: argparse.ArgumentParser) -> None:
    """Add the options that name tasks: of the benchmarks, or a user's table."""
    parser.add_argument(
        "table", nargs="?", type=Path, help="a CSV, Parquet or Feather file of yours"
    )
    parser.add_argument("--target", help="the column of it to predict")
    parser.add_argument(
        "--kind",
        choices=("regression", "classification"),
        help="what it is (default: follows from its values)",
    )
    parser.add_argument(
        "--ignore", action="append", default=[], help="a column to leave out; repeat it"
    )
    parser.add_argument(
        "--splits", type=positive, default=1, help="random splits of your table"
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--tasks", help="tasks by name, as in california,why/wine")
    which.add_argument("--benchmark", choices=[*BENCHMARKS, "all"], default="default")
    parser.add_argument("--data", help="folder of the tables (default: TABR_DATA)")


def add_workers(parser: argparse.ArgumentParser) -> None:
    """Add the options that say who does the work."""
    parser.add_argument(
        "--workers",
        type=positive,
        help="runs at a time (default: one for each core, on a GPU one)",
    )
    parser.add_argument(
        "--threads",
        type=positive,
        default=1,
        help="threads of a run (default: one, so that results do not depend on it)",
    )
    parser.add_argument("--device", help="cpu or cuda (default: cuda if there is one)")
    parser.add_argument("--budget", type=float, help="seconds; then runs are ended")
    parser.add_argument(
        "--ray",
        nargs="?",
        const=LOCAL,
        metavar="ADDRESS",
        help="workers on a Ray cluster; without an address on a new local one",
    )
    parser.add_argument(
        "--gpus", type=float, default=0.0, help="GPUs that Ray gives to a worker"
    )


def add_run(commands: Any) -> None:
    """Add the command."""
    run = commands.add_parser("run", help="fit and score; what is done is not repeated")
    run.set_defaults(command=_run)
    add_table(run)
    run.add_argument("--out", type=Path, default=Path("results"))
    run.add_argument("--seeds", type=positive, default=15, help="seeds 0, 1, ...")
    run.add_argument("--few-seeds", type=positive, help="seeds of the longest tasks")
    run.add_argument(
        "--why-seeds", type=positive, help="seeds of the second benchmark's splits"
    )
    run.add_argument(
        "--methods",
        help="separated by commas, or all (default: tabr-s; for your table"
        f" {','.join(FIRST_CHOICE)})",
    )
    run.add_argument(
        "--config",
        choices=[name for name in CONFIGS if name != "trial"],
        default="default",
        help="a method's own parameters, those that the paper's authors tuned, or"
        " those that `tune` found here",
    )
    run.add_argument(
        "--params", type=json.loads, help="JSON of parameters; makes the run a trial"
    )
    run.add_argument(
        "--ensembles",
        action="store_true",
        help="keep predictions, and score five seeds together",
    )
    run.add_argument(
        "--together",
        type=positive,
        default=1,
        help="seeds that are fitted as one, where a method can: faster on a GPU, equal"
        " up to rounding, and their time is that of all",
    )
    add_workers(run)


def tasks_of(options: argparse.Namespace) -> list[Task]:
    """Return the tasks that options name."""
    if options.table is None:
        labels = options.tasks.split(",") if options.tasks else None
        return select(labels, options.benchmark)
    if options.tasks:
        raise DataError(
            "a command takes a table or tasks by name, however both came: leave out"
            " one of them"
        )
    if options.target is None:
        raise DataError(
            "a table needs a column to predict, however none was named: add --target"
        )
    if not options.table.is_file():
        raise DataError(f"a table must be a file, however {options.table} is none")
    table = UserTable(options.table, options.target, tuple(options.ignore))
    return tasks_of_table(table, kind=options.kind, n_splits=options.splits)


def runnable(
    tasks: list[Task], options: argparse.Namespace, folder: Path | None
) -> list[Task]:
    """Leave out, and say so, what a folder lacks of a whole benchmark.

    A task that was asked for by name is not left out; `check_files` will refuse it.
    """
    if options.table is not None or options.tasks or folder is None:
        return tasks
    there, absent = present(tasks, folder)
    if not there:
        check_files(absent, folder)
    if absent:
        labels = dict.fromkeys(task.label for task in absent)
        print(f"left out, as their tables are not there: {', '.join(labels)}")
    return there


def folder_of(options: argparse.Namespace) -> Path | None:
    """Return where the tables of the benchmarks are, if they are needed."""
    if options.table is not None:
        return None
    otherwise = ", or name a table of yours and its --target"
    return data_folder(options.data, otherwise=otherwise)


def place_of(options: argparse.Namespace) -> Place:
    """Return where to compute, and with how many workers."""
    workers = options.workers
    if workers is None:
        on_cpu = choose_device(options.device).type == "cpu"
        workers = max(1, (os.cpu_count() or 1) // options.threads) if on_cpu else 1
    return Place(options.device, workers, options.threads)


def team_of(
    options: argparse.Namespace, folder: Path | None, place: Place
) -> Callable[[int], WorkerPool]:
    """Return what makes the team that options ask for, of so many workers."""
    if options.ray is None:
        return partial(ProcessPool, folder=folder, place=place)
    more = {"address": options.ray, "gpus": options.gpus}
    return partial(RayPool, folder=folder, place=place, **more)


def _run(options: argparse.Namespace) -> int:
    tasks, folder = tasks_of(options), folder_of(options)
    names = _names(options)
    for name in names:
        check_method(name)
    tasks = runnable(tasks, options, folder)
    config: Config = "trial" if options.params else options.config
    items: list[Item] = []
    for task in tasks:
        plans = [_plan(name, config, task, options) for name in names]
        items += items_of(
            [task],
            options.seeds,
            options.few_seeds,
            options.why_seeds,
            plans,
            keep_predictions=options.ensembles,
        )
    ready = {item.plan.method for item in items}
    idle = [name for name in names if name not in ready]
    if idle and options.methods != "all":
        raise DataError(
            f"a method must have something to run, however {', '.join(idle)} cannot"
            f" predict these tasks, or has no {config} parameters for them: choose"
            " other --tasks or --config default"
        )
    check_libraries(i.plan.method for i in items if not i.is_done(options.out))
    end_workers_too()
    place = place_of(options)
    summary = run_all(
        items,
        folder,
        options.out,
        place=place,
        team=team_of(options, folder, place),
        budget_seconds=options.budget,
        together=options.together,
    )
    if options.ensembles:
        pairs = [(item.task, item.plan) for item in items]
        n_new = make_ensembles(pairs, options.seeds, options.out, folder)
        print(f"{n_new} new ensembles of five seeds")
    if options.table is not None and summary.n_done + summary.n_before:
        shown = list(dict.fromkeys(item.plan.name for item in items))
        print("\n" + to_text(standings(options.out, tasks[0], shown), tasks[0]))
    return 1 if summary.n_failed else 0


def _plan(name: str, config: Config, task: Task, options: argparse.Namespace) -> Plan:
    if config == "retuned":
        return Plan(name, config, read_choice(options.out, task, name))
    return Plan(name, config, options.params)


def _names(options: argparse.Namespace) -> Sequence[str]:
    if options.methods is None:
        return FIRST_CHOICE if options.table is not None else ("tabr-s",)
    if options.methods == "all":
        return list(METHODS)
    return list(dict.fromkeys(options.methods.split(",")))


def check_libraries(names: Iterable[str]) -> None:
    """Refuse, before any work, methods whose libraries are not installed."""
    absent: dict[str, list[str]] = {}
    for name in dict.fromkeys(names):
        for library in METHODS[name].method.libraries:
            try:
                require(library, extra=METHODS[name].method.extra)
            except MissingLibrary as error:
                absent.setdefault(str(error), []).append(name)
    if absent:
        why = "; ".join(f"{', '.join(n)}: {error}" for error, n in absent.items())
        raise DataError(
            f"methods need their libraries, however some are not there ({why});"
            " install them or leave these methods out"
        )


def end_workers_too() -> None:
    """Leave in order when asked to end, so that the workers are ended too."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
