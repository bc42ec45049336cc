"""The columns of a model, and rows of plain values as tables with these columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import pandas as pd
from pydantic import BaseModel, Field

from tabr.errors import DataError
from tabr.tables.cells import ColumnKind
from tabr.tables.coordinates import Coordinates, find_coordinates
from tabr.text import plain, plain_list, plain_rows

MOST_LEVELS = 50  # offered to choose from
Row = dict[str, Any]
Value = bool | float | str


class Column(BaseModel):
    """A column of the rows that a model takes, and the values that are usual in it."""

    name: str
    kind: ColumnKind | None = Field(description="null if only a rule reads it")
    cell: Literal["number", "flag", "text"] = Field(
        description="the type of a cell in JSON; a date is text"
    )
    levels: list[Value] | None = None
    low: float | None = None
    high: float | None = None
    median: float | None = None
    example: Value | None = None


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

    def to_rows(self, frame: pd.DataFrame) -> list[Row]:
        """Return a table as rows of plain values, in the columns of the model."""
        names = [column.name for column in self.columns]
        return plain_rows(frame[[name for name in names if name in frame]])


def _describe(series: pd.Series[Any], kind: ColumnKind | None) -> Column:
    values = series.dropna()
    is_flag = pd.api.types.is_bool_dtype(series.dtype)
    is_number = pd.api.types.is_numeric_dtype(series.dtype) and not is_flag
    cell: Any = "flag" if is_flag else "number" if is_number else "text"
    usual: dict[str, Any] = {}
    if kind in ("binary", "categorical"):
        usual["levels"] = plain_list(values.value_counts().index[:MOST_LEVELS])
    elif is_number and len(values):
        usual["low"], usual["high"] = plain(values.min()), plain(values.max())
        usual["median"] = plain(values.median())
    if len(values):
        usual["example"] = plain(values.iloc[len(values) // 2])
    return Column(name=str(series.name), kind=kind, cell=cell, **usual)


def _series(cells: list[Any], column: Column, dtype: Any) -> pd.Series[Any]:
    """Return cells as a series of the type that the model was fitted on."""
    if column.cell == "number":
        return pd.Series(cells, dtype=float)
    texts = pd.Series(cells, dtype=object)
    if not pd.api.types.is_datetime64_any_dtype(dtype):
        return texts
    dates = pd.to_datetime(texts, errors="coerce", format="ISO8601")
    wrong = texts[dates.isna() & texts.notna()]
    if len(wrong):
        raise DataError(
            f"a date must be like 2024-05-31 or 2024-05-31T12:00:00, however column"
            f" {column.name!r} holds {str(wrong.iloc[0])!r:.40}"
        )
    return dates
