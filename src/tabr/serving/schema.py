"""The columns of a model, and rows of plain values as tables with these columns."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pandas as pd

from tabr.errors import DataError
from tabr.report.places import Coordinates, find_coordinates
from tabr.tables.cells import ColumnKind
from tabr.text import plain, plain_rows

MOST_LEVELS = 50  # offered to choose from
Cell = Literal["number", "flag", "text"]
Row = Mapping[str, Any]


@dataclass(frozen=True)
class ColumnInfo:
    """A column of the rows that a model takes.

    Attributes:
        name: Its name.
        kind: The kind for the model; None if only a rule reads it.
        cell: The type of a cell in JSON. A date is text.
        levels: Values to choose from, the most frequent first; None for numbers.
        low: The smallest number; None for other kinds.
        high: The largest number.
        median: The median.
        example: A value.
    """

    name: str
    kind: ColumnKind | None
    cell: Cell
    levels: tuple[Any, ...] | None
    low: float | None
    high: float | None
    median: float | None
    example: Any


class Schema:
    """The columns of a row, and the way from rows to a table and back."""

    def __init__(self, model: Any) -> None:
        """Read the columns of a fitted model and its candidates."""
        frame: pd.DataFrame = model.candidates_.frame
        kinds: Mapping[str, ColumnKind] = model.preprocessor_.kinds_
        by_rule = () if model.candidates is None else model.candidates.columns
        names = [n for n in frame.columns if n in kinds or n in set(by_rule)]
        self.columns = [_describe(frame[name], kinds.get(name)) for name in names]
        # Requests may hold columns that nothing reads, as tables do.
        self.others = [str(n) for n in frame.columns if n not in set(names)]
        self.place: Coordinates | None = find_coordinates(frame, kinds)
        self._dtypes = {str(name): dtype for name, dtype in frame.dtypes.items()}

    def to_frame(self, rows: Sequence[Row]) -> pd.DataFrame:
        """Return rows as a table; a column that a row lacks is a missing value."""
        table: dict[str, Any] = {}
        for column in self.columns:
            cells = [row.get(column.name) for row in rows]
            table[column.name] = _series(cells, column, self._dtypes[column.name])
        return pd.DataFrame(table)

    def to_rows(self, frame: pd.DataFrame) -> list[dict[str, Any]]:
        """Return a table as rows of plain values, in the columns of the model."""
        names = [column.name for column in self.columns]
        return plain_rows(frame[[name for name in names if name in frame]])


def _describe(series: pd.Series[Any], kind: ColumnKind | None) -> ColumnInfo:
    values = series.dropna()
    is_flag = pd.api.types.is_bool_dtype(series.dtype)
    is_number = pd.api.types.is_numeric_dtype(series.dtype) and not is_flag
    cell: Cell = "flag" if is_flag else "number" if is_number else "text"
    levels: tuple[Any, ...] | None = None
    low = high = median = None
    if kind in ("binary", "categorical"):
        levels = tuple(plain(v) for v in values.value_counts().index[:MOST_LEVELS])
    elif cell == "number" and len(values):
        low, high = plain(values.min()), plain(values.max())
        median = plain(values.median())
    example = plain(values.iloc[len(values) // 2]) if len(values) else None
    return ColumnInfo(str(series.name), kind, cell, levels, low, high, median, example)


def _series(cells: list[Any], column: ColumnInfo, dtype: Any) -> pd.Series[Any]:
    """Return cells as a series of the type that the model was fitted on."""
    if column.cell == "number":
        return pd.Series([math.nan if v is None else v for v in cells], dtype=float)
    if pd.api.types.is_datetime64_any_dtype(dtype):
        return _dates(cells, column.name)
    return pd.Series(cells, dtype=object)


def _dates(cells: list[Any], name: str) -> pd.Series[Any]:
    """Return dates, written as in ISO 8601, as a series."""
    texts = pd.Series(cells, dtype=object)
    dates = pd.to_datetime(texts, errors="coerce", format="ISO8601")
    wrong = texts[dates.isna() & texts.notna()]
    if len(wrong):
        raise DataError(
            f"a date must be like 2024-05-31 or 2024-05-31T12:00:00, however column"
            f" {name!r} holds {str(wrong.iloc[0])!r:.40}"
        )
    return dates
