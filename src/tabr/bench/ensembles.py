"""The paper's ensembles: seeds in three groups of five, predictions averaged."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from functools import lru_cache, partial
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
    """Score the mean prediction of each whole group of seeds; return how many are new.

    The results and predictions of single runs are in `out`, the tables in `folder`.
    """
    load_cached = lru_cache(maxsize=1)(partial(load, folder=folder))
    n_new = 0
    plans = {(task, plan.name): plan for task, plan in pairs}
    for (task, _), plan in plans.items():
        for group in range(n_seeds // SIZE):
            path = ensemble_path(out, task, group, plan)
            seeds = range(group * SIZE, (group + 1) * SIZE)
            singles = [result_path(out, task, seed, plan) for seed in seeds]
            is_whole = all(single.with_suffix(".npz").is_file() for single in singles)
            if path.is_file() or not is_whole:
                continue
            write(_ensemble(task, load_cached(task), group, singles), path)
            n_new += 1
    return n_new


def _ensemble(
    task: Task, parts: SplitTable, group: int, singles: Sequence[Path]
) -> Result:
    results = [read(single) for single in singles]
    predictions = [read_predictions(single) for single in singles]
    mean = Predictions(
        np.mean([p.val for p in predictions], axis=0),
        np.mean([p.test for p in predictions], axis=0),
        predictions[0].classes,
    )
    val, test = mean.scores(task, parts)
    sizes = [r.n_parameters for r in results if r.n_parameters is not None]
    return dataclasses.replace(
        results[0],
        seed=group,
        test=test,
        val=val,
        seconds=round(sum(r.seconds for r in results), 3),
        best_epoch=None,
        n_parameters=sum(sizes) if len(sizes) == len(results) else None,
        scores=mean.all_scores(task, parts),
    )
