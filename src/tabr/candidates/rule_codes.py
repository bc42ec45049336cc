"""Rules with their candidates: what compares rows with them.

Times are numbered in their order and groups as they come: a candidate has a code, and a
row an interval of codes that it may take.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tabr.errors import DataError
from tabr.tables.cells import Cells

Codes = NDArray[np.int32]
Columns = Mapping[str, NDArray[Any]]

_NOBODY = -1  # the code of a candidate whose cell is missing
_UNKNOWN = -2  # the code of a row whose group no candidate has


@dataclass(frozen=True)
class Times:
    """`PastOnly` with candidates: a code is the place of a time among all."""

    column: str
    is_date: bool
    window: float | None
    gap: float
    levels: NDArray[np.float64]
    codes: Codes

    def intervals(self, frame: pd.DataFrame) -> tuple[Codes, Codes]:
        """Return the first and last code (b,) that rows may take."""
        times = read_times(read_cells(frame, self.column), self.is_date)
        missing = np.isnan(times)
        times = np.where(missing, 0.0, times)
        side: Any = "right" if self.gap > 0 else "left"  # without a gap: before it
        high = np.searchsorted(self.levels, times - self.gap, side) - 1
        low = np.zeros_like(high)
        if self.window is not None:
            low = np.searchsorted(self.levels, times - self.window, "left")
        return _empty_where(missing, low, high)

    def extended(self, frame: pd.DataFrame) -> Times:
        """Return it with further candidates."""
        new = read_times(read_cells(frame, self.column), self.is_date)
        fresh = np.setdiff1d(new[~np.isnan(new)], self.levels)
        levels, codes = np.concatenate([self.levels, fresh]), self.codes
        if len(fresh) and len(self.levels) and fresh[0] < self.levels[-1]:
            levels.sort()  # times between the known ones: all get new places
            moved = np.append(np.searchsorted(levels, self.levels), _NOBODY)
            codes = moved[codes].astype(np.int32)
        return replace(
            self, levels=levels, codes=np.concatenate([codes, places(new, levels)])
        )

    def taken(self, index: NDArray[np.int64]) -> Times:
        """Return it with the candidates at index."""
        return replace(self, codes=self.codes[index])


@dataclass(frozen=True)
class Groups:
    """`SameGroup` with candidates: a code is the number of a group."""

    column: str
    number_of: dict[str, int]
    codes: Codes

    def intervals(self, frame: pd.DataFrame) -> tuple[Codes, Codes]:
        """Return the only code (b,) that rows may take, as first and last."""
        codes, levels = read_cells(frame, self.column).levels
        numbers = [*(self.number_of.get(level, _UNKNOWN) for level in levels), _UNKNOWN]
        code = np.array(numbers, dtype=np.int32)[codes]
        return code, code

    def extended(self, frame: pd.DataFrame) -> Groups:
        """Return it with further candidates."""
        codes, levels = read_cells(frame, self.column).levels
        number_of = dict(self.number_of)
        numbers = [number_of.setdefault(level, len(number_of)) for level in levels]
        new = np.array([*numbers, _NOBODY], dtype=np.int32)[codes]
        all_codes = np.concatenate([self.codes, new])
        return replace(self, number_of=number_of, codes=all_codes)

    def taken(self, index: NDArray[np.int64]) -> Groups:
        """Return it with the candidates at index."""
        return replace(self, codes=self.codes[index])


@dataclass(frozen=True)
class Periods:
    """`SamePeriod` with candidates: a code is the number of a period."""

    column: str
    is_date: bool
    starts: NDArray[np.float64]  # of all periods but the first
    codes: Codes

    @classmethod
    def of(cls, cells: Cells, n_periods: int) -> Periods:
        """Return periods of about as many cells each."""
        is_date = cells.kind == "date"
        times = read_times(cells, is_date)
        shares = np.arange(1, n_periods) / n_periods
        there = times[~np.isnan(times)]
        starts = np.quantile(there, shares) if len(there) else np.empty(0)
        return cls(cells.name, is_date, starts, _periods(times, starts, _NOBODY))

    def _codes_of(self, frame: pd.DataFrame, missing: int) -> Codes:
        times = read_times(read_cells(frame, self.column), self.is_date)
        return _periods(times, self.starts, missing)

    def intervals(self, frame: pd.DataFrame) -> tuple[Codes, Codes]:
        """Return the only code (b,) that rows may take, as first and last."""
        code = self._codes_of(frame, _UNKNOWN)
        return code, code

    def extended(self, frame: pd.DataFrame) -> Periods:
        """Return it with further candidates."""
        new = self._codes_of(frame, _NOBODY)
        return replace(self, codes=np.concatenate([self.codes, new]))

    def taken(self, index: NDArray[np.int64]) -> Periods:
        """Return it with the candidates at index."""
        return replace(self, codes=self.codes[index])


@dataclass(frozen=True)
class Function:
    """`Where` with candidates."""

    allows: Callable[[Columns, Columns], Any]
    columns: tuple[str, ...]
    values: dict[str, NDArray[Any]]

    def of(self, frame: pd.DataFrame) -> dict[str, NDArray[Any]]:
        """Return the rows' columns."""
        return read_values(frame, self.columns)

    def extended(self, frame: pd.DataFrame) -> Function:
        """Return it with further candidates."""
        new = self.of(frame)
        joined = {k: np.concatenate([v, new[k]]) for k, v in self.values.items()}
        return replace(self, values=joined)

    def taken(self, index: NDArray[np.int64]) -> Function:
        """Return it with the candidates at index."""
        return replace(self, values={k: v[index] for k, v in self.values.items()})

    def __call__(self, row: Columns, part: slice) -> NDArray[np.bool_]:
        """Return (b, n) which candidates of a slice the rows may take."""
        rows = {name: values[:, None] for name, values in row.items()}
        others = {name: values[part] for name, values in self.values.items()}
        flags = np.asarray(self.allows(rows, others))
        shape = (
            len(next(iter(row.values()))),
            len(next(iter(others.values()))),
        )
        if flags.dtype != np.bool_ or np.broadcast_shapes(flags.shape, shape) != shape:
            raise DataError(
                f"the function of Where must return flags of shape {shape}, however "
                f"it returned {flags.dtype} of shape {flags.shape}: compare the "
                "columns elementwise"
            )
        return np.broadcast_to(flags, shape)


class Tags(NamedTuple):
    """What rows need to be compared with candidates.

    Attributes:
        low: (c, b), the first codes that they may take, one line for each leaf.
        high: (c, b), the last ones.
        values: For each line the columns that a function reads, or None.
    """

    low: Codes
    high: Codes
    values: tuple[dict[str, NDArray[Any]] | None, ...]


# --- reading columns ----------------------------------------------------------


def read_cells(frame: pd.DataFrame, column: str, in_fit: bool = False) -> Cells:
    """Return a column's cells."""
    return Cells.read(frame[column], column, in_fit=in_fit)


def read_times(cells: Cells, is_date: bool) -> NDArray[np.float64]:
    """Return times (n,) as numbers, nan where missing; dates as microseconds."""
    if not is_date:
        return cells.numbers()
    dates = cells.dates()
    numbers = dates.astype(np.int64).astype(np.float64)  # exact until 2255
    return np.where(np.isnat(dates), np.nan, numbers)


def places(times: NDArray[np.float64], levels: NDArray[np.float64]) -> Codes:
    """Return the places (n,) of times among the known ones."""
    missing = np.isnan(times)
    place = np.searchsorted(levels, np.where(missing, 0.0, times))
    return np.where(missing, _NOBODY, place).astype(np.int32)


def _periods(
    times: NDArray[np.float64], starts: NDArray[np.float64], missing: int
) -> Codes:
    """Return the periods (n,) of times."""
    period = np.searchsorted(starts, times, "right")
    return np.where(np.isnan(times), missing, period).astype(np.int32)


def _empty_where(
    missing: NDArray[np.bool_], low: NDArray[Any], high: NDArray[Any]
) -> tuple[Codes, Codes]:
    """Return intervals, empty where something is missing; codes begin at zero."""
    return (
        np.where(missing, 1, low).astype(np.int32),
        np.where(missing, 0, high).astype(np.int32),
    )


def read_values(frame: pd.DataFrame, columns: Iterable[str]) -> dict[str, NDArray[Any]]:
    """Return columns as arrays."""
    return {name: frame[name].to_numpy() for name in columns}
