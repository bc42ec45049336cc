from pathlib import Path

import pytest

from tabr.bench.tasks.catalog import select
from tabr.bench.tasks.selection import TaskSelection
from tabr.bench.tasks.task import UserTable
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
    tasks, absent = selection.split_by_presence()
    assert [task.split for task in tasks] == [0, 1, 2] and absent == []


def test_a_benchmark_may_lack_tables_and_a_named_task_is_kept(tmp_path: Path):
    write_churn(tmp_path)
    tasks, absent = TaskSelection(data=tmp_path).split_by_presence()
    assert tasks == select(["churn"])
    assert {*tasks, *absent} == set(select(benchmark="default"))
    named = TaskSelection(labels=["churn", "otto"], data=tmp_path)
    assert named.split_by_presence() == (select(["churn", "otto"]), [])
    with pytest.raises(DataError, match="fetch why/bank-marketing"):
        TaskSelection(benchmark="why", data=tmp_path).split_by_presence()


def test_without_a_folder_the_sentence_says_what_else_to_name(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.delenv("TABR_DATA", raising=False)
    with pytest.raises(DataError, match="or name a table of yours and its --target"):
        TaskSelection().split_by_presence()
