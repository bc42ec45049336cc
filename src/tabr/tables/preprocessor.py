"""A preprocessor learns how a table's columns become arrays for the network.

- Numbers are imputed by the training median. A column with missing values in fit
  also gets an indicator in `bin`, after all binary columns. Timedeltas are seconds.
- Two values and nothing missing make a binary column: the lower is 0, the higher 1.
  Later numbers are mapped linearly and clipped; unknown or missing cells are 0.5.
- Categories are compared as text, where 1.0 is written "1". A missing cell is a level
  of its own if fit saw one. Rare levels beyond `max_levels` share one level. A value
  that fit did not see has no level: -1.
- If `levels` is "means", and fit is given labels, a column of more levels than
  `max_levels` also gives the mean label of each level, drawn to the mean of all by as
  much as ten rows would. Training rows get means of other folds of the rows, so that no
  row meets its own label; a level that fit did not see gets the mean of all.
- Dates become days since 1970 in UTC, and either "parts", the month, day, weekday and
  hour where they vary, or "cycles": sines and cosines of the time of day, the week, the
  month and the year, where the rows go round them. Cycles are not normalised.
  Text is a date if all of it is written as 2024-05-31, with or without a time.
- If rows are held out and `trends` is "within", a number or a date's days are left out
  where the held-out rows lie ahead of the training rows, in nine of ten pairs of both.
- Constant columns are dropped, and may be absent later. If all are constant, the first
  stays as a numeric column of zeros.
- Columns are matched by name, in any order; more columns are ignored. A table named
  x0, x1, ... counts as unnamed: it is matched by position and its width must agree.
- Infinite, complex and nested cells are refused. Numbers beyond float32 are clipped.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self, get_args

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.exceptions import NotFittedError

from tabr.config.checks import check_file
from tabr.errors import DataError
from tabr.tables.cells import Cells, Codes, ColumnKind, Flags, Floats
from tabr.tables.columns import (
    BinaryText,
    Categorical,
    Column,
    Dates,
    Known,
    Levels,
    MeanCategorical,
    Numbers,
    fit_column,
    read_column,
    widths_of,
)
from tabr.tables.frame import match_columns, readable, to_frame
from tabr.tables.normalize import Normalization, Normalizer
from tabr.tables.shape import DataShape
from tabr.tables.targets import Target

Trends = Literal["all", "within"]

N_FOLDS = 5  # parts of the training rows that learn means of levels from the others


@dataclass(frozen=True)
class Arrays:
    """The rows of a table as the network takes them; -1 in `cat` means no level."""

    num: npt.NDArray[np.float32]  # (n, p)
    bin: Flags  # (n, q)
    cat: Codes  # (n, r)


@dataclass(frozen=True)
class EncodedRows:
    """Rows in the columns of fit, and the same as the network takes them."""

    frame: pd.DataFrame
    arrays: Arrays

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.frame)

    def take(self, index: npt.NDArray[np.int64]) -> EncodedRows:
        """Return the rows at index."""
        frame = self.frame.iloc[index].reset_index(drop=True)
        num, flags, codes = self.arrays.num, self.arrays.bin, self.arrays.cat
        return EncodedRows(frame, Arrays(num[index], flags[index], codes[index]))


class Preprocessor:
    """Learns the encoding of a table's columns and applies it to new rows.

    `kinds` overrides the kind of columns, `ignore` names columns that are no features.
    The module's first lines give the rules.

    >>> rows = pd.DataFrame({"age": [30.0, 41.0, 52.0], "town": ["a", "b", "c"]})
    >>> Preprocessor(normalization="none").fit(rows).transform(rows).cat.ravel()
    array([0, 1, 2])
    """

    feature_names: tuple[str, ...]  # of fit, in order, without the ignored ones
    kinds_: dict[str, ColumnKind]  # of the columns in use
    dropped: tuple[str, ...]  # constant in fit, or a mere trend
    # The column in which held-out rows lay ahead; only fit asks, so no file has it.
    trend: str | None = None
    n_num: int
    n_bin: int
    cardinalities: tuple[int, ...]  # levels of each categorical column

    def __init__(
        self,
        *,
        normalization: Normalization = "quantile",
        kinds: Mapping[str, ColumnKind] | None = None,
        max_levels: int = 256,
        ignore: Collection[str] = (),
        seed: int = 0,
        dates: Dates = "parts",
        trends: Trends = "all",
        levels: Levels = "codes",
    ) -> None:
        self.normalization: Normalization = normalization
        self.dates: Dates = dates
        self.trends: Trends = trends
        self.levels: Levels = levels
        self.kinds = {str(name): kind for name, kind in (kinds or {}).items()}
        self.max_levels = max_levels
        ignored = [ignore] if isinstance(ignore, str) else ignore
        self.ignore = tuple(str(name) for name in ignored)
        self.seed = seed
        for option, value, values in (
            ("normalization", normalization, get_args(Normalization)),
            ("dates", dates, get_args(Dates)),
            ("trends", trends, get_args(Trends)),
            ("levels", levels, get_args(Levels)),
        ):
            if value not in values:
                raise DataError(
                    f"{option} must be one of {values}, however {value!r} came; choose"
                    " one of them"
                )
        for name, kind in self.kinds.items():
            if kind not in get_args(ColumnKind):
                raise DataError(
                    f"a kind must be one of {get_args(ColumnKind)}, however kinds has"
                    f" {kind!r} for column {name!r}; choose one of them"
                )
        if max_levels < 2:
            raise DataError(
                f"max_levels must be at least 2, however {max_levels=} came; raise it"
            )

    def fit(self, frame: pd.DataFrame) -> Self:
        """Learn kinds, levels and scales from the training rows."""
        self.fit_transform(frame)
        return self

    def fit_transform(
        self,
        frame: pd.DataFrame,
        held_out: pd.DataFrame | None = None,
        learned: npt.NDArray[np.int64] | None = None,
        *,
        labels: Floats | None = None,
        weights: Floats | None = None,
        caller: str = "Preprocessor",
    ) -> Arrays:
        """Learn from the training rows, and return them as arrays.

        Args:
            frame: The training rows.
            held_out: Rows of which nothing is learned but in which columns they lie
                ahead of the training rows, for `trends`.
            learned: Positions (k,) of the training rows that they are held out from,
                where they are training rows themselves.
            labels: Labels (n, k) of the training rows, for the means of `levels`; see
                `Target.sides`. A row's own label has no part in its arrays.
            weights: Weights (n,) of the training rows in these means.
            caller: The name to use in messages.
        """
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
        self.trend = None
        means = self._fit_columns(frame, self._known(labels, weights))
        if held_out is not None and self.trends == "within":
            earlier = frame if learned is None else frame.iloc[learned]
            self._leave_trends_out(earlier, self._match(readable(held_out), caller))
        num, flags, codes = self._encode(frame)
        for column, places in self._placed:
            if column.name in means:
                first, values = places[0], means[column.name]
                num[:, first : first + values.shape[1]] = values
        methods: list[Normalization] = [self.normalization]
        if self.normalization == "both":
            methods = ["quantile", "robust"]
        self._normalizers = [Normalizer.fit(num, m, self.seed) for m in methods]
        self.n_num, self.n_bin = len(methods) * num.shape[1], flags.shape[1]
        return Arrays(self._normalized(num), flags, codes)

    def _fit_columns(
        self, frame: pd.DataFrame, known: Known | None
    ) -> dict[str, Floats]:
        """Learn the columns; return means (n, k) for the training rows, by name."""
        columns, means = [], {}
        for name in self.feature_names:
            cells = Cells.read(frame[name], name, in_fit=True)
            kind = self.kinds.get(name, cells.kind)
            column = fit_column(cells, kind, self.max_levels, self.dates)
            if (
                known is not None
                and isinstance(column, Categorical)
                and len(column.levels) > self.max_levels
            ):
                column = MeanCategorical.learned(column, cells, known)
                means[name] = column.out_of_fold(cells, known)
            columns.append(column)
        self._set_columns([c for c in columns if c is not None])
        return means

    def _known(self, labels: Floats | None, weights: Floats | None) -> Known | None:
        """Return what means of levels are learned from, or None."""
        if self.levels == "codes" or labels is None:
            return None
        n = len(labels)
        folds = np.random.RandomState(self.seed).permutation(n) % N_FOLDS
        return Known(labels, np.ones(n) if weights is None else weights, folds)

    def _leave_trends_out(self, frame: pd.DataFrame, held_out: pd.DataFrame) -> None:
        """Drop what lies beyond the training rows, unless that is all there is."""
        kept = []
        for column in self._columns:
            cells, later = (
                Cells.read(rows[column.name], column.name, in_fit=rows is frame)
                for rows in (frame, held_out)
            )
            kept.append(column.within(cells, later))
        changed = zip(self._columns, kept, strict=True)
        trends = [column for column, left in changed if left != column]
        # A date tells time; a number that runs ahead may be anything that grows.
        trends.sort(key=lambda column: column.kind != "date")
        self.trend = trends[0].name if trends else None
        left = [column for column in kept if column is not None]
        if left:
            self._set_columns(left)

    def _normalized(self, num: Floats) -> npt.NDArray[np.float32]:
        """Return num (n, p), once by each normalizer, side by side."""
        parts = [normalizer.transform(num) for normalizer in self._normalizers]
        return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)

    def _set_columns(self, columns: list[Column]) -> None:
        self._columns = columns or [Column(self.feature_names[0])]
        self.kinds_ = {column.name: column.kind for column in self._columns}
        self.dropped = tuple(c for c in self.feature_names if c not in self.kinds_)
        levels = [c.n_levels for c in self._columns if isinstance(c, Categorical)]
        self.cardinalities = tuple(levels)
        widths = np.array(
            [widths_of(column) for column in self._columns], dtype=np.int64
        )
        places = np.cumsum(widths, axis=0) - widths
        places[:, 2] += widths[:, 1].sum()  # indicators follow all binary columns
        self._widths = widths.sum(axis=0).tolist()
        self._placed = list(zip(self._columns, places.tolist(), strict=True))
        self._numbers = Numbers(self._placed)

    @property
    def known_texts(self) -> dict[str, tuple[str, ...]]:
        """The levels that fit saw, by column, where text became levels."""
        known = {}
        for column in self._columns:
            if isinstance(column, Categorical):
                known[column.name] = column.levels
            elif isinstance(column, BinaryText):
                known[column.name] = (column.low, column.high)
        return known

    def with_levels_of(self, frame: pd.DataFrame) -> tuple[Self, dict[str, list[str]]]:
        """Return it with the levels of these rows alone, and the others by column.

        To the others it is as if fit had not seen them; nothing else differs.
        """
        columns, gone = [], {}
        for column in self._columns:
            if isinstance(column, Categorical):
                cells = Cells.read(frame[column.name], column.name, in_fit=False)
                here = {*cells.levels[1]}
                places = [k for k, v in enumerate(column.levels) if v in here]
                if len(places) < len(column.levels):
                    gone[column.name] = [v for v in column.levels if v not in here]
                    column = column.with_levels(places)
            columns.append(column)
        new = copy.copy(self)
        new._set_columns(columns)
        return new, gone

    def _encode(self, frame: pd.DataFrame) -> tuple[Floats, Flags, Codes]:
        n = len(frame)
        n_num, n_bin, n_indicators, n_cat = self._widths
        num = np.empty((n_num, n))
        flags = np.empty((n, n_bin + n_indicators), dtype=np.float32)
        cat = np.empty((n, n_cat), dtype=np.int64)
        targets: list[npt.NDArray[Any]] = [num, flags.T, flags.T, cat.T]
        done = self._numbers.read(frame, num, flags)
        for column, places in self._placed:
            if column.name not in done:
                cells = Cells.read(frame[column.name], column.name, in_fit=False)
                part = column.encode(cells)
                for target, first, given in zip(targets, places, part, strict=True):
                    for place, values in enumerate(given, first):
                        target[place] = values
        return num.T, flags, cat

    def match(self, X: object, *, caller: str = "Preprocessor") -> pd.DataFrame:
        """Return any table's rows with the columns' names of fit."""
        if not hasattr(self, "_normalizers"):
            raise NotFittedError(f"{caller} is not fitted yet; call fit first")
        return self._match(readable(X), caller)

    def _match(self, frame: pd.DataFrame, caller: str) -> pd.DataFrame:
        return match_columns(
            frame, self._inputs, self.feature_names, self.kinds_, caller
        )

    def shape(self, target: Target) -> DataShape:
        """Return what a network for these columns and this target must know."""
        columns = self.n_num, self.n_bin, self.cardinalities
        return DataShape(*columns, target.task, target.n_classes, self._sources())

    def _sources(self) -> tuple[int, ...]:
        """Return the number of the column that each encoded column comes from."""
        widths = np.array([widths_of(column) for column in self._columns]).T
        numbers = np.arange(len(self._columns))
        num, *others = (numbers.repeat(width) for width in widths)
        parts = [num] * len(self._normalizers) + others
        return tuple(np.concatenate(parts).tolist())

    def transform(self, frame: pd.DataFrame, *, caller: str = "Preprocessor") -> Arrays:
        """Return the rows as arrays; `caller` is the name to use in messages."""
        return self.encode(frame, caller=caller).arrays

    def encode(self, X: object, *, caller: str = "Preprocessor") -> EncodedRows:
        """Return any table's rows with the columns of fit, and as arrays."""
        frame = self.match(X, caller=caller)
        num, flags, codes = self._encode(frame)
        return EncodedRows(frame, Arrays(self._normalized(num), flags, codes))

    def state(self) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
        """Return all that was fitted as a JSON-able dict and named arrays."""
        state = {
            "normalization": self.normalization,
            "kinds": self.kinds,
            "max_levels": self.max_levels,
            "ignore": list(self.ignore),
            "seed": self.seed,
            "dates": self.dates,
            "trends": self.trends,
            "levels": self.levels,
            "inputs": list(self._inputs),
            "n_num": self.n_num,
            "n_bin": self.n_bin,
            "columns": [
                {"type": type(c).__name__, **dataclasses.asdict(c)}
                for c in self._columns
            ],
        }
        first, *others = self._normalizers
        arrays = first.arrays()
        for number, other in enumerate(others, 1):
            arrays |= {f"{number}.{k}": v for k, v in other.arrays().items()}
        return state, {k: np.ascontiguousarray(v) for k, v in arrays.items()}

    @classmethod
    def from_state(
        cls, state: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]
    ) -> Self:
        """Return the preprocessor that `state` described; it transforms alike."""
        always = ("normalization", "kinds", "max_levels", "ignore", "seed")
        added = ("dates", "trends", "levels")  # older files have none of them
        later = {name: state[name] for name in added if name in state}
        self = cls(**{name: state[name] for name in always}, **later)
        self._inputs = tuple(state["inputs"])
        texts = all(type(name) is str for name in self._inputs)
        distinct = texts and len({*self._inputs}) == len(self._inputs)
        check_file(distinct, "the names of its columns are none")
        self.feature_names = tuple(c for c in self._inputs if c not in self.ignore)
        columns = [read_column(fields) for fields in state["columns"]]
        known = {column.name for column in columns} & {*self.feature_names}
        check_file(len(known) == len(columns) > 0, "it reads columns that it has not")
        self._set_columns(columns)
        n_num, n_bin, n_indicators, _ = self._widths
        starts = ("", "1.") if self.normalization == "both" else ("",)
        self.n_num, self.n_bin = len(starts) * n_num, n_bin + n_indicators
        widths = self.n_num, self.n_bin
        same = widths == (state["n_num"], state["n_bin"])
        check_file(same, f"its columns give other widths than it says: {widths}")
        names = [field.name for field in dataclasses.fields(Normalizer)]
        self._normalizers = []
        for start in starts:
            parts = {k: arrays[start + k] for k in names if start + k in arrays}
            self._normalizers.append(Normalizer.from_arrays(parts, n_num))
        n_known = sum(f"{start}{k}" in arrays for start in starts for k in names)
        check_file(n_known == len(arrays), "it has more scales than columns")
        return self
