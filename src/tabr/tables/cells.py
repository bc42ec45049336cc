"""One column as it came, read as numbers, dates or levels.

Cells that have no such reading are refused with a `DataError` that names the column.
"""

from __future__ import annotations

import datetime
import numbers
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd
from pandas.api import types as pandas_types

from tabr.errors import CellTypeError, DataError
from tabr.optional import cached_property
from tabr.tables.frame import broken_text, nested
from tabr.text import is_unicode

ColumnKind = Literal["numeric", "binary", "categorical", "date"]
Cycle = Literal["day", "week", "month", "year"]
Floats = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int64]
Flags = npt.NDArray[np.float32]

# Days of a whole turn, by cycle; months and years vary.
TURNS: dict[Cycle, float] = {"day": 1.0, "week": 7.0, "month": 31.0, "year": 366.0}

_DATED = re.compile(r"\d{4}-\d{2}-\d{2}(?![^T ])")  # the start of an ISO date or time
_FIRST, _END = np.array(["0001-01-01", "10000-01-01"], "datetime64[s]")
_FEW = 1000  # texts, which numpy tells apart faster than pandas


def _text(value: object) -> str:
    """Write a level; 1.0 reads "1", so files may turn whole numbers into floats."""
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    if (
        isinstance(value, Decimal)
        and value.is_finite()
        and value == value.to_integral_value()
    ):
        return str(int(value))
    return str(value)


def plain_columns(frame: pd.DataFrame) -> npt.NDArray[np.bool_]:
    """Return which columns `plain_numbers` can read (p,)."""
    return np.array(
        [isinstance(dtype, np.dtype) and dtype.kind in "biuf" for dtype in frame.dtypes]
    )


def plain_numbers(frame: pd.DataFrame, positions: list[int]) -> Floats:
    """Return k plain columns as numbers (k, n), much faster than one by one.

    They are those of `Cells.numbers`, except that infinite ones are not refused.
    """
    if len(positions) < frame.shape[1]:
        return frame.take(positions, axis=1).to_numpy(dtype=np.float64).T
    values = frame.to_numpy(dtype=np.float64).T
    return values if positions == list(range(len(positions))) else values[positions]


@dataclass(frozen=True)
class Cells:
    """One column as it came, and the ways to read it."""

    name: str
    series: pd.Series[Any]
    nature: Literal["number", "flag", "date", "text"]
    in_fit: bool

    @classmethod
    def read(cls, series: pd.Series[Any], name: str, in_fit: bool) -> Cells:
        """Return what a column holds; `in_fit` only words the messages."""
        dtype = series.dtype
        if isinstance(dtype, pd.CategoricalDtype):
            return cls(name, series, "text", in_fit)
        if isinstance(dtype, pd.SparseDtype):
            series = pd.Series(np.asarray(series))
        elif isinstance(dtype, pd.PeriodDtype):
            series = series.dt.to_timestamp()
        elif isinstance(dtype, pd.ArrowDtype):
            if dtype.pyarrow_dtype.num_fields > 0:
                raise nested(name, dtype)
            if not pandas_types.is_numeric_dtype(dtype):
                series = series.astype(object)
        dtype = series.dtype
        if pandas_types.is_object_dtype(dtype):
            return cls._read_objects(series, name, in_fit)
        if pandas_types.is_complex_dtype(dtype):
            raise _complex(name)
        if pandas_types.is_timedelta64_dtype(dtype):
            return cls(name, series.dt.total_seconds(), "number", in_fit)
        if pandas_types.is_bool_dtype(dtype):
            return cls(name, series, "flag", in_fit)
        if pandas_types.is_datetime64_any_dtype(dtype):
            return cls(name, series, "date", in_fit)
        number = pandas_types.is_numeric_dtype(dtype)
        return cls(name, series, "number" if number else "text", in_fit)

    @classmethod
    def _read_objects(cls, series: pd.Series[Any], name: str, in_fit: bool) -> Cells:
        cells = series.to_numpy()
        types_of_cells = set(map(type, cells[~pd.isna(cells)]))

        def all_are(*kinds: type) -> bool:
            return all(issubclass(t, kinds) for t in types_of_cells)

        for t in types_of_cells:
            if t.__hash__ is None or issubclass(t, tuple):
                nested_ones = [type(v) is t and not _is_single(v) for v in series]
                if not any(nested_ones):
                    continue
                row = int(np.argmax(nested_ones))
                raise CellTypeError(
                    f"argument must be a string or a number, however column {name!r}"
                    f" holds a {t.__name__} in row {row}; split or drop the column"
                )
            if issubclass(t, numbers.Complex) and not issubclass(t, numbers.Real):
                raise _complex(name)
        if types_of_cells and all_are(bool, np.bool_):
            return cls(name, series, "flag", in_fit)
        if all_are(numbers.Real, Decimal, np.bool_):
            return cls(name, series, "number", in_fit)
        if all_are(datetime.date, np.datetime64):
            return cls(name, series, "date", in_fit)
        if all_are(datetime.timedelta, np.timedelta64):
            return cls(name, _seconds(series, name), "number", in_fit)
        if types_of_cells & {
            bool,
            np.bool_,
        }:  # True equals 1, though their texts differ
            texts = [None if pd.isna(value) else _text(value) for value in cells]
            series = pd.Series(texts, index=series.index, dtype=object)
        return cls(name, series, "text", in_fit)

    @property
    def kind(self) -> ColumnKind:
        """The kind of the column if nobody asks for another."""
        if self.nature == "date":
            return "date"
        if self.nature == "number":
            values = self.numbers()
            low, high = values.min(), values.max()  # nan if one is missing
            two = low < high and ((values == low) | (values == high)).all()
            return "binary" if two else "numeric"
        if self._is_dated:
            return "date"
        two = len(self.levels[1]) == 2 and not self.missing.any()
        return "binary" if two else "categorical"

    @property
    def _is_dated(self) -> bool:
        """Whether all texts are dates such as 2024-05-31, as files write them."""
        if self.nature != "text" or isinstance(self.series.dtype, pd.CategoricalDtype):
            return False
        texts = self.levels[1]
        if not texts or not all(map(_DATED.match, texts)):
            return False
        return not np.isnat(_parse_dates(pd.Series(texts, dtype=object))).any()

    @cached_property
    def missing(self) -> npt.NDArray[np.bool_]:
        """Which cells are missing, (n,)."""
        return self.series.isna().to_numpy(dtype=np.bool_)

    @cached_property
    def levels(self) -> tuple[Codes, list[str]]:
        """Codes (n,) into the distinct texts; missing cells are -1."""
        values = self.series.array
        if isinstance(values, pd.Categorical):
            codes, distinct = values.codes, values.categories
        elif isinstance(values.dtype, pd.StringDtype) and len(values) < _FEW:
            codes, distinct = pd.factorize(values.to_numpy(dtype=object))
        else:
            codes, distinct = pd.factorize(self.series)
        # 1, 1.0 and "1" are one level
        code_of: dict[str, int] = {}
        merged = [code_of.setdefault(_text(v), len(code_of)) for v in distinct]
        codes = np.array([*merged, -1], dtype=np.int64)[codes]
        levels = list(code_of)
        broken = [level for level in levels if not is_unicode(level)]
        if broken:
            raise broken_text(f"column {self.name!r}", broken[0])
        if isinstance(values, pd.Categorical):  # its unused categories are no levels
            used = np.bincount(codes[codes >= 0], minlength=len(levels)) > 0
            codes = np.append(np.where(used, np.cumsum(used) - 1, -1), -1)[codes]
            levels = [
                level for level, is_used in zip(levels, used, strict=True) if is_used
            ]
        return codes, levels

    def check(self) -> None:
        """Refuse text and dates that could not be written, though nobody reads them."""
        if self.nature == "text":
            self.levels  # noqa: B018
        elif self.nature == "date":
            self.dates()

    def numbers(self, flag: bool = False) -> Floats:
        """Return the cells as finite numbers (n,), with nan where missing."""
        if self.nature == "date":
            raise self._changed("numeric", "date", self.series[~self.missing].iloc[0])
        if self.nature == "text":
            values = self._parsed("numeric", lambda texts: _parse_numbers(texts, flag))
        elif pandas_types.is_object_dtype(self.series.dtype):
            values = np.full(len(self.series), np.nan)
            cells = self.series.to_numpy()[~self.missing]
            try:
                values[~self.missing] = cells.astype(np.float64)
            except OverflowError:  # an integer beyond float64
                wide = [
                    isinstance(c, int) and abs(c) > sys.float_info.max for c in cells
                ]
                values[np.flatnonzero(~self.missing)[np.argmax(wide)]] = np.inf
        else:
            values = self.series.to_numpy(dtype=np.float64, na_value=np.nan)
        infinite = np.isinf(values)
        if infinite.any():
            raise DataError(
                f"numbers must be finite, however column {self.name!r} holds an"
                f" infinite value in row {int(infinite.argmax())} (counted from 0);"
                " replace it or leave the cell empty"
            )
        return values

    def dates(self) -> npt.NDArray[np.datetime64]:
        """Return the cells as UTC times (n,), with NaT where missing."""
        series = self.series
        if self.nature in ("number", "flag") and not self.missing.all():
            raise self._changed("date", "numeric", series[~self.missing].iloc[0])
        if self.nature == "text":
            return self._parsed("date", _parse_dates)
        if pandas_types.is_datetime64_any_dtype(series.dtype):
            if series.dt.tz is not None:
                check_years(series.dt.tz_localize(None).to_numpy(), self.name)
                series = series.dt.tz_convert("UTC").dt.tz_localize(None)
            return check_years(series.to_numpy(), self.name)
        times = np.full(len(series), np.datetime64("NaT", "us"))
        times[~self.missing] = [self._utc(value) for value in series[~self.missing]]
        return check_years(times, self.name)

    def _utc(self, value: Any) -> np.datetime64:
        try:
            if getattr(value, "tzinfo", None) is not None:
                value = value.astimezone(datetime.UTC).replace(tzinfo=None)
            return np.datetime64(value, "us")
        except OverflowError as error:
            raise _beyond_years(self.name, value) from error

    def date_parts(self) -> dict[str, Floats]:
        """Return days since 1970 and parts of the calendar (n,), nan where missing."""
        dates = self.dates()
        index = pd.DatetimeIndex(dates)
        parts = {"month": index.month, "day": index.day}
        parts |= {"weekday": index.day_of_week, "hour": index.hour}
        days = (dates - np.datetime64(0, "us")) / np.timedelta64(1, "D")
        return {"days": days} | {k: v.to_numpy(np.float64) for k, v in parts.items()}

    def turns(self) -> dict[Cycle, Floats]:
        """Return how far each cycle of the calendar is (n,), 0 to 1, nan if missing."""
        index = pd.DatetimeIndex(self.dates())
        midnight = index.normalize()
        day = ((index - midnight) / pd.Timedelta(days=1)).to_numpy(np.float64)

        def share(days: pd.Index[Any], turn: Any) -> Floats:
            return (days.to_numpy(np.float64) + day) / np.asarray(turn, np.float64)

        return {
            "day": day,
            "week": share(index.day_of_week, TURNS["week"]),
            "month": share(index.day - 1, index.days_in_month),
            "year": share(index.day_of_year - 1, 365 + index.is_leap_year),
        }

    def _parsed(
        self, kind: ColumnKind, parse: Callable[[pd.Series[Any]], npt.NDArray[Any]]
    ) -> npt.NDArray[Any]:
        codes, levels = self.levels
        parsed = parse(pd.Series(levels, dtype=object))
        failed = np.isnan(parsed) if kind == "numeric" else np.isnat(parsed)
        if failed.any():
            raise self._changed(kind, "text", levels[int(failed.argmax())])
        blank = np.full(1, "NaT" if kind == "date" else np.nan, dtype=parsed.dtype)
        return np.append(parsed, blank)[codes]

    def _changed(self, wanted: str, came: str, value: object) -> DataError:
        rule = f"is {wanted} in kinds" if self.in_fit else f"was {wanted} in fit"
        remedy = "change kinds" if self.in_fit else "fit again"
        return DataError(
            f"column {self.name!r} {rule} and is {came} here"
            f" (first value {str(value)!r}); convert it or {remedy}"
        )


def check_years(dates: npt.NDArray[Any], name: str) -> npt.NDArray[np.datetime64]:
    """Return dates in microseconds; those that Python cannot write are refused."""
    seconds = dates.astype("datetime64[s]")
    beyond = (seconds < _FIRST) | (seconds >= _END)
    if beyond.any():
        raise _beyond_years(name, dates[beyond][0])
    return dates.astype("datetime64[us]")


def _beyond_years(name: str, value: object) -> DataError:
    return DataError(
        f"dates must lie in the years 1 to 9999, in UTC too, however column {name!r}"
        f" holds {value}; leave the cell empty"
    )


def _is_single(value: object) -> bool:
    """Whether a cell can be told apart from others: no list, in no tuple either."""
    try:
        hash(value)
    except TypeError:
        return False
    return True


def _complex(name: str) -> DataError:
    return DataError(
        f"Complex data not supported: column {name!r} holds complex numbers; give the"
        " real and the imaginary part as two columns"
    )


def _parse_numbers(texts: pd.Series[Any], flag: bool) -> Floats:
    if flag:
        words = texts.str.lower()
        texts = texts.mask(words == "true", "1").mask(words == "false", "0")
    return pd.to_numeric(texts, errors="coerce").to_numpy(dtype=np.float64)


def _parse_dates(texts: pd.Series[Any]) -> npt.NDArray[np.datetime64]:
    times = pd.to_datetime(texts, format="ISO8601", utc=True, errors="coerce")
    return times.dt.tz_localize(None).to_numpy(dtype="datetime64[us]")


def _seconds(series: pd.Series[Any], name: str) -> pd.Series[Any]:
    """Return spans of time as seconds (n,)."""
    try:
        present = series.mask(series.isna(), None)  # of several ways to miss one
        return pd.to_timedelta(present).dt.total_seconds()
    except pd.errors.OutOfBoundsTimedelta as error:
        raise DataError(
            f"spans of time must be shorter than 292 years, however column {name!r}"
            f" holds a longer one ({error}); give it as a number"
        ) from error
