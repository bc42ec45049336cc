from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tabr.bench.tasks.catalog import select
from tabr.bench.tasks.selection import FEWEST_ROWS, TaskSelection, tasks_of_table
from tabr.bench.tasks.task import UserTable, load
from tabr.errors import DataError

from ..tables import write_churn, write_user_table


def test_a_table_needs_no_folder_and_has_as_many_tasks_as_splits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("TABR_DATA", raising=False)
    write_user_table(tmp_path / "mine.csv")
    table = UserTable(tmp_path / "mine.csv", "price")
    selection = TaskSelection(table, kind="regression", n_splits=3)
    assert selection.folder is None
    assert [task.split for task in selection.available_tasks()] == [0, 1, 2]


def test_a_benchmark_may_lack_tables_and_a_named_task_is_kept(tmp_path: Path):
    write_churn(tmp_path)
    lines: list[str] = []
    tasks = TaskSelection(data=tmp_path).available_tasks(lines.append)
    assert tasks == select(["churn"])
    absent = [t.label for t in select(benchmark="default") if t not in tasks]
    assert lines == [f"left out, as their tables are not there: {', '.join(absent)}"]
    named = TaskSelection(labels=["churn", "otto"], data=tmp_path)
    assert named.available_tasks(lines.append) == select(["churn", "otto"])
    assert len(lines) == 1
    with pytest.raises(DataError, match="fetch why/bank-marketing"):
        TaskSelection(benchmark="why", data=tmp_path).available_tasks()


def test_without_a_folder_the_sentence_says_what_else_to_name(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.delenv("TABR_DATA", raising=False)
    with pytest.raises(DataError, match="or name a table of yours and its --target"):
        TaskSelection().available_tasks()


def test_a_table_is_split_in_three_parts_that_hold_all_labelled_rows(tmp_path: Path):
    frame = write_user_table(tmp_path / "mine.csv", n=200)
    (task,) = tasks_of_table(UserTable(tmp_path / "mine.csv", "price"))
    assert (task.kind, task.metric, task.benchmark) == ("regression", "rmse", "own")
    parts = load(task)
    sizes = [len(part.y) for part in (parts.train, parts.val, parts.test)]
    assert sizes == [128, 32, 40]
    labels = np.concatenate([part.y for part in (parts.train, parts.val, parts.test)])
    assert sorted(labels) == sorted(frame["price"])
    assert "price" not in parts.train.X


def test_splits_differ_and_are_the_same_each_time(tmp_path: Path):
    write_user_table(tmp_path / "mine.csv")
    first, second = tasks_of_table(
        UserTable(tmp_path / "mine.csv", "price"), n_splits=2
    )
    assert (first.split, second.split) == (0, 1) and first.name == second.name
    again, other = load(first).test, load(second).test
    np.testing.assert_array_equal(again.y, load(first).test.y)
    assert sorted(again.y) != sorted(other.y)


def test_the_name_changes_with_the_rows_and_with_what_is_asked(tmp_path: Path):
    path = tmp_path / "mine.csv"

    def name_of(*about) -> str:
        return tasks_of_table(UserTable(path, *about))[0].name

    write_user_table(path)
    names = {name_of("price"), name_of("size"), name_of("price", ("size",))}
    names.add(name_of("price", (), (("size", "categorical"),)))
    assert name_of("price") in names
    write_user_table(path, seed=1)
    names.add(name_of("price"))
    assert len(names) == 5
    assert all(name.startswith("mine-") for name in names)


def test_what_is_ignored_is_no_feature(tmp_path: Path):
    write_user_table(tmp_path / "mine.csv")
    (task,) = tasks_of_table(UserTable(tmp_path / "mine.csv", "price", ("size",)))
    assert list(load(task).train.X.columns) == ["town"]


def test_a_named_kind_overrides_the_guess(tmp_path: Path):
    write_user_table(tmp_path / "mine.csv")
    kinds = (("size", "categorical"),)
    (task,) = tasks_of_table(
        UserTable(tmp_path / "mine.csv", "price", column_kinds=kinds)
    )
    assert task.column_kinds(load(task).train.X) == dict(kinds)


@pytest.mark.parametrize(
    ("ignored", "kinds", "message"),
    [
        (("size", "town"), (), "a table must have a feature, however all columns"),
        ((), (("town", "colour"),), "a kind must be one of numeric, .* 'colour'"),
        ((), (("twon", "binary"),), "has no column 'twon'; the closest are 'town'"),
        (("town",), (("town", "binary"),), "however 'town' is ignored"),
        ((), (("price", "numeric"),), "however 'price' is ignored or the target"),
    ],
)
def test_columns_that_cannot_be_so_are_refused(ignored, kinds, message, tmp_path: Path):
    write_user_table(tmp_path / "mine.csv")
    with pytest.raises(DataError, match=message):
        tasks_of_table(UserTable(tmp_path / "mine.csv", "price", ignored, kinds))


def test_classes_are_in_proportion_and_train_has_all_of_them(tmp_path: Path):
    path = tmp_path / "mine.parquet"
    labels = ["a"] * 70 + ["b"] * 28 + ["rare", "once"]
    pd.DataFrame({"x": range(100), "y": labels}).to_parquet(path)
    (task,) = tasks_of_table(UserTable(path, "y"))
    assert task.kind == "classification"
    parts = load(task)
    assert set(parts.train.y) == {"a", "b", "rare", "once"}
    assert np.mean(parts.test.y == "a") == pytest.approx(0.7, abs=0.06)


def test_rows_without_a_label_are_left_out(tmp_path: Path):
    path = tmp_path / "mine.csv"
    frame = write_user_table(path)
    frame.loc[::2, "price"] = np.nan
    frame.to_csv(path, index=False)
    parts = load(tasks_of_table(UserTable(path, "price"))[0])
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
    change(write_user_table(path)).to_csv(path, index=False)
    with pytest.raises(DataError, match=message):
        tasks_of_table(UserTable(path, target))
