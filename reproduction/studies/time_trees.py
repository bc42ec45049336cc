"""Trees through time: the presets beside trees where the past predicts the future."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from functools import lru_cache, partial
from pathlib import Path

import pandas as pd

from reproduction.studies.methods import PRESETS, TREES, Split, run_method
from reproduction.studies.through_time import TIMED, by_time
from reproduction.studies.units import Record, Unit
from tabr.bench.tasks.task import LabelledRows

MOST_ROWS = 60_000  # that are learned from, the latest ones
TABLES = tuple(name for name, _, _ in TIMED)
METHODS = (*PRESETS, *TREES)
MEASURES = ("rmse", "accuracy", "log-loss")
FEATURE, IGNORED = "a feature", "ignored"  # what the column of times is


def time_trees(
    tables: Sequence[str], folder: Path, seeds: Sequence[int], params: Record
) -> Iterator[Unit]:
    """Yield each method on each table, with the column of times and without it.

    Nobody has a rule, and no labels arrive while test rows are predicted.
    """

    @lru_cache(maxsize=1)
    def read(name: str, column: str) -> list[LabelledRows]:
        frame = pd.read_parquet(folder / f"{name}.parquet")
        return [LabelledRows(*part) for part in by_time(frame, column)]

    def run(
        name: str, column: str, kind: str, seed: int, about: Record
    ) -> Iterator[Record]:
        train, stop, test = read(name, column)
        split = Split(kind, latest(train, about["most_rows"]), test, stop)
        if about["time"] == IGNORED:
            split = split.with_tables(lambda X: X.drop(columns=column))
        yield run_method(about["method"], split, seed, params, MEASURES)

    for name, column, kind in TIMED:
        if name not in tables:
            continue
        for seed in seeds:
            for time, method in itertools.product((FEATURE, IGNORED), METHODS):
                about = {"table": name, "seed": seed, "time": time, "method": method}
                about["most_rows"] = MOST_ROWS
                yield Unit(about, partial(run, name, column, kind, seed, about))


def latest(rows: LabelledRows, n: int) -> LabelledRows:
    """Return the last n rows, or all if there are no more."""
    return LabelledRows(rows.X.iloc[-n:].reset_index(drop=True), rows.y[-n:])
