"""Studies beyond one table of scores: attention, new candidates, time.

Each study yields units, one for each model to fit; a unit yields plain records.
"""

from __future__ import annotations

import itertools
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tabr import PastOnly, TabRClassifier, TabRRegressor
from tabr.bench.catalog import select
from tabr.bench.tasks import load
from tabr.metrics import rmse

Record = dict[str, Any]


class Unit(NamedTuple):
    """A model to fit: what its records begin with, and what makes them."""

    about: Record
    run: Callable[[], Iterable[Record]]


Model = TabRRegressor | TabRClassifier

EARTH_KM = 6371.0
NEAR_KM = 10.0
SHARES = (0.1, 0.2, 0.4, 0.6, 0.8, 1.0)  # of the training rows that are candidates
N_CHUNKS = 20  # in which test rows arrive
# Table, column of times, what is predicted.
TIMED = (
    ("bike-sharing", "timestamp", "regression"),
    ("beijing-pm25", "timestamp", "regression"),
    ("elec2", "time_index", "classification"),
    ("nycflights13", "time_hour", "regression"),
)


# --- attention: how much of it falls on rows nearby ---------------------------


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


def attention(folder: Path, seeds: Sequence[int], params: Record) -> Iterator[Unit]:
    """California: the paper's analysis of where attention falls, step by step."""
    (task,) = select(["california"])
    parts = load(task, folder)
    kinds = {
        "step-1": {"retrieval": "step-1"},
        "step-2": {"retrieval": "step-2"},
        "TabR-S": {},
        "TabR": {"embedding": "plr-lite"},
    }

    def run(more: Record, seed: int) -> Iterator[Record]:
        chosen = {"mode": "paper", "batch_size": task.batch_size, **more, **params}
        model = TabRRegressor(**chosen, random_state=seed)
        model.fit(parts.train.X, parts.train.y, eval_set=(parts.val.X, parts.val.y))
        near, itself = weight_nearby(model, parts.test.X)
        yield {
            "within_10_km": round(near, 4),
            "on_itself": round(itself, 4),
            "test": round(rmse(parts.test.y, model.predict(parts.test.X)), 5),
        }

    for name, more in kinds.items():
        for seed in seeds:
            yield Unit({"model": name, "seed": seed}, partial(run, more, seed))


# --- new candidates: train on a part, retrieve from more -----------------------


def new_candidates(
    folder: Path, seeds: Sequence[int], params: Record
) -> Iterator[Unit]:
    """Train on a tenth of the rows, then add the rest without training."""
    for name in ("covtype", "nycflights13"):
        if name == "covtype":
            (task,) = select([name])
            parts = load(task, folder)
            train, val, test = (
                (p.X, p.y) for p in (parts.train, parts.val, parts.test)
            )
            kind: str = task.kind
        else:
            frame = pd.read_parquet(folder / f"{name}.parquet")
            train, val, test = by_time(frame, "time_hour")
            kind = "regression"
        for seed in seeds:
            run = partial(_grow, kind, train, val, test, seed, params)
            yield Unit({"table": name, "seed": seed}, run)


def _grow(
    kind: str,
    train: tuple[pd.DataFrame, NDArray[Any]],
    val: tuple[pd.DataFrame, NDArray[Any]],
    test: tuple[pd.DataFrame, NDArray[Any]],
    seed: int,
    params: Record,
) -> Iterator[Record]:
    X, y = train
    order = np.random.RandomState(seed).permutation(len(y))
    bounds = [round(share * len(y)) for share in SHARES]
    first = order[: bounds[0]]
    model = _estimator(kind)(**params, random_state=seed)
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
            "test": _score(kind, test[1], model.predict(test[0])),
        }


# --- time: the past predicts the future ----------------------------------------


def by_time(
    frame: pd.DataFrame, column: str
) -> tuple[tuple[pd.DataFrame, NDArray[Any]], ...]:
    """Split a table in time: the first 64 % to train, 16 % to stop, 20 % to test."""
    ordered = frame.sort_values(column, kind="stable").reset_index(drop=True)
    y = ordered.pop("target").to_numpy()
    n = len(y)
    bounds = [0, round(0.64 * n), round(0.8 * n), n]
    return tuple(
        (ordered.iloc[a:b].reset_index(drop=True), y[a:b])
        for a, b in itertools.pairwise(bounds)
    )


def through_time(folder: Path, seeds: Sequence[int], params: Record) -> Iterator[Unit]:
    """Compare plain TabR-S with rules of time and candidates that keep coming.

    *plain*: all defaults. *plain, refreshed*: the validation rows, who are the latest,
    become candidates too. *past*: only the past is retrieved, in training too, and
    candidates are refreshed so. *past, living*: besides, test rows arrive in twenty
    parts, and once a part is predicted its labels become known. All of it again with
    the column of times *ignored*: it rules, but is no feature.
    """

    def run(
        name: str, column: str, kind: str, seed: int, past: bool, ignored: bool
    ) -> Iterator[Record]:
        train, val, test = by_time(pd.read_parquet(folder / f"{name}.parquet"), column)
        model = _estimator(kind)(
            **params,
            candidates=PastOnly(column) if past else None,
            refit_candidates=past,
            ignore=(column,) if ignored else (),
            random_state=seed,
        ).fit(*train, eval_set=val)
        yield {"test": _score(kind, test[1], model.predict(test[0]))}
        if past:
            more, prediction = "living", living(model, *test)
        else:
            model.add_candidates(*val)
            more, prediction = "refreshed", model.predict(test[0])
        way = way_through_time(past, ignored, more)
        yield {"way": way, "test": _score(kind, test[1], prediction)}

    for name, column, kind in TIMED:
        for seed in seeds:
            for ignored, past in itertools.product((False, True), (False, True)):
                way = way_through_time(past, ignored)
                about = {"table": name, "seed": seed, "way": way}
                yield Unit(about, partial(run, name, column, kind, seed, past, ignored))


def way_through_time(past: bool, ignored: bool, more: str | None = None) -> str:
    """Name a way to retrieve through time.

    >>> way_through_time(True, True, "living")
    'past, time ignored, living'
    """
    parts = ["past" if past else "plain", "time ignored" if ignored else None, more]
    return ", ".join(part for part in parts if part)


def living(model: Model, X: pd.DataFrame, y: NDArray[Any]) -> NDArray[Any]:
    """Predict rows in parts, in their order; known parts become candidates."""
    predictions = []
    for index in np.array_split(np.arange(len(y)), min(N_CHUNKS, len(y))):
        part = X.iloc[index]
        predictions.append(model.predict(part))
        model.add_candidates(part, y[index])
    return np.concatenate(predictions)


def _estimator(kind: str) -> Callable[..., Model]:
    return TabRRegressor if kind == "regression" else TabRClassifier


def _score(kind: str, truth: NDArray[Any], prediction: NDArray[Any]) -> float:
    """Return the RMSE of numbers or the accuracy of classes."""
    if kind == "regression":
        return round(rmse(truth, prediction), 5)
    return round(float(np.mean(truth == prediction)), 5)


# --- files ----------------------------------------------------------------------

STUDIES: Mapping[str, Callable[[Path, Sequence[int], Record], Iterator[Unit]]] = {
    "attention": attention,
    "new-candidates": new_candidates,
    "time": through_time,
}


def run_study(
    name: str,
    folder: Path,
    out: Path,
    seeds: Sequence[int],
    params: Record,
    tables: Sequence[str] | None = None,
) -> Path:
    """Run what is missing of a study; what a fit tells is written whole or not at all.

    Some tables may be chosen; all of them is the default.
    """
    path = out / "studies" / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    command = f"python -m tabr.bench study {name} --data FOLDER --seeds {len(seeds)}"
    records: list[Record] = []
    if path.is_file():
        before = json.loads(path.read_text("utf-8"))
        if before["params"] != params:
            raise ValueError(
                f"a study has one set of parameters, however {path} has "
                f"{before['params']}, not {params}: choose another --out"
            )
        records = before["records"]
    for unit in STUDIES[name](folder, seeds, params):
        if tables is not None and unit.about.get("table") not in tables:
            continue
        if any(unit.about.items() <= record.items() for record in records):
            continue
        for record in list(unit.run()):
            records.append({**unit.about, **record})
            print(" ".join(f"{k}={v}" for k, v in records[-1].items()), flush=True)
        draft = path.with_suffix(f".{os.getpid()}.tmp")
        content = {"command": command, "params": params, "records": records}
        draft.write_text(json.dumps(content, indent=1) + "\n", "utf-8")
        os.replace(draft, path)
    return path
