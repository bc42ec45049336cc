from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tabr.bench.tasks.catalog import select
from tabr.bench.tasks.task import (
    Task,
    check_files,
    data_folder,
    how_to_get,
    is_present,
    load,
)
from tabr.errors import DataError

from ..tables import write_churn, write_wine

CHURN, HIGGS = select(["churn", "higgs-small"])


def present(tasks: list[Task], folder: Path) -> tuple[list[Task], list[Task]]:
    """The tasks that a folder has the tables of, and those that it lacks."""
    complete = [task for task in tasks if is_present(task, folder)]
    return complete, [task for task in tasks if not is_present(task, folder)]


def task_of(label: str, split: int = 0) -> Task:
    return select([label])[split]


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


def test_the_sentence_tells_where_missing_tables_come_from(tmp_path: Path):
    tasks = [CHURN, *select(["why/rl"]), *select(["why/wine"])]
    with pytest.raises(DataError) as caught:
        check_files(tasks, tmp_path)
    message = str(caught.value)
    assert message.endswith(how_to_get(tasks))
    assert "bench fetch why/rl why/wine`, take churn from https" in message


def test_present_tells_tasks_by_what_is_in_the_folder(tmp_path: Path):
    wine, rl = select(["why/wine"]), select(["why/rl"])
    assert present([CHURN, *wine], tmp_path) == ([], [CHURN, *wine])
    write_churn(tmp_path)
    write_wine(tmp_path)
    assert present([*rl, CHURN, *wine], tmp_path) == ([CHURN, *wine], rl)
    (tmp_path / "why" / "wine.split.parquet").unlink()
    assert present([CHURN, *wine], tmp_path) == ([CHURN], wine)


@pytest.mark.parametrize("part", ["train", "val"])
def test_a_split_without_training_rows_does_not_count(tmp_path: Path, part: str):
    frame = pd.DataFrame({"x": np.arange(4.0), "target": [0, 1, 0, 1]})
    frame.to_parquet(tmp_path / "higgs-small.parquet")
    split = pd.DataFrame({"part": ["val", "val", "test", part]})
    split.to_parquet(tmp_path / "higgs-small.split.parquet")
    is_there = part == "train"
    assert (present([HIGGS], tmp_path)[0] == [HIGGS]) is is_there
    if not is_there:
        with pytest.raises(DataError, match="lacks training rows of part in higgs"):
            load(HIGGS, tmp_path)


def test_a_split_that_the_file_lacks_does_not_count(tmp_path: Path):
    _, splits = write_wine(tmp_path)
    first_two = splits[["split0", "split1"]]
    first_two.to_parquet(tmp_path / "why" / "wine.split.parquet")
    wine = select(["why/wine"])
    assert present(wine, tmp_path) == (wine[:2], wine[2:])


def test_split_of_another_table_is_refused(tmp_path: Path):
    _, splits = write_wine(tmp_path)
    splits.head(5).to_parquet(tmp_path / "why" / "wine.split.parquet")
    with pytest.raises(DataError, match="5 rows"):
        load(task_of("why/wine"), tmp_path)
