"""How diverse contexts are: the entropy of the average weights of candidates."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from reproduction.studies.units import Record, Unit, loader, make_method, score_of
from tabr.bench.parameters import Config, has_tuned
from tabr.bench.tasks.catalog import select
from tabr.bench.tasks.task import Task
from tabr.prediction.explanation import NeighborTable

TABLES = ("churn", "california", "house", "adult", "diamond", "otto")
OTHERS = ("black-friday", "covtype")
STEPS = ("step-1", "step-2")


def mean_entropy(table: NeighborTable) -> float:
    """Return the entropy, in nats, of the mean over rows of their weights.

    What a row keeps for itself goes to one candidate that is the same for all rows:
    rows that look at nobody else have nothing diverse about them.
    """
    is_neighbor = table.ids >= 0
    _, index = np.unique(table.ids[is_neighbor], return_inverse=True)
    shares = np.bincount(index, table.weights[is_neighbor]) / len(table.ids)
    kept = max(0.0, 1.0 - float(shares.sum()))
    shares = np.append(shares, kept)
    shares = shares[shares > 0]
    return float(-(shares * np.log(shares)).sum())


def entropy(
    tables: Sequence[str], folder: Path, seeds: Sequence[int], params: Record
) -> Iterator[Unit]:
    """Yield models of the steps before and after the paper's similarity.

    They have the published tuned parameters where there are any.
    """
    loaded = loader(folder)

    def run(task: Task, step: str, seed: int) -> Iterator[Record]:
        parts = loaded(task)
        config: Config = "tuned" if has_tuned(task, step) else "default"
        method = make_method(task, parts, seed, step, config, params)
        method.fit(parts.train, parts.val)
        table = method.estimator.neighbors(parts.test.X)
        yield {
            "config": config,
            "entropy": round(mean_entropy(table), 4),
            "uniform": round(math.log(len(parts.train.y)), 4),
            "on_itself": round(float(1 - table.weights.sum(1).mean()), 4),
            "test": round(score_of(task, parts.test, method), 6),
        }

    for task in select(tables):
        for step in STEPS:
            for seed in seeds:
                about = {"table": task.name, "model": step, "seed": seed}
                yield Unit(about, partial(run, task, step, seed))
