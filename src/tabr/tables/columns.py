"""One fitted column of a table, by its kind: how its cells become numbers or codes."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
import pandas as pd

from tabr.config.checks import check_file
from tabr.errors import DataError
from tabr.optional import cached_property
from tabr.tables.cells import (
    TURNS,
    Cells,
    Codes,
    ColumnKind,
    Cycle,
    Flags,
    Floats,
    plain_columns,
    plain_numbers,
)
from tabr.tables.normalize import as_index, row_blocks, share_between

Dates = Literal["parts", "cycles"]
Levels = Literal["codes", "means"]

# Waves of a cycle: once, twice, ... round; three tell all days of a week apart freely.
HARMONICS: dict[Cycle, int] = {"day": 4, "week": 3, "month": 1, "year": 2}
_NEARLY_ALL = 0.9  # pairs of a held-out and another cell
_PRIOR_ROWS = 10.0  # rows that the mean of all counts for in the mean of a level
_FEWEST = 20  # cells on either side, or it may be chance


class EncodedColumn(NamedTuple):
    """What one column gives to the arrays: columns (n,) of each sort."""

    num: tuple[Floats, ...] = ()
    bin: tuple[Floats, ...] = ()
    indicator: tuple[Floats, ...] = ()
    cat: tuple[Codes, ...] = ()


@dataclass(frozen=True)
class Column:
    """A fitted column of the input; its fields are plain values, for JSON."""

    name: str
    kind: ClassVar[ColumnKind] = "numeric"

    def encode(self, cells: Cells) -> EncodedColumn:
        """Return a column of zeros: the placeholder of an all-constant table."""
        return EncodedColumn(num=(np.zeros(len(cells.series)),))

    def within(self, cells: Cells, held_out: Cells) -> Column | None:
        """Return what is left without trends that lead beyond the training cells."""
        return self


@dataclass(frozen=True)
class Numeric(Column):
    """Numbers; missing ones are filled, and marked if fit saw some."""

    fill: float
    indicator: bool

    @classmethod
    def fit(cls, cells: Cells) -> Self | None:
        """Learn from the training cells; None if they tell nothing."""
        values = cells.numbers()
        missing = np.isnan(values)
        if missing.all() or not (missing.any() or _varies(values)):
            return None
        return cls(cells.name, _median(values), bool(missing.any()))

    def encode(self, cells: Cells) -> EncodedColumn:
        """Return what the cells give to the arrays."""
        values = cells.numbers()
        missing = np.isnan(values)
        indicator = (missing.astype(np.float64),) if self.indicator else ()
        return EncodedColumn(
            num=(np.where(missing, self.fill, values),), indicator=indicator
        )

    def within(self, cells: Cells, held_out: Cells) -> Column | None:
        """Return None if most held-out cells lie beyond the training cells."""
        return None if _beyond(cells.numbers(), held_out.numbers()) else self


@dataclass(frozen=True)
class Date(Column):
    """Dates, as days and those parts of the calendar that vary."""

    kind: ClassVar[ColumnKind] = "date"
    parts: tuple[str, ...]
    fills: tuple[float, ...]
    indicator: bool

    @classmethod
    def fit(cls, cells: Cells) -> Self | None:
        """Learn from the training cells; None if they tell nothing."""
        dates = cells.date_parts()
        missing = np.isnan(dates["days"])
        vary = {k: v for k, v in dates.items() if _varies(v[~missing])}
        if missing.all() or not (vary or missing.any()):
            return None
        vary = {"days": dates["days"], **vary}
        fills = tuple(_median(values) for values in vary.values())
        return cls(cells.name, tuple(vary), fills, bool(missing.any()))

    def encode(self, cells: Cells) -> EncodedColumn:
        """Return what the cells give to the arrays."""
        dates = cells.date_parts()
        missing = np.isnan(dates["days"])
        filled = zip(self.parts, self.fills, strict=True)
        num = tuple(np.where(missing, fill, dates[part]) for part, fill in filled)
        indicator = (missing.astype(np.float64),) if self.indicator else ()
        return EncodedColumn(num=num, indicator=indicator)

    def within(self, cells: Cells, held_out: Cells) -> Column | None:
        """Return the parts in which held-out cells lie among the training cells."""
        known, later = cells.date_parts(), held_out.date_parts()
        filled = zip(self.parts, self.fills, strict=True)
        left = {k: fill for k, fill in filled if not _beyond(known[k], later[k])}
        if not left:
            return None
        return replace(self, parts=tuple(left), fills=tuple(left.values()))


@dataclass(frozen=True)
class CyclicDate(Column):
    """Dates, as days and as places on the circles of the calendar they go round."""

    kind: ClassVar[ColumnKind] = "date"
    cycles: tuple[Cycle, ...]
    fill: float | None  # days of missing cells; None leaves days out
    indicator: bool

    @classmethod
    def fit(cls, cells: Cells) -> Self | None:
        """Learn from the training cells; None if they tell nothing."""
        days, turns = cells.date_parts()["days"], cells.turns()
        missing = np.isnan(days)
        if missing.all() or not (missing.any() or _varies(days)):
            return None
        extent = np.ptp(days[~missing])
        cycles = tuple(
            name
            for name, share in turns.items()
            if extent >= TURNS[name] and _varies(share[~missing])
        )
        return cls(cells.name, cycles, _median(days), bool(missing.any()))

    def encode(self, cells: Cells) -> EncodedColumn:
        """Return what the cells give to the arrays."""
        days, turns = cells.date_parts()["days"], cells.turns()
        missing = np.isnan(days)
        num = () if self.fill is None else (np.where(missing, self.fill, days),)
        angles = [
            2 * np.pi * k * turns[name]
            for name in self.cycles
            for k in range(1, HARMONICS[name] + 1)
        ]
        circles = [of(angle) for angle in angles for of in (np.sin, np.cos)]
        return EncodedColumn(
            num=num,
            bin=tuple(np.where(missing, 0.0, place) for place in circles),
            indicator=(missing.astype(np.float64),) if self.indicator else (),
        )

    def within(self, cells: Cells, held_out: Cells) -> Column | None:
        """Return the cycles alone if most held-out cells lie beyond the others."""
        days = cells.date_parts()["days"], held_out.date_parts()["days"]
        if not _beyond(*days):
            return self
        return replace(self, fill=None) if self.cycles else None


@dataclass(frozen=True)
class BinaryNumber(Column):
    """Numbers of two values, mapped to 0 and 1."""

    kind: ClassVar[ColumnKind] = "binary"
    low: float
    high: float
    flag: bool

    def encode(self, cells: Cells) -> EncodedColumn:
        """Return what the cells give to the arrays."""
        return EncodedColumn(
            bin=(share_between(cells.numbers(self.flag), self.low, self.high),)
        )


@dataclass(frozen=True)
class BinaryText(Column):
    """Text of two levels, as 0 and 1."""

    kind: ClassVar[ColumnKind] = "binary"
    low: str
    high: str

    def encode(self, cells: Cells) -> EncodedColumn:
        """Return what the cells give to the arrays."""
        codes, levels = cells.levels
        shares = {self.low: 0.0, self.high: 1.0}
        values = np.array([*(shares.get(level, 0.5) for level in levels), 0.5])
        return EncodedColumn(bin=(values[codes],))


def _fit_binary(cells: Cells) -> Column | None:
    if cells.nature in ("number", "flag"):
        values = np.unique(cells.numbers()[~cells.missing])
        if len(values) == 2:
            low, high = (float(value) for value in values)
            return BinaryNumber(cells.name, low, high, cells.nature == "flag")
        n_levels = len(values)
    else:
        levels = sorted(cells.levels[1])
        if len(levels) == 2:
            return BinaryText(cells.name, *levels)
        n_levels = len(levels)
    if n_levels > 2:
        raise DataError(
            f"a binary column has two values, however column {cells.name!r} is binary"
            f" in kinds and holds {n_levels}; change kinds"
        )
    return None


@dataclass(frozen=True)
class Categorical(Column):
    """Levels and their codes."""

    kind: ClassVar[ColumnKind] = "categorical"
    levels: tuple[str, ...]  # all that fit saw
    codes: tuple[int, ...]  # of each level; the rare ones share one
    missing: int  # the code of missing cells, -1 if fit saw none
    n_levels: int

    @classmethod
    def fit(cls, cells: Cells, max_levels: int) -> Self | None:
        """Learn from the training cells; None if they tell nothing."""
        codes, levels = cells.levels
        some_missing = bool(cells.missing.any())
        if len(levels) + some_missing < 2:
            return None
        kept = sorted(levels)
        if len(levels) + some_missing > max_levels:
            counts = np.bincount(codes[codes >= 0], minlength=len(levels))
            count_of = dict(zip(levels, counts.tolist(), strict=True))
            ranked = sorted(levels, key=lambda level: (-count_of[level], level))
            kept = sorted(ranked[: max_levels - 1 - some_missing])
        rare = len(kept)
        n_levels = rare + (len(levels) > rare)
        code_of = {level: code for code, level in enumerate(kept)}
        ordered = tuple(sorted(levels))
        return cls(
            cells.name,
            ordered,
            tuple(code_of.get(level, rare) for level in ordered),
            n_levels if some_missing else -1,
            n_levels + some_missing,
        )

    def encode(self, cells: Cells) -> EncodedColumn:
        """Return what the cells give to the arrays."""
        codes, levels = cells.levels
        codes_of_levels = [self._code_of.get(level, -1) for level in levels]
        return EncodedColumn(
            cat=(np.array([*codes_of_levels, self.missing], dtype=np.int64)[codes],)
        )

    def places(self, cells: Cells) -> Codes:
        """Return each cell's level by its place (n,); then come missing and unseen."""
        codes, levels = cells.levels
        unseen, place_of = len(self.levels) + 1, self._place_of
        places = [*(place_of.get(level, unseen) for level in levels), unseen - 1]
        return np.array(places, dtype=np.int64)[codes]

    def with_levels(self, places: list[int]) -> Self:
        """Return the column with the levels at these places, each with its code."""
        levels = tuple(self.levels[place] for place in places)
        codes = tuple(self.codes[place] for place in places)
        return replace(self, levels=levels, codes=codes)

    @cached_property
    def _place_of(self) -> dict[str, int]:
        return {level: place for place, level in enumerate(self.levels)}

    @cached_property
    def _code_of(self) -> dict[str, int]:
        return dict(zip(self.levels, self.codes, strict=True))


class Known(NamedTuple):
    """What is known of the training rows beside their cells.

    Attributes:
        labels: (n, k), labels of numbers, or for classes which one a row has.
        weights: (n,), weights of the rows.
        folds: (n,), parts of the rows that learn their encoding from the others.
    """

    labels: Floats
    weights: Floats
    folds: Codes


@dataclass(frozen=True)
class MeanCategorical(Categorical):
    """Levels, their codes, and the mean label of each, as many are rare."""

    n_means: int  # of a level
    means: tuple[float, ...]  # of each level, then of missing cells, then of others

    @classmethod
    def learned(cls, column: Categorical, cells: Cells, known: Known) -> Self:
        """Return the column with the means of all training rows."""
        places = column.places(cells)
        means = _means(places, known.labels, known.weights, len(column.levels) + 2)
        values = {f.name: getattr(column, f.name) for f in fields(column)}
        return cls(**values, n_means=means.shape[1], means=tuple(means.ravel()))

    def encode(self, cells: Cells) -> EncodedColumn:
        """Return what the cells give to the arrays."""
        means = np.array(self.means).reshape(-1, self.n_means)
        num = tuple(means[self.places(cells)].T)
        return super().encode(cells)._replace(num=num)

    def with_levels(self, places: list[int]) -> Self:
        """Return the column with the levels at these places, each with its mean."""
        n = len(self.levels)
        means = np.array(self.means).reshape(-1, self.n_means)
        left = means[[*places, n, n + 1]].ravel().tolist()
        return replace(super().with_levels(places), means=tuple(left))

    def out_of_fold(self, cells: Cells, known: Known) -> Floats:
        """Return means (n, k) for training rows, which leave out the row's fold."""
        places = self.places(cells)
        result = np.empty(known.labels.shape)
        for fold in np.unique(known.folds):
            out, own = known.folds != fold, known.folds == fold
            labels, weights = known.labels[out], known.weights[out]
            means = _means(places[out], labels, weights, len(self.levels) + 2)
            result[own] = means[places[own]]
        return result


def _means(places: Codes, labels: Floats, weights: Floats, n_places: int) -> Floats:
    """Return mean labels (n_places, k), drawn to that of all rows where few are."""
    total = np.bincount(places, weights, n_places)[:, None]
    sums = [np.bincount(places, weights * part, n_places) for part in labels.T]
    prior = np.average(labels, axis=0, weights=weights)
    few = _PRIOR_ROWS * weights.mean()
    means: Floats = (np.stack(sums, axis=1) + few * prior) / (total + few)
    return means


COLUMNS: dict[str, type[Column]] = {
    cls.__name__: cls
    for cls in (
        Column,
        Numeric,
        Date,
        CyclicDate,
        BinaryNumber,
        BinaryText,
        Categorical,
        MeanCategorical,
    )
}


# What a file may hold for a field of a column, by the field's type.
_FITTING: dict[str, Callable[[Any], bool]] = {
    "str": lambda value: type(value) is str,
    "bool": lambda value: type(value) is bool,
    "int": lambda value: type(value) is int,
    "float": lambda value: type(value) is float and math.isfinite(value),
    "float | None": lambda value: value is None or _FITTING["float"](value),
}
_FITTING["Cycle"] = _FITTING["str"]


def read_column(values: Mapping[str, Any]) -> Column:
    """Return the column that a file describes; a false one takes no memory."""
    cls = COLUMNS[values["type"]]
    given = {name: value for name, value in values.items() if name != "type"}
    start = f"its column {given.get('name')!s:.40}"
    known = {field.name: str(field.type) for field in fields(cls)}
    check_file(given.keys() == known.keys(), f"{start} has other fields")
    for name, kind in known.items():
        value, each = given[name], re.fullmatch(r"tuple\[(\w+), \.\.\.\]", kind)
        if each is None:
            fits = _FITTING[kind](value)
        else:  # JSON has no tuples
            fits = isinstance(value, list) and all(map(_FITTING[each[1]], value))
            given[name] = tuple(value) if fits else ()
        check_file(fits, f"{start} has a {name} of {value!r:.40}")
    column = cls(**given)
    check_file(_is_whole(column), f"{start} has fields that do not fit each other")
    return column


def _is_whole(column: Column) -> bool:
    """Whether the fields of a column fit each other."""
    match column:
        case Date(parts=parts, fills=fills):
            known = {*parts} <= {"days", "month", "day", "weekday", "hour"}
            return known and len({*parts}) == len(parts) == len(fills)
        case CyclicDate(cycles=cycles):
            return {*cycles} <= HARMONICS.keys() and len({*cycles}) == len(cycles)
        case BinaryNumber(low=low, high=high):
            return low < high
        case Categorical(levels=levels, codes=codes, missing=missing, n_levels=n):
            fits = len({*levels}) == len(levels) == len(codes)
            fits &= -1 <= missing < n and all(0 <= code < n for code in codes)
            if isinstance(column, MeanCategorical):
                fits &= 1 <= column.n_means <= len(column.means)
                fits &= column.n_means * (len(levels) + 2) == len(column.means)
            return fits
    return True


def fit_column(
    cells: Cells, kind: ColumnKind, max_levels: int, dates: Dates
) -> Column | None:
    """Return the fitted column, or None if it is constant."""
    match kind:
        case "numeric":
            return Numeric.fit(cells)
        case "date":
            return (CyclicDate if dates == "cycles" else Date).fit(cells)
        case "binary":
            return _fit_binary(cells)
        case "categorical":
            return Categorical.fit(cells, max_levels)


def widths_of(column: Column) -> list[int]:
    """Return how many columns it gives to each part of `EncodedColumn`."""
    num, flags = int(column.kind == "numeric"), int(column.kind == "binary")
    if isinstance(column, Date):
        num = len(column.parts)
    elif isinstance(column, CyclicDate):
        num = int(column.fill is not None)
        flags = 2 * sum(HARMONICS[name] for name in column.cycles)
    elif isinstance(column, MeanCategorical):
        num = column.n_means
    indicator = isinstance(column, Numeric | Date | CyclicDate) and column.indicator
    return [num, flags, indicator, column.kind == "categorical"]


class Numbers:
    """Columns of numbers with their places, encoded together."""

    def __init__(self, columns: list[tuple[Column, list[int]]]) -> None:
        numeric = [(c, at) for c, at in columns if isinstance(c, Numeric)]
        binary = [(c, at) for c, at in columns if isinstance(c, BinaryNumber)]
        self.columns = [*numeric, *binary]
        self.names = [column.name for column, _ in self.columns]
        self.fill = np.array([[c.fill] for c, _ in numeric]).reshape(-1, 1)
        self.num = as_index([at[0] for _, at in numeric])
        self.marked = [k for k, (c, _) in enumerate(numeric) if c.indicator]
        self.indicators = [numeric[k][1][2] for k in self.marked]
        self.low = np.array([[c.low] for c, _ in binary])
        self.high = np.array([[c.high] for c, _ in binary])
        self.bin = as_index([at[1] for _, at in binary])

    def read(self, frame: pd.DataFrame, num: Floats, flags: Flags) -> set[str]:
        """Fill num (p, n) and flags (n, q) from plain columns; return their names."""
        position = {name: k for k, name in enumerate(frame.columns.tolist())}
        positions = [position[name] for name in self.names]
        plain = plain_columns(frame)[positions]
        if not plain.all():
            kept = [c for c, good in zip(self.columns, plain, strict=True) if good]
            return Numbers(kept).read(frame, num, flags)
        if not positions:
            return set()
        cells = plain_numbers(frame, positions)
        if np.isinf(cells).any():  # one by one, the first of all errors is raised
            return set()
        for rows in row_blocks(len(frame), len(cells)):
            values, twos = np.split(cells[:, rows], [len(self.fill)])
            missing = np.isnan(values)
            num[self.num, rows] = np.where(missing, self.fill, values)
            if self.marked:
                flags[rows, self.indicators] = missing[self.marked].T
            if len(twos):
                flags[rows, self.bin] = share_between(twos, self.low, self.high).T
        return set(self.names)


def _beyond(values: Floats, held_out: Floats) -> bool:
    """Whether in nearly all pairs the held-out value is the larger, or the smaller."""
    values, held_out = values[~np.isnan(values)], held_out[~np.isnan(held_out)]
    if min(len(values), len(held_out)) < _FEWEST:
        return False
    values = np.sort(values)
    places = [values.searchsorted(held_out, side) for side in ("left", "right")]
    share = np.mean(places) / len(values)  # ties count half
    return bool(max(share, 1 - share) > _NEARLY_ALL)


def _varies(values: Floats) -> bool:
    return len(values) > 0 and bool(values.min() < values.max())


def _median(values: Floats) -> float:
    # half and back is exact, and two huge numbers do not overflow when averaged
    return 2 * float(np.nanmedian(values / 2))
