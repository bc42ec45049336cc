"""New candidates without training, on a small table."""

from __future__ import annotations

import json
from pathlib import Path

from reproduction.results_folder import ResultsFolder
from reproduction.studies import run_study
from reproduction.studies.new_candidates import SHARES, grow
from reproduction.studies.through_time import by_time
from tests.bench.tables import TINY, timed

HERE = {**TINY, "device": "cpu"}


def test_candidates_grow_to_the_whole_table() -> None:
    train, val, test = by_time(timed("timestamp", 200), "timestamp")
    records = list(grow("regression", train, val, test, 0, HERE))
    assert [r["share"] for r in records] == list(SHARES)
    counts = [r["candidates"] for r in records]
    assert counts == [round(s * len(train[1])) for s in SHARES]


def test_one_table_has_classes_and_the_other_is_split_in_time(tmp_path: Path) -> None:
    timed("time_index", 200, classes=True).to_parquet(tmp_path / "covtype.parquet")
    timed("time_hour", 200).to_parquet(tmp_path / "nycflights13.parquet")
    path = run_study("new-candidates", tmp_path, ResultsFolder(tmp_path), [0], HERE)
    records = json.loads(path.read_text("utf-8"))["records"]
    assert [(r["table"], r["share"]) for r in records] == [
        (name, share) for name in ("covtype", "nycflights13") for share in SHARES
    ]
    # The latest rows of a trend are far from all earlier ones.
    assert all(r["test"] <= 1 for r in records[:6])
    assert all(r["test"] > 20 for r in records[6:])
