"""The two parts of a table that an audit compares: training and test rows."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tabr.audit.findings import Ids
from tabr.errors import DataError, ParameterError
from tabr.tables.frame import to_frame

MIN_NUMBERED = 30  # rows from which on distinct values are taken for names of rows
MAX_STEP = 100  # between numbers of rows that follow each other


@dataclass(frozen=True)
class Part:
    """Rows of one part: ids, frame and labels, all of length n."""

    ids: Ids
    frame: pd.DataFrame
    y: NDArray[Any] | None

    def take(self, index: Ids) -> Part:
        """Return the rows at index."""
        frame = self.frame.iloc[index].reset_index(drop=True)
        return Part(self.ids[index], frame, None if self.y is None else self.y[index])

    def with_columns(self, names: list[str]) -> Part:
        """Return the rows with these columns only."""
        return replace(self, frame=self.frame[names])


def read_parts(
    X: object,
    y: object,
    X_test: object,
    y_test: object,
    test_rows: object,
    test_fraction: float,
    rng: np.random.Generator,
) -> tuple[Part, Part, list[str]]:
    """Return training rows, test rows and notes, of what `audit` was given."""
    whole = _read_part(X, y, "X")
    if X_test is not None and test_rows is not None:
        raise ParameterError(
            "the test part must be given once, however both X_test and test_rows came:"
            " leave one out"
        )
    if X_test is not None:
        test = _read_part(X_test, y_test, "X_test")
        _check_columns(whole, test)
        return whole, test, []
    if test_rows is not None:
        return *_split_at(whole, test_rows), []
    train, test = _hold_out(whole, test_fraction, rng)
    counts = f"{len(test.ids)} of {len(whole.ids)}"
    note = f"no test part was given: {counts} rows were held out at random"
    return train, test, [note]


def _read_part(X: object, y: object, name: str) -> Part:
    """Return rows and labels; `name` is that of X in messages."""
    frame = to_frame(X)
    ids = np.arange(len(frame))
    if y is None:
        return Part(ids, frame, None)
    series = y if isinstance(y, pd.Series) else pd.Series(np.asarray(y).ravel())
    if len(series) != len(frame):
        raise DataError(
            f"each row needs one label, however {name} has {len(frame)} rows and"
            f" {len(series)} labels: give as many"
        )
    return Part(ids, frame, series.to_numpy())


def _check_columns(train: Part, test: Part) -> None:
    """Refuse a test part without a column of the training part."""
    absent = [c for c in train.frame.columns if c not in test.frame.columns]
    if absent:
        raise DataError(
            f"both parts must have the same columns, however the test part has no"
            f" {absent}: add them, or ignore them in both"
        )


def _split_at(whole: Part, test_rows: object) -> tuple[Part, Part]:
    """Return training and test rows, of a mask or positions of test rows."""
    n = len(whole.ids)
    mask = np.zeros(n, bool)
    mask[np.asarray(test_rows)] = True
    if not 0 < mask.sum() < n:
        raise DataError(
            f"both parts need rows, however {int(mask.sum())} of {n} are test rows:"
            " name some of them"
        )
    return whole.take(np.flatnonzero(~mask)), whole.take(np.flatnonzero(mask))


def _hold_out(
    whole: Part, fraction: float, rng: np.random.Generator
) -> tuple[Part, Part]:
    """Return training rows, and a random share as test rows."""
    if not 0 < fraction < 1:
        raise ParameterError(
            f"`0 < test_fraction < 1` must hold, however: {fraction=}: choose a share"
        )
    n = len(whole.ids)
    if n < 2:
        raise DataError(f"an audit needs 2 rows, however {n} came: add rows")
    order = rng.permutation(n)
    n_test = min(max(1, round(n * fraction)), n - 1)
    return whole.take(np.sort(order[n_test:])), whole.take(np.sort(order[:n_test]))


def used_columns(
    frame: pd.DataFrame, ignore: Collection[str]
) -> tuple[list[str], list[str]]:
    """Return the columns to compare, and those left out as they number the rows."""
    ignored = {ignore} if isinstance(ignore, str) else set(ignore)
    unknown = sorted(ignored - set(frame.columns))
    if unknown:
        raise DataError(
            f"ignored columns must be columns of the table, however it has no"
            f" {unknown}: the columns are {list(frame.columns)}"
        )
    columns = [name for name in frame.columns if name not in ignored]
    if not columns:
        raise DataError("an audit needs a column, however all are ignored: keep one")
    numbering = [name for name in columns if _numbers_rows(frame[name])]
    if len(numbering) == len(columns):
        return columns, []
    return [name for name in columns if name not in numbering], numbering


def _numbers_rows(column: pd.Series[Any]) -> bool:
    """Whether a column is a name or a number of each row."""
    if len(column) < MIN_NUMBERED or not column.is_unique:
        return False
    if pd.api.types.is_integer_dtype(column.dtype):
        # Quantities may be distinct too, but they are not in order without gaps.
        return bool(column.is_monotonic_increasing and column.diff().max() <= MAX_STEP)
    return bool(
        pd.api.types.is_object_dtype(column.dtype)
        or pd.api.types.is_string_dtype(column.dtype)
    )
