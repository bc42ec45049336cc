"""How much attention falls on rows nearby: the paper's case study of California."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from reproduction.studies.units import Model, Record, Unit, loader
from tabr import TabRRegressor
from tabr.bench.tasks.catalog import select
from tabr.bench.tasks.task import Task
from tabr.metrics import rmse

EARTH_KM = 6371.0
NEAR_KM = 10.0
KINDS: dict[str, Record] = {
    "step-1": {"retrieval": "step-1"},
    "step-2": {"retrieval": "step-2"},
    "TabR-S": {},
    "TabR": {"embedding": "plr-lite"},
}


def kilometres(a: pd.DataFrame, b: pd.DataFrame) -> NDArray[np.float64]:
    """Return distances (n,) on the globe between places, row by row."""
    latitude = [np.radians(part["Latitude"].to_numpy(np.float64)) for part in (a, b)]
    longitude = [np.radians(part["Longitude"].to_numpy(np.float64)) for part in (a, b)]
    north, east = latitude[1] - latitude[0], longitude[1] - longitude[0]
    chord = np.sin(north / 2) ** 2
    chord += np.cos(latitude[0]) * np.cos(latitude[1]) * np.sin(east / 2) ** 2
    arc: NDArray[np.float64] = 2 * EARTH_KM * np.arcsin(np.sqrt(chord.clip(0, 1)))
    return arc


def weight_nearby(model: Model, rows: pd.DataFrame) -> tuple[float, float]:
    """Return the mean weight on neighbours within 10 km, and on the row itself."""
    table = model.neighbors(rows)
    n, m = table.ids.shape
    row = np.repeat(np.arange(n), m)
    near = model.candidates_.look_up(table.ids.ravel())
    km = kilometres(rows.iloc[row], near).reshape(n, m)
    inside = (table.weights * (km <= NEAR_KM)).sum(1).mean()
    return float(inside), float(1 - table.weights.sum(1).mean())


def attention(
    tables: Sequence[str], folder: Path, seeds: Sequence[int], params: Record
) -> Iterator[Unit]:
    """Yield each step's model of California; there is no other table with places."""
    loaded = loader(folder)

    def run(task: Task, more: Record, seed: int) -> Iterator[Record]:
        parts = loaded(task)
        chosen = {"mode": "paper", "batch_size": task.batch_size, **more, **params}
        model = TabRRegressor(**chosen, random_state=seed)
        model.fit(parts.train.X, parts.train.y, eval_set=(parts.val.X, parts.val.y))
        near, itself = weight_nearby(model, parts.test.X)
        yield {
            "within_10_km": round(near, 4),
            "on_itself": round(itself, 4),
            "test": round(rmse(parts.test.y, model.predict(parts.test.X)), 5),
        }

    for task in select(tables):
        for name, more in KINDS.items():
            for seed in seeds:
                yield Unit(
                    {"model": name, "seed": seed}, partial(run, task, more, seed)
                )
