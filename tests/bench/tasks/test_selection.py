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
