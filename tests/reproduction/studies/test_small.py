"""Draws of a few hundred rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from reproduction.studies.methods import run_method
from reproduction.studies.small import METHODS, TABLES, draw, small
from tabr.bench.tasks.catalog import select
from tests.bench.tables import TINY, write_california, write_churn

HERE = {**TINY, "device": "cpu"}


def test_a_draw_has_few_rows_and_tests_on_others() -> None:
    frame = pd.DataFrame({"row": np.arange(6000), "target": np.arange(6000) / 2})
    split = draw(frame, "regression", 3)
    assert (len(split.train.y), len(split.test.y), split.stop) == (300, 5000, None)
    rows = np.concatenate([split.train.X.row, split.test.X.row])
    assert len(set(rows)) == 5300
    np.testing.assert_array_equal(split.train.y, split.train.X.row / 2)
    again, other = draw(frame, "regression", 3), draw(frame, "regression", 4)
    assert again.train.X.equals(split.train.X)
    assert not other.train.X.equals(split.train.X)
    assert len(draw(frame[:320], "regression", 0).test.y) == 20


def test_half_of_the_tables_have_classes() -> None:
    kinds = [select([label])[0].kind for label in TABLES]
    assert kinds == ["regression"] * 5 + ["classification"] * 5


def test_a_unit_is_a_method_on_a_draw(tmp_path: Path) -> None:
    tables = {"california": write_california(tmp_path, 340)}
    tables["churn"] = write_churn(tmp_path, 340)
    units = list(small(list(tables), tmp_path, [0, 1], HERE))
    assert [unit.about["method"] for unit in units] == [*METHODS] * 4
    for unit in units:
        if unit.about["seed"] == 1 and unit.about["method"] in ("lightgbm", "knn"):
            (record,) = unit.run()
            table, method = unit.about["table"], unit.about["method"]
            kind, of_numbers = select([table])[0].kind, table == "california"
            names = ["rmse"] if of_numbers else ["log-loss", "accuracy", "roc-auc"]
            split = draw(tables[table], kind, 1)
            expected = run_method(method, split, 1, HERE, names)
            assert list(record)[: len(names)] == names
            assert all(record[name] == expected[name] for name in names)
