"""Rare classes, on made-up tables."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from numpy.random import RandomState

from reproduction.studies.rare import METHODS, cut, rare, rarest, thinned
from tabr.bench.tasks.task import LabelledRows
from tests.bench.tables import TINY

HERE = {**TINY, "device": "cpu"}


def rows_of(n_by_class: dict[int, int]) -> LabelledRows:
    y = np.repeat(list(n_by_class), list(n_by_class.values()))
    y = RandomState(0).permutation(y)
    return LabelledRows(pd.DataFrame({"row": np.arange(len(y))}), y)


def test_the_rarest_class_is_found_by_counting() -> None:
    assert rarest(rows_of({3: 30, 5: 10, 8: 20}).y) == 5


def test_a_thinned_part_keeps_all_rows_of_the_others() -> None:
    rows = rows_of({0: 990, 1: 300})
    part = thinned(rows, 1, RandomState(0))
    assert part.y.sum() == 10 and len(part.y) == 1000
    kept = part.X.row.to_numpy()
    np.testing.assert_array_equal(rows.y[kept], part.y)
    assert np.isin(np.flatnonzero(rows.y == 0), kept).all()
    other = thinned(rows, 1, RandomState(1))
    assert not other.X.equals(part.X)


def test_parts_share_no_row_and_have_a_rare_class_each() -> None:
    rows = rows_of({0: 1500, 1: 1500, 2: 25})
    parts = cut(rows, 2, (1000, 200, 600), RandomState(0))
    assert [len(part.y) for part in parts] == [1000, 200, 600]
    assert [part.y.sum() for part in parts] == [10, 2, 6]
    used = np.concatenate([part.X.row for part in parts])
    assert len(set(used)) == 1800
    truth = np.concatenate([part.y for part in parts])
    np.testing.assert_array_equal(rows.y[used] == 2, truth)


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    """The rarer class of one has larger numbers; the other has three classes."""
    rng, n = np.random.default_rng(0), 2000
    adult = pd.DataFrame({"target": np.resize([0, 0, 0, 1], n)})
    adult["a"] = rng.normal(size=n) + 3 * adult.target
    adult.to_parquet(tmp_path / "adult.parquet")
    part = rng.choice(["train", "train", "val", "test"], n)
    pd.DataFrame({"part": part}).to_parquet(tmp_path / "adult.split.parquet")
    codes = np.repeat([0, 4, 6], [50_000, 50_000, 850]).astype(np.int8)
    covtype = pd.DataFrame({"a": rng.normal(size=len(codes)) + codes, "target": codes})
    covtype.to_parquet(tmp_path / "covtype.parquet")
    return tmp_path


def test_every_method_tells_the_rare_class(tables: Path) -> None:
    units = list(rare(["adult"], tables, [0], HERE))
    assert [unit.about["method"] for unit in units] == list(METHODS)
    for unit in units:
        (record,) = unit.run()
        assert record["rare_rows"] == round(record["rows"] / 100)
        assert 0.01 < record["average-precision"] <= 1
        assert 0.5 < record["roc-auc"] <= 1 and record["log-loss"] > 0


def test_covtype_is_one_class_against_the_rest(tables: Path) -> None:
    units = rare(["covtype"], tables, [2], HERE)
    (unit,) = (unit for unit in units if unit.about["method"] == "lightgbm")
    (record,) = unit.run()
    assert (record["rows"], record["rare_rows"]) == (30_000, 300)
    assert record["roc-auc"] > 0.9
