"""The command `tune`: search for parameters, and say what was found."""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tabr.bench.methods import METHODS
from tabr.bench.methods.tabr import TabRMethod
from tabr.bench.parameters import check_method
from tabr.bench.running import (
    add_table,
    add_workers,
    check_libraries,
    end_workers_too,
    folder_of,
    place_of,
    positive,
    runnable,
    tasks_of,
    team_of,
)
from tabr.bench.tasks.task import Task, check_files
from tabr.bench.tuning import Search, choice_path, tune
from tabr.bench.workers import countdown
from tabr.errors import DataError
from tabr.optional import require


def add_tune(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "tune", help="search for parameters by the validation score"
    )
    parser.set_defaults(command=_tune)
    add_table(parser)
    parser.add_argument("--out", type=Path, default=Path("results"))
    parser.add_argument(
        "--methods", default="tabr-s", help="separated by commas (default: tabr-s)"
    )
    parser.add_argument(
        "--trials", type=positive, help="trials in all (default: as in the paper)"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--prune", action="store_true", help="end trials early that fall behind"
    )
    parser.add_argument(
        "--params", type=json.loads, help="JSON of parameters that stay as they are"
    )
    parser.add_argument(
        "--storage",
        help="database of the trials, such as postgresql+psycopg://user@host/name, for"
        " many machines (default: SQLite in the results folder)",
    )
    add_workers(parser)


def _tune(options: argparse.Namespace) -> int:
    require("optuna", extra="tune")
    tasks, folder = tasks_of(options), folder_of(options)
    tasks = runnable(tasks, options, folder)
    names = list(dict.fromkeys(options.methods.split(",")))
    for name in names:
        check_method(name)
        if METHODS[name].method.needs_no_tuning:
            raise DataError(
                f"a method must have parameters to tune, however {name} has none or"
                " chooses them by itself: leave it out"
            )
    check_libraries(names)
    check_files(tasks, folder)
    storage = options.storage
    if storage is None:
        options.out.mkdir(parents=True, exist_ok=True)
        storage = f"sqlite:///{(options.out / 'tuning.db').resolve()}"
    searches = [
        Search(
            task,
            name,
            storage,
            options.trials,
            options.seed,
            options.prune,
            tuple((options.params or {}).items()),
        )
        for task in tasks
        for name in names
        if task.kind in METHODS[name].method.outcomes
    ]
    end_workers_too()
    place = place_of(options)
    most = max((search.n_wanted for search in searches), default=1)
    place = dataclasses.replace(place, workers=min(place.workers, most))
    remaining = countdown(options.budget)
    with team_of(options, folder, place)(place.workers) as team:
        n_open = tune(searches, team, options.out, remaining)
    for search in searches:
        path = choice_path(options.out, search.task, search.method)
        if path.is_file():
            print("\n" + found_text(json.loads(path.read_text("utf-8")), search.task))
            print(f"kept in {path}")
    return 1 if n_open else 0


def found_text(choice: Mapping[str, Any], task: Task) -> str:
    """Write what a search has found, and how to go on with it."""
    n, metric, name = choice["trials"], choice["metric"], choice["method"]
    ended = f" ({choice['pruned']} more ended early)" if choice["pruned"] else ""
    lines = [
        f"{name} on {task.label} split {task.split}: validation {metric}"
        f" {choice['val']:.6g}, the best of {n} trials{ended}, with"
    ]
    if issubclass(METHODS[name].method, TabRMethod):
        lines.append("  " + constructor(choice["params"], name, task))
    else:
        lines += [f"  {key} = {value!r}" for key, value in choice["params"].items()]
    lines.append(f"test rows have not been looked at: run it with --methods {name}")
    lines[-1] += " --config retuned"
    return "\n".join(lines)


def constructor(params: Mapping[str, Any], method: str, task: Task) -> str:
    """Write the call that makes the estimator of a choice.

    >>> from tabr.bench.tasks.catalog import select
    >>> constructor({"width": 96}, "tabr-s", select(["adult"])[0])
    "TabRClassifier(mode='paper', width=96)"
    """
    every = {**METHODS[method].fixed, **params}
    kind = every.pop("embedding", None)
    names = {
        "embedding_width": "width",
        "n_frequencies": "n_frequencies",
        "frequency_scale": "frequency_scale",
    }
    numbers = {new: every.pop(old) for old, new in names.items() if old in every}
    cells = [f"{name}={value!r}" for name, value in every.items()]
    if kind is not None:
        inner = ", ".join(f"{name}={value!r}" for name, value in numbers.items())
        cells.append(f"embedding=EmbeddingConfig({kind!r}{', ' * bool(inner)}{inner})")
    estimator = "TabRRegressor" if task.kind == "regression" else "TabRClassifier"
    return f"{estimator}({', '.join(['mode=' + repr('paper'), *cells])})"
