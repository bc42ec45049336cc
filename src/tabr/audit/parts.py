"""The two parts of a table that an audit compares: training and test rows."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tabr.audit.findings import Ids
from tabr.audit.labels import Labels
from tabr.errors import DataError, ParameterError
from tabr.optional import cached_property
from tabr.tables.frame import to_frame

MIN_NUMBERED = 30  # rows from which on distinct values are taken for names of rows
MAX_STEP = 100  # between numbers of rows that follow each other


@dataclass(frozen=True)
class Part:
    """Rows of one part: ids, frame and labels, all of length n."""

    ids: Ids
    frame: pd.DataFrame
    y: NDArray[Any] | None

    @cached_property
    def labels(self) -> Labels | None:
        """The labels as numbers or classes; None if there are none."""
        return None if self.y is None else Labels(self.y)

    def take(self, index: Ids) -> Part:
        """Return the rows at index."""
        frame = self.frame.iloc[index].reset_index(drop=True)
        return Part(self.ids[index], frame, None if self.y is None else self.y[index])

    def with_columns(self, names: list[str]) -> Part:
        """Return the rows with these columns only."""
        return replace(self, frame=self.frame[names])


def agreement_text(
    train: Part, test: Part, rows: NDArray[np.bool_], partners: Ids
) -> str:
    """Return how many labels of rows (q,) are their partners' (q,), as a clause."""
    if train.labels is None or test.y is None:
        return ""
    agree = train.labels.agree(test.y[rows], partners[rows])
    n_agree = int(agree.sum())
    return f"; {n_agree} of their labels agree, {len(agree) - n_agree} contradict"


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
    if X_test is not None:
        if test_rows is not None:
            raise ParameterError(
                "the test part must be given once, however both X_test and test_rows"
                " came: leave one out"
            )
        test = _read_part(X_test, y_test, "X_test")
        absent = [c for c in whole.frame.columns if c not in test.frame.columns]
        if absent:
            raise DataError(
                "both parts must have the same columns, however the test part has no"
                f" {absent}: add them, or ignore them in both"
            )
        return whole, test, []
    n = len(whole.ids)
    notes = []
    if test_rows is None:
        if not 0 < test_fraction < 1:
            raise ParameterError(
                f"`0 < test_fraction < 1` must hold, however: {test_fraction=}:"
                " choose a share"
            )
        n_test = min(max(1, round(n * test_fraction)), n - 1)
        test_rows = rng.permutation(n)[: max(n_test, 0)]
        notes = [
            f"no test part was given: {n_test} of {n} rows were held out at random"
        ]
    mask = np.zeros(n, bool)
    mask[np.asarray(test_rows)] = True
    if not 0 < mask.sum() < n:
        raise DataError(
            f"both parts need rows, however {int(mask.sum())} of {n} are test rows:"
            " add rows, or name others"
        )
    return whole.take(np.flatnonzero(~mask)), whole.take(np.flatnonzero(mask)), notes


def _read_part(X: object, y: object, name: str) -> Part:
    """Return rows and labels; `name` is that of X in messages."""
    frame = to_frame(X)
    labels = None if y is None else np.asarray(y).ravel()
    if labels is not None and len(labels) != len(frame):
        raise DataError(
            f"each row needs one label, however {name} has {len(frame)} rows and"
            f" {len(labels)} labels: give as many"
        )
    return Part(np.arange(len(frame)), frame, labels)


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
