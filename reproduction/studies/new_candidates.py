"""Train on a part of the rows, then retrieve from more of them without training."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from reproduction.studies.through_time import by_time
from reproduction.studies.units import Record, Unit, estimator_for, plain_score
from tabr.bench.tasks.catalog import select
from tabr.bench.tasks.task import load

Labelled = tuple[pd.DataFrame, NDArray[Any]]

TABLES = ("covtype", "nycflights13")
SHARES = (0.1, 0.2, 0.4, 0.6, 0.8, 1.0)  # of the training rows that are candidates


def new_candidates(
    tables: Sequence[str], folder: Path, seeds: Sequence[int], params: Record
) -> Iterator[Unit]:
    """Yield models of a tenth of the rows, to which the rest is added."""
    read = lru_cache(maxsize=1)(partial(_read, folder))

    def run(name: str, seed: int) -> Iterator[Record]:
        return grow(*read(name), seed, params)

    for name in tables:
        for seed in seeds:
            yield Unit({"table": name, "seed": seed}, partial(run, name, seed))


def _read(folder: Path, name: str) -> tuple[str, Labelled, Labelled, Labelled]:
    """Return what is predicted, and rows to train, to stop by and to test."""
    if name == "nycflights13":
        frame = pd.read_parquet(folder / f"{name}.parquet")
        train, val, test = by_time(frame, "time_hour")
        return "regression", train, val, test
    (task,) = select([name])
    parts = load(task, folder)
    train, val, test = ((p.X, p.y) for p in (parts.train, parts.val, parts.test))
    return task.kind, train, val, test


def grow(
    kind: str, train: Labelled, val: Labelled, test: Labelled, seed: int, params: Record
) -> Iterator[Record]:
    """Fit on the smallest share of the rows and add those of the next, one by one."""
    X, y = train
    order = np.random.RandomState(seed).permutation(len(y))
    bounds = [round(share * len(y)) for share in SHARES]
    first = order[: bounds[0]]
    model = estimator_for(kind)(**params, random_state=seed)
    start = time.perf_counter()
    model.fit(X.iloc[first], y[first], eval_set=val)
    seconds = time.perf_counter() - start
    for k, share in enumerate(SHARES):
        added = 0.0
        if k > 0:
            more = order[bounds[k - 1] : bounds[k]]
            start = time.perf_counter()
            model.add_candidates(X.iloc[more], y[more])
            added = time.perf_counter() - start
        yield {
            "share": share,
            "candidates": len(model.candidates_),
            "fit_seconds": round(seconds, 3),
            "add_seconds": round(added, 3),
            "test": plain_score(kind, test[1], model.predict(test[0])),
        }
