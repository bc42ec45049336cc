"""Runs of the default preset with one lever out at a time.

A lever is what it has and TabR-S has not; the list is read from the presets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import pandas as pd

from reproduction.presets.boards import halves
from reproduction.presets.levers import COLUMNS, FILE, NONE, read_levers
from tabr.bench.protocol import run_seeds
from tabr.bench.results import Plan, current_commit
from tabr.bench.tasks.catalog import select
from tabr.bench.tasks.task import SplitTable, Task, load
from tabr.bench.workers import Resources
from tabr.config import PRESETS
from tabr.errors import DataError
from tabr.tables.files import write_bytes

# The preset's values that depend on rows or target have a parameter of another name.
BATCHES, COLUMNS_LEFT_OUT, STOPPING = "batch_size", "column_dropout", "scoring"
_STOPPED_BY = "accuracy"  # in TabR-S
Params = Mapping[str, Any]


def levers() -> dict[str, Params]:
    """Return what takes each lever out of the default, by its name; first nothing.

    >>> levers()["scale_layer"]
    {'scale_layer': False}
    """
    paper, default = (PRESETS[name].parameters for name in ("paper", "default"))
    out = {
        name: {name: value} for name, value in paper.items() if value != default[name]
    }
    out["weight_average"] = {"weight_average": 0.0}  # none: None is the preset's
    dropped = {COLUMNS_LEFT_OUT: {COLUMNS_LEFT_OUT: 0.0}}
    return {NONE: {}, **out, **dropped, BATCHES: {}, STOPPING: {}}


def run_levers(
    folder: Path,
    results: Path,
    seeds: Sequence[int],
    device: str | None = None,
    tables: Sequence[str] | None = None,
    chosen: Iterable[str] | None = None,
    params: Params | None = None,
    say: Callable[[str], None] = print,
) -> Path:
    """Run what is missing in the file of levers, a line at a time; return its path.

    Args:
        folder: Where the tables are.
        results: Where the file is.
        seeds: Seeds of the runs of a line; they are fitted as one.
        device: Where to compute; None is a GPU if there is one.
        tables: Sets whose first split is run; None is the half to choose on.
        chosen: Names of levers; None is all. The default itself is always run.
        params: Others for all runs, for a trial.
        say: Takes each line that was run.
    """
    path, all_levers = results / FILE, levers()
    names = [NONE, *(all_levers if chosen is None else chosen)]
    unknown = [name for name in names if name not in all_levers]
    if unknown:
        raise DataError(
            f"a lever is one of {', '.join(all_levers)}; however, these came:"
            f" {', '.join(unknown)}: choose --levers among the former"
        )
    before = read_levers(results)
    lines: list[Any] = [] if before is None else before.to_dict("records")
    done = {(line["table"], line["lever"]) for line in lines}
    for label in halves().chosen_on if tables is None else tables:
        task, *_ = select([label])  # the first split
        open_names = [n for n in dict.fromkeys(names) if (label, n) not in done]
        if task.kind == "regression" and STOPPING in open_names:
            open_names.remove(STOPPING)  # numbers are stopped by the RMSE in any case
        parts = load(task, folder) if open_names else None
        for name in open_names:
            assert parts is not None
            n_rows, of_classes = len(parts.train.y), task.kind != "regression"
            rate = PRESETS["default"].column_dropout(n_rows, of_classes=of_classes)
            if name == COLUMNS_LEFT_OUT and rate == 0:
                continue  # it is no lever here
            line = _line(task, parts, name, seeds, device, params or {})
            lines.append(line)
            text = pd.DataFrame(lines, columns=list(COLUMNS)).to_csv(index=False)
            write_bytes(path, text.encode())
            say(" ".join(f"{key}={value}" for key, value in line.items()))
    return path


def _line(
    task: Task,
    parts: SplitTable,
    name: str,
    seeds: Sequence[int],
    device: str | None,
    others: Params,
) -> dict[str, Any]:
    params = {**others, **levers()[name]}
    if name == BATCHES:
        params[BATCHES] = PRESETS["paper"].batch_size(len(parts.train.y))
    scoring = _STOPPED_BY if name == STOPPING else None
    plan = Plan("tabr-d", "trial", params, scoring)
    runs = run_seeds(task, parts, seeds, Resources(device), plan)
    metric = "rmse" if task.kind == "regression" else "log-loss"
    scores = [(result.scores or {})["test"][metric] for result, _ in runs]
    values = task.label, name, fmean(scores), metric, len(runs), current_commit() or ""
    return dict(zip(COLUMNS, values, strict=True))
