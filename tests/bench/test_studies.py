"""The studies, on small tables."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tabr import TabRRegressor
from tabr.bench import studies
from tabr.bench.__main__ import main

TINY = {"width": 8, "context_size": 4, "max_epochs": 1, "device": "cpu"}


def timed(column: str, n: int = 60, classes: bool = False) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    when = rng.permutation(n)
    target = when + rng.normal(size=n)
    return pd.DataFrame({
        column: pd.Timestamp("2020-01-01") + pd.to_timedelta(when, unit="D")
        if column != "time_index" else when,
        "a": rng.normal(size=n),
        "target": (target > n / 2).astype(int) if classes else target,
    })  # fmt: skip


def test_kilometres_are_those_of_the_globe() -> None:
    places = pd.DataFrame({"Latitude": [37.77, 0, 89], "Longitude": [-122.42, 0, 0]})
    others = pd.DataFrame({"Latitude": [34.05, 0, 89], "Longitude": [-118.24, 180, 90]})
    km = studies.kilometres(places, others)
    assert km[0] == pytest.approx(559, abs=2)
    assert km[1] == pytest.approx(np.pi * studies.EARTH_KM)
    assert km[2] == pytest.approx(157, abs=1)


def test_weights_nearby_and_elsewhere_sum_to_one() -> None:
    rng = np.random.default_rng(0)
    X = pd.DataFrame({
        "Latitude": rng.uniform(36, 36.3, 80),
        "Longitude": rng.uniform(-120, -119.7, 80),
    })  # fmt: skip
    y = X.Latitude + rng.normal(size=80)
    model = TabRRegressor(**TINY, random_state=0).fit(X, y)
    near, itself = studies.weight_nearby(model, X)
    assert 0 < near < 1 and itself == pytest.approx(0, abs=1e-6)
    own = TabRRegressor(**TINY, random_state=0, retrieval="step-2").fit(X, y)
    near, itself = studies.weight_nearby(own, X)
    assert itself > 0 and near + itself <= 1


def test_a_split_in_time_has_the_latest_rows_last() -> None:
    parts = studies.by_time(timed("timestamp"), "timestamp")
    assert [len(y) for _, y in parts] == [38, 10, 12]
    ends = [(X.timestamp.min(), X.timestamp.max()) for X, _ in parts]
    assert ends[0][1] < ends[1][0] and ends[1][1] < ends[2][0]


def test_labels_become_known_after_their_part_is_predicted() -> None:
    class Memory:
        def __init__(self) -> None:
            self.known: list[int] = []

        def predict(self, X: pd.DataFrame) -> np.ndarray:
            assert not set(X.a) & set(self.known)
            return X.a.to_numpy()

        def add_candidates(self, X: pd.DataFrame, y: np.ndarray) -> None:
            self.known += X.a.tolist()

    memory, X = Memory(), pd.DataFrame({"a": range(47)})
    predicted = studies.living(memory, X, np.zeros(47))  # type: ignore[arg-type]
    assert predicted.tolist() == memory.known == list(range(47))


def test_a_study_writes_its_records_and_goes_on_where_it_ended(tmp_path: Path) -> None:
    for name, column, kind in studies.TIMED:
        frame = timed(column, classes=kind == "classification")
        frame.to_parquet(tmp_path / f"{name}.parquet")
    options = ["--data", str(tmp_path), "--out", str(tmp_path), "--seeds", "1"]
    assert main(["study", "time", *options, "--params", json.dumps(TINY)]) == 0
    content = json.loads((tmp_path / "studies" / "time.json").read_text("utf-8"))
    found = {(record["table"], record["way"]) for record in content["records"]}
    assert len(found) == len(content["records"]) == 32
    assert content["command"] == (
        "python -m tabr.bench study time --data FOLDER --seeds 1"
    )
    before = (tmp_path / "studies" / "time.json").read_text("utf-8")
    half = {**content, "records": content["records"][:14]}
    (tmp_path / "studies" / "time.json").write_text(json.dumps(half), "utf-8")
    few = "--tables", "beijing-pm25"
    assert main(["study", "time", *options, *few, "--params", json.dumps(TINY)]) == 0
    content = json.loads((tmp_path / "studies" / "time.json").read_text("utf-8"))
    assert content["records"] == json.loads(before)["records"][:16]
    with pytest.raises(ValueError, match="one set of parameters"):
        main(["study", "time", *options])


def test_candidates_grow_to_the_whole_table() -> None:
    train, val, test = studies.by_time(timed("timestamp", 200), "timestamp")
    records = list(studies._grow("regression", train, val, test, 0, dict(TINY)))
    assert [r["share"] for r in records] == list(studies.SHARES)
    counts = [r["candidates"] for r in records]
    assert counts == [round(s * len(train[1])) for s in studies.SHARES]
