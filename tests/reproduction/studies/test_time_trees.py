"""Presets beside trees through time, on small tables."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from reproduction.studies.methods import Split, run_method
from reproduction.studies.through_time import by_time
from reproduction.studies.time_trees import (
    FEATURE,
    IGNORED,
    METHODS,
    MOST_ROWS,
    latest,
    time_trees,
)
from tabr.bench.tasks.task import LabelledRows
from tests.bench.tables import TINY, timed

HERE = {**TINY, "device": "cpu"}


def test_the_latest_rows_are_learned_from() -> None:
    rows = LabelledRows(pd.DataFrame({"a": range(5)}), np.arange(5))
    assert latest(rows, 2).X.a.tolist() == latest(rows, 2).y.tolist() == [3, 4]
    assert latest(rows, 9).y.tolist() == [0, 1, 2, 3, 4]


def test_every_method_is_tried_with_times_and_without(tmp_path: Path) -> None:
    frame = timed("time_index", 200, classes=True)
    frame.to_parquet(tmp_path / "elec2.parquet")
    units = list(time_trees(["elec2"], tmp_path, [0], HERE))
    ways = [(unit.about["time"], unit.about["method"]) for unit in units]
    assert ways == [(time, name) for time in (FEATURE, IGNORED) for name in METHODS]
    assert all(unit.about["most_rows"] == MOST_ROWS for unit in units)
    train, stop, test = (LabelledRows(*p) for p in by_time(frame, "time_index"))
    split = Split("classification", train, test, stop)
    for unit in units:
        (record,) = unit.run()
        assert list(record)[:2] == ["accuracy", "log-loss"]
        if unit.about["time"] == FEATURE:
            name = unit.about["method"]
            expected = run_method(name, split, 0, HERE, ["accuracy", "log-loss"])
            assert record["log-loss"] == expected["log-loss"]


def test_ignored_times_order_rows_and_tell_nobody_anything(tmp_path: Path) -> None:
    frame = timed("time_index", 200, classes=True)
    scores = []
    for folder, times in (("a", frame.time_index), ("b", frame.time_index**2)):
        (tmp_path / folder).mkdir()
        own = frame.assign(time_index=times)
        own.to_parquet(tmp_path / folder / "elec2.parquet")
        units = time_trees(["elec2"], tmp_path / folder, [0], HERE)
        ignored = [unit for unit in units if unit.about["time"] == IGNORED]
        records = [record for unit in ignored for record in unit.run()]
        scores.append([record["log-loss"] for record in records])
    assert scores[0] == scores[1] and len(set(scores[0])) == len(METHODS)
