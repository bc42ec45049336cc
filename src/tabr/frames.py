"""A preprocessor learns how a table's columns become arrays for the network.

- Numbers are imputed by the training median. A column with missing values in fit
  also gets an indicator in `bin`, after all binary columns. Timedeltas are seconds.
- Two values and nothing missing make a binary column: the lower is 0, the higher 1.
  Later numbers are mapped linearly and clipped; unknown or missing cells are 0.5.
- Categories are compared as text, where 1.0 is written "1". A missing cell is a level
  of its own if fit saw one. Rare levels beyond `max_levels` share one level. A value
  that fit did not see has no level: -1.
- Dates become days since 1970 in UTC, and month, day, weekday and hour where they vary.
- Constant columns are dropped, and may be absent later. If all are constant, the first
  stays as a numeric column of zeros.
- Columns are matched by name, in any order; more columns are ignored. A table named
  x0, x1, ... counts as unnamed: it is matched by position and its width must agree.
- Infinite, complex and nested cells are refused. Numbers beyond float32 are clipped.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self, get_args

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.exceptions import NotFittedError

from tabr.normalize import Normalization, Normalizer
from tabr.tables import Cells, Codes, DataError, Floats, Kind, default_names, to_frame

__all__ = ["Arrays", "DataError", "Kind", "Normalization", "Preprocessor", "to_frame"]


@dataclass(frozen=True)
class Arrays:
    """The rows of a table as the network takes them; -1 in `cat` means no level."""

    num: npt.NDArray[np.float32]  # (n, p)
    bin: npt.NDArray[np.float32]  # (n, q)
    cat: Codes  # (n, r)


class _Part(NamedTuple):
    """What one column gives to the arrays: columns (n,) of each sort."""

    num: tuple[Floats, ...] = ()
    bin: tuple[Floats, ...] = ()
    indicator: tuple[Floats, ...] = ()
    cat: tuple[Codes, ...] = ()


@dataclass(frozen=True)
class _Column:
    """A fitted column of the input; its fields are plain values, for JSON."""

    name: str
    kind: ClassVar[Kind] = "numeric"

    def encode(self, cells: Cells) -> _Part:
        """Return a column of zeros: the placeholder of an all-constant table."""
        return _Part(num=(np.zeros(len(cells.series)),))


@dataclass(frozen=True)
class _Numeric(_Column):
    fill: float
    indicator: bool

    @classmethod
    def fit(cls, cells: Cells) -> Self | None:
        values = cells.numbers()
        missing = np.isnan(values)
        if missing.all() or not (missing.any() or _varies(values)):
            return None
        return cls(cells.name, _median(values), bool(missing.any()))

    def encode(self, cells: Cells) -> _Part:
        values = cells.numbers()
        missing = np.isnan(values)
        indicator = (missing.astype(np.float64),) if self.indicator else ()
        return _Part(num=(np.where(missing, self.fill, values),), indicator=indicator)


@dataclass(frozen=True)
class _Date(_Column):
    kind: ClassVar[Kind] = "date"
    parts: tuple[str, ...]
    fills: tuple[float, ...]
    indicator: bool

    @classmethod
    def fit(cls, cells: Cells) -> Self | None:
        dates = cells.date_parts()
        missing = np.isnan(dates["days"])
        vary = {k: v for k, v in dates.items() if _varies(v[~missing])}
        if missing.all() or not (vary or missing.any()):
            return None
        vary = {"days": dates["days"], **vary}
        fills = tuple(_median(values) for values in vary.values())
        return cls(cells.name, tuple(vary), fills, bool(missing.any()))

    def encode(self, cells: Cells) -> _Part:
        dates = cells.date_parts()
        missing = np.isnan(dates["days"])
        filled = zip(self.parts, self.fills, strict=True)
        num = tuple(np.where(missing, fill, dates[part]) for part, fill in filled)
        indicator = (missing.astype(np.float64),) if self.indicator else ()
        return _Part(num=num, indicator=indicator)


@dataclass(frozen=True)
class _BinaryNumber(_Column):
    kind: ClassVar[Kind] = "binary"
    low: float
    high: float
    flag: bool

    def encode(self, cells: Cells) -> _Part:
        values = cells.numbers(self.flag)
        # a power of two is exact and keeps differences of huge numbers finite
        exponent = np.frexp(max(abs(self.low), abs(self.high)))[1]
        low, high = np.ldexp([self.low, self.high], -exponent)
        with np.errstate(over="ignore"):
            share = np.clip((np.ldexp(values, -exponent) - low) / (high - low), 0, 1)
        return _Part(bin=(np.where(np.isnan(values), 0.5, share),))


@dataclass(frozen=True)
class _BinaryText(_Column):
    kind: ClassVar[Kind] = "binary"
    low: str
    high: str

    def encode(self, cells: Cells) -> _Part:
        codes, levels = cells.levels
        shares = {self.low: 0.0, self.high: 1.0}
        values = np.array([*(shares.get(level, 0.5) for level in levels), 0.5])
        return _Part(bin=(values[codes],))


def _fit_binary(cells: Cells) -> _Column | None:
    if cells.nature in ("number", "flag"):
        values = np.unique(cells.numbers()[~cells.missing])
        if len(values) == 2:
            low, high = (float(value) for value in values)
            return _BinaryNumber(cells.name, low, high, cells.nature == "flag")
        n_levels = len(values)
    else:
        levels = sorted(cells.levels[1])
        if len(levels) == 2:
            return _BinaryText(cells.name, *levels)
        n_levels = len(levels)
    if n_levels > 2:
        raise DataError(
            f"a binary column has two values, however column {cells.name!r} is binary"
            f" in kinds and holds {n_levels}; change kinds"
        )
    return None


@dataclass(frozen=True)
class _Categorical(_Column):
    kind: ClassVar[Kind] = "categorical"
    levels: tuple[str, ...]  # all that fit saw
    codes: tuple[int, ...]  # of each level; the rare ones share one
    missing: int  # the code of missing cells, -1 if fit saw none
    n_levels: int

    @classmethod
    def fit(cls, cells: Cells, max_levels: int) -> Self | None:
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

    def encode(self, cells: Cells) -> _Part:
        codes, levels = cells.levels
        # as objects: pandas' own text type refuses half a surrogate pair
        known = pd.Index(self.levels, dtype=object).get_indexer(
            pd.Index(levels, dtype=object)
        )
        code_of = np.append(np.array(self.codes, dtype=np.int64), -1)[known]
        return _Part(cat=(np.append(code_of, self.missing)[codes],))


_COLUMNS: dict[str, type[_Column]] = {
    cls.__name__.strip("_"): cls
    for cls in (_Column, _Numeric, _Date, _BinaryNumber, _BinaryText, _Categorical)
}


def _fit_column(cells: Cells, kind: Kind, max_levels: int) -> _Column | None:
    """Return the fitted column, or None if it is constant."""
    match kind:
        case "numeric":
            return _Numeric.fit(cells)
        case "date":
            return _Date.fit(cells)
        case "binary":
            return _fit_binary(cells)
        case "categorical":
            return _Categorical.fit(cells, max_levels)


def _varies(values: Floats) -> bool:
    return len(values) > 0 and bool(values.min() < values.max())


def _median(values: Floats) -> float:
    # half and back is exact, and two huge numbers do not overflow when averaged
    return 2 * float(np.nanmedian(values / 2))


class Preprocessor:
    """Learns the encoding of a table's columns and applies it to new rows.

    `kinds` overrides the kind of columns, `ignore` names columns that are no features.
    The module's first lines give the rules.

    >>> rows = pd.DataFrame({"age": [30.0, 41.0, 52.0], "town": ["a", "b", "c"]})
    >>> Preprocessor(normalization="none").fit(rows).transform(rows).cat.ravel()
    array([0, 1, 2])
    """

    feature_names: tuple[str, ...]  # of fit, in order, without the ignored ones
    kinds_: dict[str, Kind]  # of the columns in use
    dropped: tuple[str, ...]  # constant in fit
    n_num: int
    n_bin: int
    cardinalities: tuple[int, ...]  # levels of each categorical column

    def __init__(
        self,
        *,
        normalization: Normalization = "quantile",
        kinds: Mapping[str, Kind] | None = None,
        max_levels: int = 256,
        ignore: Collection[str] = (),
        seed: int = 0,
    ) -> None:
        self.normalization: Normalization = normalization
        self.kinds = {str(name): kind for name, kind in (kinds or {}).items()}
        self.max_levels = max_levels
        ignored = [ignore] if isinstance(ignore, str) else ignore
        self.ignore = tuple(str(name) for name in ignored)
        self.seed = seed
        if normalization not in get_args(Normalization):
            raise DataError(
                f"normalization must be one of {get_args(Normalization)}, however"
                f" {normalization!r} came; choose one of them"
            )
        for name, kind in self.kinds.items():
            if kind not in get_args(Kind):
                raise DataError(
                    f"a kind must be one of {get_args(Kind)}, however kinds has"
                    f" {kind!r} for column {name!r}; choose one of them"
                )
        if max_levels < 2:
            raise DataError(
                f"max_levels must be at least 2, however {max_levels=} came; raise it"
            )

    def fit(self, frame: pd.DataFrame) -> Self:
        """Learn kinds, levels and scales from the training rows."""
        frame = to_frame(frame)
        self._inputs = tuple(frame.columns)
        self.feature_names = tuple(c for c in self._inputs if c not in self.ignore)
        unknown = [name for name in self.kinds if name not in self._inputs]
        if unknown:
            raise DataError(
                f"kinds must name columns of the table, however it names {unknown};"
                f" the columns are {list(self._inputs)}"
            )
        if not self.feature_names:
            raise DataError(
                f"a table needs a feature, however all its columns are ignored:"
                f" {list(self._inputs)}; ignore fewer"
            )
        columns = []
        for name in self.feature_names:
            cells = Cells.read(frame[name], name, in_fit=True)
            kind = self.kinds.get(name, cells.kind)
            columns.append(_fit_column(cells, kind, self.max_levels))
        self._set_columns([c for c in columns if c is not None])
        num, flags, _ = self._encode(frame)
        self.n_num, self.n_bin = num.shape[1], flags.shape[1]
        self._normalizer = Normalizer.fit(num, self.normalization, self.seed)
        return self

    def _set_columns(self, columns: list[_Column]) -> None:
        self._columns = columns or [_Column(self.feature_names[0])]
        self.kinds_ = {column.name: column.kind for column in self._columns}
        self.dropped = tuple(c for c in self.feature_names if c not in self.kinds_)
        levels = [c.n_levels for c in self._columns if isinstance(c, _Categorical)]
        self.cardinalities = tuple(levels)

    def _encode(self, frame: pd.DataFrame) -> tuple[Floats, Floats, Codes]:
        read = [
            column.encode(Cells.read(frame[column.name], column.name, in_fit=False))
            for column in self._columns
        ]
        num = [values for part in read for values in part.num]
        flags = [values for part in read for values in part.bin]
        flags += [values for part in read for values in part.indicator]
        cat = [values for part in read for values in part.cat]
        n = len(frame)
        # transposed, so that each column of num is contiguous
        return (
            np.array(num).reshape(-1, n).T,
            np.array(flags).reshape(-1, n).T,
            np.array(cat, dtype=np.int64).reshape(-1, n).T,
        )

    def transform(self, frame: pd.DataFrame, *, caller: str = "Preprocessor") -> Arrays:
        """Return the rows as arrays; `caller` is the name to use in messages."""
        if not hasattr(self, "_normalizer"):
            raise NotFittedError(f"{caller} is not fitted yet; call fit first")
        num, flags, cat = self._encode(self._match(to_frame(frame), caller))
        normalized = self._normalizer.transform(num)
        return Arrays(
            np.ascontiguousarray(normalized),
            np.ascontiguousarray(flags, dtype=np.float32),
            np.ascontiguousarray(cat),
        )

    def _match(self, frame: pd.DataFrame, caller: str) -> pd.DataFrame:
        """Return the frame with the column names of fit."""
        given = list(frame.columns)
        unnamed = given == default_names(len(given))
        absent = [name for name in self.kinds_ if name not in given]
        if not unnamed and not absent:
            return frame
        if not unnamed and list(self._inputs) != default_names(len(self._inputs)):
            raise DataError(
                f"the columns of fit must be there, however {absent} are absent;"
                " add them or fit again"
            )
        for names in (self._inputs, self.feature_names):
            if len(names) == len(given):
                return frame.set_axis(pd.Index(names), axis=1)
        raise DataError(
            f"X has {len(given)} features, but {caller} is expecting"
            f" {len(self.feature_names)} features as input; give the columns of fit"
        )

    def state(self) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
        """Return all that was fitted as a JSON-able dict and named arrays."""
        state = {
            "normalization": self.normalization,
            "kinds": self.kinds,
            "max_levels": self.max_levels,
            "ignore": list(self.ignore),
            "seed": self.seed,
            "inputs": list(self._inputs),
            "n_num": self.n_num,
            "n_bin": self.n_bin,
            "columns": [
                {"type": type(c).__name__.strip("_"), **dataclasses.asdict(c)}
                for c in self._columns
            ],
        }
        arrays = vars(self._normalizer)
        return state, {k: np.ascontiguousarray(v) for k, v in arrays.items()}

    @classmethod
    def from_state(
        cls, state: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]
    ) -> Self:
        """Return the preprocessor that `state` described; it transforms alike."""
        names = ("normalization", "kinds", "max_levels", "ignore", "seed")
        self = cls(**{name: state[name] for name in names})
        self._inputs = tuple(state["inputs"])
        self.n_num, self.n_bin = state["n_num"], state["n_bin"]
        self.feature_names = tuple(c for c in self._inputs if c not in self.ignore)
        columns = []
        for fields in state["columns"]:
            values: dict[str, Any] = dict(fields)
            for key, value in fields.items():  # JSON has no tuples
                values[key] = tuple(value) if isinstance(value, list) else value
            columns.append(_COLUMNS[values.pop("type")](**values))
        self._set_columns(columns)
        parts = [field.name for field in dataclasses.fields(Normalizer)]
        self._normalizer = Normalizer(**{name: arrays[name] for name in parts})
        return self
