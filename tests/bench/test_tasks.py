from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tabr.bench.tasks import (
    DEFAULT,
    TASKS,
    WHY,
    Task,
    check_files,
    data_folder,
    load,
    own_split,
    select,
)
from tabr.frames import DataError

from .tables import write_churn, write_wine

CHURN = next(task for task in DEFAULT if task.name == "churn")


def task_of(label: str, split: int = 0) -> Task:
    return next(t for t in TASKS if t.label == label and t.split == split)


def test_every_task_has_its_own_published_figure():
    assert len({task.published for task in TASKS}) == len(TASKS)
    assert len({(task.label, task.split) for task in TASKS}) == len(TASKS)


def test_published_name_holds_group_split_and_name():
    assert task_of("why/rl", 2).published == "why/classif-cat-medium-2-rl"
    assert (
        task_of("why/isolet-part", 1).published == "why/regression-num-medium-1-isolet"
    )


def test_nineteen_sets_of_the_second_benchmark_can_be_compared():
    assert len({task.name for task in WHY}) == 23
    assert len({task.name for task in WHY if task.comparable}) == 19


def test_a_benchmark_leaves_out_what_cannot_be_compared():
    labels = {task.label for task in select(benchmark="all")}
    assert {"california", "why/california"} <= labels
    assert "why/jannis-part" not in labels
    assert {task.benchmark for task in select(benchmark="why")} == {"why"}


def test_a_task_can_be_named_even_if_it_cannot_be_compared():
    assert [t.label for t in select(["why/jannis-part"])] == ["why/jannis-part"]


def test_unknown_task_is_refused():
    with pytest.raises(DataError, match="these came: wine"):
        select(["wine"])


def test_split_file_decides_the_parts_and_unused_rows_are_left_out(tmp_path: Path):
    frame, splits = write_wine(tmp_path)
    parts = load(task_of("why/wine", 1), tmp_path)
    for name in ("train", "val", "test"):
        rows = frame[(splits["split1"] == name).to_numpy()]
        part = getattr(parts, name)
        np.testing.assert_array_equal(part.y, rows["target"])
        assert part.X.shape == (len(rows), frame.shape[1] - 1)
        assert "target" not in part.X
    n_rows = sum(len(p.y) for p in (parts.train, parts.val, parts.test))
    assert n_rows == (splits["split1"] != "unused").sum() < len(frame)


def test_table_without_split_is_split_the_same_way_each_time(tmp_path: Path):
    frame = write_churn(tmp_path)
    parts, again = load(CHURN, tmp_path), load(CHURN, tmp_path)
    pd.testing.assert_frame_equal(parts.train.X, again.train.X)
    sizes = [len(p.y) for p in (parts.train, parts.val, parts.test)]
    assert sizes == [round(len(frame) * share) for share in (0.64, 0.16, 0.2)]


def test_own_split_keeps_the_share_of_each_class():
    y = np.repeat([0, 1, 2], [700, 250, 50])
    parts = own_split(y, stratified=True)
    for code in range(3):
        found = pd.Series(parts[y == code]).value_counts(normalize=True)
        assert found["test"] == pytest.approx(0.2, abs=0.02)
        assert found["val"] == pytest.approx(0.16, abs=0.02)


def test_text_is_categorical_unless_the_task_names_it_binary(tmp_path: Path):
    write_churn(tmp_path)
    frame = load(CHURN, tmp_path).train.X
    assert CHURN.column_kinds(frame) == {"Geography": "categorical"}
    assert task_of("why/rl").column_kinds(frame) == {
        "Geography": "categorical",
        "Gender": "categorical",
    }


def test_folder_comes_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    write_churn(tmp_path)
    monkeypatch.setenv("TABR_DATA", str(tmp_path))
    assert len(load(CHURN).train.y) > 0
    monkeypatch.delenv("TABR_DATA")
    with pytest.raises(DataError, match="TABR_DATA"):
        data_folder()


def test_missing_files_are_named_in_one_sentence(tmp_path: Path):
    write_churn(tmp_path)
    with pytest.raises(DataError) as caught:
        check_files([CHURN, task_of("why/wine"), task_of("why/wine", 1)], tmp_path)
    message = str(caught.value)
    assert "lacks why/wine.parquet, why/wine.split.parquet:" in message
    assert "\n" not in message


def test_split_of_another_table_is_refused(tmp_path: Path):
    _, splits = write_wine(tmp_path)
    splits.head(5).to_parquet(tmp_path / "why" / "wine.split.parquet")
    with pytest.raises(DataError, match="5 rows"):
        load(task_of("why/wine"), tmp_path)
