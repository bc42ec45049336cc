"""Tables from OpenML, in the form in which the benchmark reads them.

scikit-learn downloads, keeps a copy and compares its checksum with OpenML's. What comes
is written only if it is the paper's table: as many rows and features and, where the
splits are the paper's too, the published spread of test labels.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from http.client import HTTPException
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.datasets import fetch_openml

from tabr.bench.tasks.catalog import select
from tabr.bench.tasks.splits import default_split, why_split
from tabr.bench.tasks.task import Task, files_of, how_to_get, is_present
from tabr.errors import DataError
from tabr.tables.files import draft_of

_TOLERANCE = 1e-5  # of a label check; one row of a class counts for more
_EXACT = 2**53  # float64 has every whole number below it
_FALSE, _TRUE = ("0", "0.0", "false"), ("1", "1.0", "true")
_TRUTH = dict.fromkeys(_FALSE, False) | dict.fromkeys(_TRUE, True)


def fetch(
    task: Task, folder: Path, cache: str | os.PathLike[str] | None = None
) -> Path:
    """Fetch the table of a task, write it into a folder and return its path.

    Beside `NAME.parquet` stand `NAME.split.parquet`, if the task has a split file, with
    all splits, and `NAME.json`, with the source and the checksums of both. The
    table comes last: where it is, all is. Downloads are kept in `cache`, or else in
    scikit-learn's own folder.
    """
    path, *split_path = files_of(task, folder)
    if task.origin.openml is None:
        raise DataError(
            f"a table must be on OpenML to be fetched, however {task.label} is not:"
            f" {how_to_get([task])}"
        )
    if path.exists():
        raise DataError(
            f"a table is never written over, however {path} is there: move it away to"
            " fetch it again"
        )
    bunch = _download(task, cache)
    (target,) = bunch.target_names
    table = to_table(bunch.frame, target, task)
    _check_shape(task, table)
    frames = {path: table}
    if split_path:
        splits = split_table(task, table)
        _check_labels(task, table, splits)
        frames[split_path[0]] = splits
    about = {
        "source": f"OpenML {task.origin.openml}",
        "name": bunch.details["name"],
        "version": bunch.details["version"],
        "md5_of_source": bunch.details["md5_checksum"],
        "rows": len(table),
        "features": table.shape[1] - 1,
    }
    _write(frames, path.with_suffix(".json"), about)
    return path


def fetch_missing(
    labels: Sequence[str],
    folder: Path,
    cache: str | os.PathLike[str] | None = None,
) -> Iterator[tuple[Task, Path | None]]:
    """Yield the sets with these labels, each with the path of its table.

    The path is None where the folder has had the table before.
    """
    for task in {task.label: task for task in select(labels)}.values():
        yield task, None if is_present(task, folder) else fetch(task, folder, cache)


def _download(task: Task, cache: str | os.PathLike[str] | None) -> Any:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "A network error occurred")  # it tries again
        try:
            # The other parser is faster, but up to scikit-learn 1.9.1 it stumbles over
            # classes 0 and 1 with pandas 3.1.
            return fetch_openml(
                data_id=task.origin.openml,
                as_frame=True,
                parser="liac-arff",
                data_home=cache,
            )
        except (OSError, HTTPException) as error:  # a URLError is an OSError
            raise DataError(
                f"{task.label} must come from OpenML, however it cannot be reached"
                f" ({error}): try again with a network, or put the files there yourself"
            ) from error
        except Exception as error:  # unknown, damaged or of a form it cannot read
            raise DataError(
                f"{task.label} must come from OpenML {task.origin.openml}, however"
                f" scikit-learn cannot take it: {' '.join(str(error).split())}"
            ) from error


# --- the form of the files --------------------------------------------------------


def to_table(frame: pd.DataFrame, target: str, task: Task) -> pd.DataFrame:
    """Return a table of OpenML in the form of the benchmark's files.

    The label is the column "target": a number, or a class as 0, 1, ... in their order.
    Features are whole numbers of the smallest type, float32, bool for the levels 0 and
    1, or categories of text. Rows with a missing value are left out, as in the paper.
    """
    if "target" in frame.columns.drop(target):
        raise DataError(
            'the name "target" must be the label\'s, however a feature of'
            f" {task.label} has it too"
        )
    frame = frame.dropna(ignore_index=True)
    label = frame.pop(target)
    columns = {str(name): _feature(column) for name, column in frame.items()}
    if task.kind == "regression":
        columns["target"] = _number(pd.to_numeric(label.astype(object)), np.float64)
    else:
        columns["target"] = _classes(label)
    return pd.DataFrame(columns)


def _feature(column: pd.Series[Any]) -> pd.Series[Any]:
    if pd.api.types.is_bool_dtype(column.dtype):
        return column.astype(bool)
    if pd.api.types.is_numeric_dtype(column.dtype):
        return _number(column, np.float32)
    text = column.astype(str).astype(object)
    levels = {value: _TRUTH.get(value.lower()) for value in text.unique()}
    if set(levels.values()) == {False, True}:
        return text.map(levels).astype(bool)
    return text.astype("category")


def _number(column: pd.Series[Any], float_type: type[Any]) -> pd.Series[Any]:
    """Numbers in the smallest signed type if all are whole, else as floats."""
    values = column.to_numpy(np.float64)
    low, high = values.min(initial=0), values.max(initial=0)
    if max(-low, high) >= _EXACT or np.any(values != np.rint(values)):
        return pd.Series(values.astype(float_type))
    return pd.Series(values.astype(np.min_scalar_type(int(min(low, -high - 1)))))


def _classes(label: pd.Series[Any]) -> pd.Series[Any]:
    """Codes of classes, which are ordered as numbers if all are numbers."""
    text = label.astype(str).astype(object)
    numbers = pd.to_numeric(text, errors="coerce")
    _, codes = np.unique(text if numbers.isna().any() else numbers, return_inverse=True)
    return _number(pd.Series(codes), np.float64)


def split_table(task: Task, table: pd.DataFrame) -> pd.DataFrame:
    """Return the splits of a set as in its split file: all of them, row by row."""
    y = table["target"].to_numpy()
    if task.benchmark == "default":
        stratified = task.kind == "classification"
        return pd.DataFrame({"part": default_split(y, stratified=stratified)})
    X = table.drop(columns="target")
    n_most = 50_000 if "-large-" in task.published else 10_000
    tasks = select([task.label])
    return pd.DataFrame({t.split_column: why_split(X, t.split, n_most) for t in tasks})


# --- is it the paper's? -------------------------------------------------------------


def _check_shape(task: Task, table: pd.DataFrame) -> None:
    origin = task.origin
    n_rows, n_features = len(table), table.shape[1] - 1
    if (n_rows, n_features) != (origin.n_rows, origin.n_features):
        raise DataError(
            f"{task.label} must have {origin.n_rows} rows and {origin.n_features}"
            f" features as in the paper, however OpenML {origin.openml} has {n_rows}"
            f" and {n_features}: nothing was written"
        )


def label_check(y: NDArray[Any], kind: str) -> float:
    """Return the `Origin.label_check` of test labels y (n,).

    >>> label_check(np.array([0, 1, 1, 0, 1]), "classification")
    2.0
    """
    if kind == "classification":
        return float(np.unique(y, return_counts=True)[1].min())
    return float(np.std(y.astype(np.float64)))


def _check_labels(task: Task, table: pd.DataFrame, splits: pd.DataFrame) -> None:
    published = task.origin.label_check
    if published is None:
        return
    test = (splits.iloc[:, 0] == "test").to_numpy()
    value = label_check(table["target"].to_numpy()[test], task.kind)
    if not math.isclose(value, published, rel_tol=_TOLERANCE):
        raise DataError(
            f"the test labels of {task.label} must give {published:.8g} as in the"
            f" paper, however those of OpenML {task.origin.openml} give {value:.8g}, so"
            " labels or the order of rows are others: nothing was written"
        )


# --- files ----------------------------------------------------------------------------


def _write(frames: dict[Path, pd.DataFrame], about_path: Path, about: Any) -> None:
    """Write what belongs to a table, the first path last, whole or not at all."""
    about_path.parent.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:  # leaves the first path last
        drafts = {path: stack.enter_context(draft_of(path)) for path in frames}
        about_draft = stack.enter_context(draft_of(about_path))
        for path, frame in frames.items():
            frame.to_parquet(drafts[path], index=False, compression="zstd")
        sums = {
            path.name: hashlib.sha256(draft.read_bytes()).hexdigest()
            for path, draft in drafts.items()
        }
        text = json.dumps({**about, "sha256": sums}, indent=1)
        about_draft.write_text(text + "\n", "utf-8")
