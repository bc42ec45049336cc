"""Context freeze, on a small table."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from reproduction.results_folder import ResultsFolder
from reproduction.studies import run_study
from reproduction.studies.freeze import AFTER, freeze
from reproduction.studies.units import make_method
from tabr.bench.tasks.catalog import select
from tabr.bench.tasks.task import load
from tests.bench.tables import TINY, write_california

(CALIFORNIA,) = select(["california"])
PARAMS = {**TINY, "device": "cpu", "max_epochs": 4, "learning_rate": 0.01}


def test_a_study_fits_all_freezes_and_watches_contexts(tmp_path: Path) -> None:
    write_california(tmp_path)
    results = ResultsFolder(tmp_path)
    path = run_study("freeze", tmp_path, results, [0], PARAMS, ["california"])
    *fits, contexts = json.loads(path.read_text("utf-8"))["records"]
    assert [record["freeze_after"] for record in fits] == list(AFTER)
    for record in fits:
        assert record["what"] == "fit" and record["epochs"] == 4
        assert 0 < record["seconds_per_epoch"] * record["epochs"] < record["seconds"]
    # A freeze after the last epoch is none; an earlier one makes another model.
    test = {record["freeze_after"]: record["test"] for record in fits}
    assert test[4] == test[8] == test[None]
    assert len({test[0], test[1], test[None]}) == 3
    assert contexts["what"] == "contexts"
    assert len(contexts["context_change"]) == 3
    assert all(0 < change < 1 for change in contexts["context_change"])


def test_a_unit_freezes_the_benchmark_s_default_model(tmp_path: Path) -> None:
    write_california(tmp_path)
    parts = load(CALIFORNIA, tmp_path)
    units = list(freeze(["california"], tmp_path, [7], PARAMS))
    (unit,) = (u for u in units if u.about.get("freeze_after") == 1)
    (record,) = unit.run()
    more = {**PARAMS, "freeze_after": 1}
    method = make_method(CALIFORNIA, parts, 7, "tabr-s", "default", more)
    assert method.estimator.preset == "paper"
    assert method.estimator.batch_size == CALIFORNIA.batch_size
    prediction = method.fit(parts.train, parts.val).predict(parts.test.X)
    rmse = ((prediction - parts.test.y) ** 2).mean() ** 0.5
    assert record["test"] == pytest.approx(rmse, abs=1e-6)
