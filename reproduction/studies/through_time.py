"""The past predicts the future: rules of time, and candidates that keep coming."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from reproduction.studies.units import Model, Record, Unit, estimator_for, plain_score
from tabr import PastOnly

N_CHUNKS = 20  # in which test rows arrive
# Table, column of times, what is predicted.
TIMED = (
    ("bike-sharing", "timestamp", "regression"),
    ("beijing-pm25", "timestamp", "regression"),
    ("elec2", "time_index", "classification"),
    ("nycflights13", "time_hour", "regression"),
)


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


def through_time(
    tables: Sequence[str], folder: Path, seeds: Sequence[int], params: Record
) -> Iterator[Unit]:
    """Yield models of plain TabR-S, and of the ways to retrieve through time.

    *plain*: all defaults. *plain, refreshed*: the validation rows, the latest ones,
    become candidates too. *past*: only the past is retrieved, in training too, and
    candidates are refreshed so. *past, living*: besides, test rows arrive in twenty
    parts, and once a part is predicted it becomes candidates. All of it again with the
    column of times *ignored*: it rules, but is no feature.
    """

    @lru_cache(maxsize=1)
    def read(name: str, column: str) -> tuple[tuple[pd.DataFrame, NDArray[Any]], ...]:
        return by_time(pd.read_parquet(folder / f"{name}.parquet"), column)

    def run(
        name: str, column: str, kind: str, seed: int, past: bool, ignored: bool
    ) -> Iterator[Record]:
        train, val, test = read(name, column)
        model = estimator_for(kind)(
            **params,
            candidates=PastOnly(column) if past else None,
            refit_candidates=past,
            ignore=(column,) if ignored else (),
            random_state=seed,
        ).fit(*train, eval_set=val)
        yield {"test": plain_score(kind, test[1], model.predict(test[0]))}
        if past:
            more, prediction = "living", predict_in_parts(model, *test)
        else:
            model.add_candidates(*val)
            more, prediction = "refreshed", model.predict(test[0])
        way = way_through_time(past, ignored, more)
        yield {"way": way, "test": plain_score(kind, test[1], prediction)}

    for name, column, kind in TIMED:
        if name not in tables:
            continue
        for seed in seeds:
            for ignored, past in itertools.product((False, True), (False, True)):
                way = way_through_time(past, ignored)
                about = {"table": name, "seed": seed, "way": way}
                yield Unit(about, partial(run, name, column, kind, seed, past, ignored))


def way_through_time(past: bool, ignored: bool, more: str | None = None) -> str:
    """Return the name of a way to retrieve through time.

    >>> way_through_time(True, True, "living")
    'past, time ignored, living'
    """
    parts = ["past" if past else "plain", "time ignored" if ignored else None, more]
    return ", ".join(part for part in parts if part)


def predict_in_parts(model: Model, X: pd.DataFrame, y: NDArray[Any]) -> NDArray[Any]:
    """Return predictions of rows; a predicted part becomes candidates for the next."""
    predictions = []
    for index in np.array_split(np.arange(len(y)), min(N_CHUNKS, len(y))):
        part = X.iloc[index]
        predictions.append(model.predict(part))
        model.add_candidates(part, y[index])
    return np.concatenate(predictions)
