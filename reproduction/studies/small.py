"""Small tables: a few hundred rows, drawn from tables of the catalogue."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache, partial
from pathlib import Path

import numpy as np
import pandas as pd

from reproduction.studies.methods import STUDY_METHODS, Split, labelled, run_method
from reproduction.studies.units import Record, Unit
from tabr.bench.tasks.catalog import select

N_DRAWS = 20
N_TRAIN, MOST_TESTED = 300, 5000
TABLES = (
    "california",
    "house",
    "diamond",
    "why/elevators",
    "why/fifa",
    "adult",
    "churn",
    "otto",
    "why/bank-marketing",
    "why/electricity",
)
METHODS = tuple(STUDY_METHODS)
MEASURES = ("rmse", "log-loss", "accuracy", "roc-auc")


def small(
    tables: Sequence[str], folder: Path, seeds: Sequence[int], params: Record
) -> Iterator[Unit]:
    """Yield each method on each draw; the number of a draw seeds the methods, too."""

    @lru_cache(maxsize=1)
    def read(label: str) -> pd.DataFrame:
        return pd.read_parquet(folder / f"{label}.parquet")

    def run(label: str, seed: int, method: str) -> Iterator[Record]:
        kind = select([label])[0].kind
        split = draw(read(label), kind, seed)
        # The ROC AUC of several classes would be a mean of several.
        measures = MEASURES if len(split.classes) == 2 else MEASURES[:-1]
        yield run_method(method, split, seed, params, measures)

    for label in tables:
        for seed in seeds:
            for method in METHODS:
                about = {"table": label, "seed": seed, "method": method}
                yield Unit(about, partial(run, label, seed, method))


def draw(frame: pd.DataFrame, kind: str, number: int) -> Split:
    """Return rows that were drawn from a table, and others to test."""
    order = np.random.RandomState(number).permutation(len(frame))
    train, test = order[:N_TRAIN], order[N_TRAIN : N_TRAIN + MOST_TESTED]
    return Split(kind, labelled(frame.iloc[train]), labelled(frame.iloc[test]))
