from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tabr.bench.tasks.own_table import FEWEST_ROWS, own_tasks
from tabr.bench.tasks.task import load
from tabr.errors import DataError

from ..tables import write_own


def test_a_table_is_split_in_three_parts_that_hold_all_labelled_rows(tmp_path: Path):
    frame = write_own(tmp_path / "mine.csv", n=200)
    (task,) = own_tasks(tmp_path / "mine.csv", "price")
    assert (task.kind, task.metric, task.benchmark) == ("regression", "rmse", "own")
    parts = load(task)
    sizes = [len(part.y) for part in (parts.train, parts.val, parts.test)]
    assert sizes == [128, 32, 40]
    every = np.concatenate([part.y for part in (parts.train, parts.val, parts.test)])
    assert sorted(every) == sorted(frame["price"])
    assert "price" not in parts.train.X


def test_splits_differ_and_are_the_same_each_time(tmp_path: Path):
    write_own(tmp_path / "mine.csv")
    first, second = own_tasks(tmp_path / "mine.csv", "price", n_splits=2)
    assert (first.split, second.split) == (0, 1) and first.name == second.name
    again, other = load(first).test, load(second).test
    np.testing.assert_array_equal(again.y, load(first).test.y)
    assert sorted(again.y) != sorted(other.y)


def test_the_name_changes_with_the_rows_and_with_what_is_asked(tmp_path: Path):
    path = tmp_path / "mine.csv"
    write_own(path)
    names = {own_tasks(path, "price")[0].name, own_tasks(path, "size")[0].name}
    names.add(own_tasks(path, "price", ignored=["size"])[0].name)
    assert own_tasks(path, "price")[0].name in names
    write_own(path, seed=1)
    names.add(own_tasks(path, "price")[0].name)
    assert len(names) == 4
    assert all(name.startswith("mine-") for name in names)


def test_what_is_ignored_is_no_feature(tmp_path: Path):
    write_own(tmp_path / "mine.csv")
    (task,) = own_tasks(tmp_path / "mine.csv", "price", ignored=["size"])
    assert list(load(task).train.X.columns) == ["town"]


def test_classes_are_in_proportion_and_train_has_all_of_them(tmp_path: Path):
    path = tmp_path / "mine.parquet"
    labels = ["a"] * 70 + ["b"] * 28 + ["rare", "once"]
    pd.DataFrame({"x": range(100), "y": labels}).to_parquet(path)
    (task,) = own_tasks(path, "y")
    assert task.kind == "classification"
    parts = load(task)
    assert set(parts.train.y) == {"a", "b", "rare", "once"}
    assert np.mean(parts.test.y == "a") == pytest.approx(0.7, abs=0.06)


def test_rows_without_a_label_are_left_out(tmp_path: Path):
    path = tmp_path / "mine.csv"
    frame = write_own(path)
    frame.loc[::2, "price"] = np.nan
    frame.to_csv(path, index=False)
    parts = load(own_tasks(path, "price")[0])
    assert sum(len(p.y) for p in (parts.train, parts.val, parts.test)) == 60
    assert not np.isnan(parts.train.y).any()


@pytest.mark.parametrize(
    ("change", "target", "message"),
    [
        (
            lambda frame: frame,
            "prize",
            "has no column 'prize'; the closest are 'price'",
        ),
        (lambda frame: frame.head(20), "price", f"at least {FEWEST_ROWS} rows"),
        (lambda frame: frame.assign(price=1.0), "price", "labels must differ"),
    ],
)
def test_what_cannot_be_a_task_is_refused(change, target, message, tmp_path: Path):
    path = tmp_path / "mine.csv"
    change(write_own(path)).to_csv(path, index=False)
    with pytest.raises(DataError, match=message):
        own_tasks(path, target)
