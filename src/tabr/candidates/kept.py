"""Rows to keep beside others: in the form of the first, so that all can be joined.

Columns of dates may differ in unit and zone, and numbers, dates and spans of time may
come as text or as one another. Joined as they come they would be objects of several
types, or dates that no unit holds: what the model reads alike is kept alike.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd

from tabr.errors import DataError, TabrError
from tabr.tables.cells import Cells, check_years


class Form(NamedTuple):
    """How a column is kept: what it holds, and as which type."""

    nature: Literal["number", "flag", "date", "text"]
    dtype: Any


def forms_of(frame: pd.DataFrame) -> dict[str, Form]:
    """Return the forms of columns; one that nobody can read has none."""
    forms = {}
    for name in frame:
        cells = _cells(frame[name], str(name))
        if cells is not None:
            forms[str(name)] = Form(cells.nature, frame[name].dtype)
    return forms


def kept(
    frame: pd.DataFrame, forms: dict[str, Form], columns: list[str]
) -> pd.DataFrame:
    """Return the columns in these forms; absent ones are missing.

    What the forms cannot hold, such as dates beyond their unit, is refused.
    """
    frame = frame.reindex(columns=columns)
    return pd.DataFrame({name: _kept(frame[name], name, forms) for name in columns})


def _cells(series: pd.Series[Any], name: str) -> Cells | None:
    """Return a column's cells; None if they cannot be read, as in ignored columns."""
    try:
        return Cells.read(series, name, in_fit=False)
    except TabrError:
        return None


def _kept(series: pd.Series[Any], name: str, forms: dict[str, Form]) -> pd.Series[Any]:
    cells, form = _cells(series, name), forms.get(name)
    if cells is None:
        return series
    cells.check()
    if form is None or form.nature == "text" or series.dtype == form.dtype != object:
        return series
    if form.nature == "date":
        return series if series.dtype == object == form.dtype else _dates(cells, form)
    if pd.api.types.is_timedelta64_dtype(form.dtype):
        return _spans(cells, form)
    if cells.nature in ("number", "flag") and cells.series is series:
        return series
    return pd.Series(cells.numbers(flag=form.nature == "flag"))


def _dates(cells: Cells, form: Form) -> pd.Series[Any]:
    """Return dates in a form's unit and zone, or microseconds if they are finer."""
    times = pd.Series(cells.dates())
    if isinstance(form.dtype, pd.PeriodDtype) and not cells.missing.all():
        raise DataError(
            f"column {cells.name!r} held periods in fit, however other dates came: give"
            f" periods of {form.dtype.freq.freqstr!r}"
        )
    if not pd.api.types.is_datetime64_any_dtype(form.dtype):
        return times
    zone = getattr(form.dtype, "tz", None)
    unit = np.datetime_data(form.dtype)[0] if zone is None else form.dtype.unit
    try:
        in_unit = times.dt.as_unit(unit)
    except pd.errors.OutOfBoundsDatetime as error:
        limits = pd.Timestamp.min.year, pd.Timestamp.max.year
        raise DataError(
            f"column {cells.name!r} is kept in nanoseconds, which end in the years"
            f" {limits[0]} and {limits[1]}, however a date beyond them came ({error}):"
            " leave the cell empty, or fit again with dates in microseconds"
        ) from error
    if (in_unit == times).equals(times.notna()):
        times = in_unit
    if zone is None:
        return times
    local: pd.Series[Any] = times.dt.tz_localize("UTC").dt.tz_convert(zone)
    check_years(local.dt.tz_localize(None).to_numpy(), cells.name)
    return local


def _spans(cells: Cells, form: Form) -> pd.Series[Any]:
    """Return spans of time in a form's unit, or microseconds if they are finer."""
    try:
        spans = pd.Series(pd.to_timedelta(cells.numbers(), unit="s"))
    except pd.errors.OutOfBoundsTimedelta as error:
        raise DataError(
            f"column {cells.name!r} holds spans of time, however a number of seconds"
            f" came that no span holds ({error}): leave the cell empty"
        ) from error
    unit: Any = np.datetime_data(form.dtype)[0]
    in_unit = spans.dt.as_unit(unit)
    same = (in_unit == spans).equals(spans.notna())
    return in_unit if same else spans.dt.as_unit("us")
