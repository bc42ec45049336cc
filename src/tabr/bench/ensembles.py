"""The paper's ensembles: seeds in three groups of five, predictions averaged."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from tabr.bench.results import (
    Plan,
    Predictions,
    Result,
    read,
    read_predictions,
    result_path,
    write,
)
from tabr.bench.tasks.task import SplitTable, Task, load

SIZE = 5  # members of an ensemble


def ensemble_path(out: Path, task: Task, group: int, plan: Plan) -> Path:
    """Return the file of an ensemble's result, whose `seed` is its group."""
    name = f"split-{task.split}-ensemble-{group}.json"
    return result_path(out, task, 0, plan).with_name(name)


def make_ensembles(
    pairs: Iterable[tuple[Task, Plan]], n_seeds: int, out: Path, folder: Path | None
) -> int:
    """Score what whole groups of seeds say together; return how many are new.

    Args:
        pairs: Which tasks and plans.
        n_seeds: Seeds of each; a last group that is not whole is left out.
        out: Where the results and predictions of single runs are.
        folder: Where the tables are.
    """
    loaded: tuple[Task, SplitTable] | None = None
    n_new = 0
    distinct = {(task, plan.name): plan for task, plan in pairs}
    for (task, _), plan in distinct.items():
        for group in range(n_seeds // SIZE):
            path = ensemble_path(out, task, group, plan)
            seeds = range(group * SIZE, (group + 1) * SIZE)
            singles = [result_path(out, task, seed, plan) for seed in seeds]
            whole = all(single.with_suffix(".npz").is_file() for single in singles)
            if path.is_file() or not whole:
                continue
            if loaded is None or loaded[0] != task:
                loaded = task, load(task, folder)
            write(_ensemble(task, loaded[1], group, singles), path)
            n_new += 1
    return n_new


def _ensemble(
    task: Task, parts: SplitTable, group: int, singles: Sequence[Path]
) -> Result:
    members = [read(single) for single in singles]
    said = [read_predictions(single) for single in singles]
    together = Predictions(
        np.mean([one.val for one in said], axis=0),
        np.mean([one.test for one in said], axis=0),
        said[0].classes,
    )
    val, test = together.scores(task, parts)
    sizes = [one.n_parameters for one in members]
    known = [size for size in sizes if size is not None]
    return dataclasses.replace(
        members[0],
        seed=group,
        test=test,
        val=val,
        seconds=round(sum(one.seconds for one in members), 3),
        best_epoch=None,
        n_parameters=sum(known) if len(known) == len(sizes) else None,
    )
