"""Numeric columns are brought to one scale, mostly that of a normal distribution."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from tabr.config.checks import check_file
from tabr.optional import cached_property

Normalization = Literal[
    "quantile", "published-quantile", "standard", "robust", "both", "none"
]
Floats = npt.NDArray[np.float64]

_FLOAT32_MAX = float(np.finfo(np.float32).max)
_NOISE = 1e-3
_REACH = 3.0  # what a smooth clip never exceeds
_CELLS = 2**14  # of a block of rows
_MOST_QUANTILES = 1000  # tables of them are several times as large
_MOST_EXPONENT = 4000  # beyond that of any number, doubled
# the two constants of scikit-learn's QuantileTransformer
_BOUND = 1e-7
_CLIP = (ndtri(_BOUND - np.spacing(1)), ndtri(1 - (_BOUND - np.spacing(1))))


@dataclass(frozen=True)
class Normalizer:
    """Maps numeric columns to a common scale; constant columns become zero.

    Columns are first divided by a power of two, which is exact: it keeps huge numbers
    from overflowing and makes the quantile map independent of a column's unit.
    """

    exponent: npt.NDArray[np.int32]  # (p,)
    constant: npt.NDArray[np.int64]  # (p,), 1 for a constant column
    location: Floats  # (p,)
    scale: Floats  # (p,)
    quantiles: Floats  # (n_quantiles, p); no row: use location and scale
    smooth: npt.NDArray[np.int64] = field(  # (1,), 1 to clip smoothly
        default_factory=lambda: np.zeros(1, dtype=np.int64)
    )

    @classmethod
    def fit(cls, num: Floats, method: Normalization, seed: int) -> Normalizer:
        """Learn from num (n, p), which holds no missing values."""
        n, p = num.shape
        constant = num.min(axis=0) == num.max(axis=0)
        exponent = np.frexp(np.abs(num).max(axis=0))[1].astype(np.int32)
        if method in ("quantile", "standard", "robust"):
            exponent += np.frexp(np.ldexp(num, -exponent).std(axis=0))[1]
        else:  # these keep the unit where they can
            huge = (exponent > 500) & (method != "none")
            exponent = np.where(huge, 600, 0).astype(np.int32)
        num = np.ldexp(num, -exponent)
        location, scale, quantiles = np.zeros(p), np.ones(p), np.empty((0, p))
        if method == "standard":
            location, std = num.mean(axis=0), num.std(axis=0)
            scale = np.where(std > 0, std, 1.0)
        elif method == "robust":
            location, scale = _robust(num)
        elif method != "none":
            std = num.std(axis=0)
            # NOTE[DIFF]: the published noise is absolute, so it drowns columns of tiny
            # scale; ours is relative, and only the published option keeps theirs.
            noise = _NOISE * std
            if method == "published-quantile":
                noise = _NOISE / np.maximum(std, _NOISE)
            num = num + noise * np.random.RandomState(seed).standard_normal((n, p))
            n_quantiles = min(max(min(n // 30, _MOST_QUANTILES), 10), n)
            levels = np.linspace(0, 1, n_quantiles) * 100
            quantiles = np.maximum.accumulate(np.percentile(num, levels, axis=0))
        smooth = np.full(1, method == "robust", dtype=np.int64)
        return cls(
            exponent, constant.astype(np.int64), location, scale, quantiles, smooth
        )

    @classmethod
    def from_arrays(cls, given: Mapping[str, npt.NDArray[Any]], p: int) -> Normalizer:
        """Return that of p columns whose `arrays` a file holds."""
        self = cls(**given)
        i64, f64 = np.dtype(np.int64), np.dtype(np.float64)
        expected: dict[str, tuple[tuple[int, ...], np.dtype[Any]]] = {
            "exponent": ((p,), np.dtype(np.int32)),
            "constant": ((p,), i64),
            "location": ((p,), f64),
            "scale": ((p,), f64),
            "quantiles": ((len(self.quantiles), p), f64),
            "smooth": ((1,), i64),
        }
        for name, (shape, dtype) in expected.items():
            array = getattr(self, name)
            found = f"its {name} are {array.dtype} {array.shape}, not {dtype} {shape}"
            check_file(array.shape == shape and array.dtype == dtype, found)
            check_file(bool(np.isfinite(array).all()), f"its {name} are not finite")
        m = len(self.quantiles)
        check_file(m <= _MOST_QUANTILES, f"it has {m} quantiles of a column")
        rises = (np.diff(self.quantiles, axis=0) >= 0).all()
        flags = np.isin([*self.constant, *self.smooth], (0, 1)).all()
        near = (np.abs(self.exponent.astype(np.int64)) < _MOST_EXPONENT).all()
        fits = rises and flags and near and (self.scale > 0).all()
        check_file(bool(fits), "its scales of numbers are none")
        return self

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return what was fitted, without what is only prepared from it."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def __getstate__(self) -> dict[str, npt.NDArray[Any]]:
        return self.arrays()

    def transform(self, num: Floats) -> npt.NDArray[np.float32]:
        """Return num (n, p) on the common scale, finite in float32."""
        result = np.zeros(num.shape, dtype=np.float32)
        used, exponent = self._used
        if not len(exponent):
            return result
        with np.errstate(over="ignore"):
            for rows in row_blocks(*num.shape):
                values = np.ldexp(num[rows, used].T, exponent)
                if len(self.quantiles):
                    values = self._to_normal(values)
                else:
                    values -= self.location[used, None]
                    values /= self.scale[used, None]
                    if self.smooth[0]:
                        values /= np.hypot(1.0, values / _REACH)
                    values = values.clip(-_FLOAT32_MAX, _FLOAT32_MAX)
                result[rows, used] = values.T
        return result

    @cached_property
    def _used(self) -> tuple[slice | list[int], npt.NDArray[np.int32]]:
        """Which columns vary, and the exponents (p, 1) that scale them."""
        varying = np.flatnonzero(self.constant == 0)
        return as_index(varying.tolist()), -self.exponent[varying, None]

    @cached_property
    def _to_normal(self) -> _QuantileMap:
        return _QuantileMap(self.quantiles[:, self._used[0]])


def _robust(num: Floats) -> tuple[Floats, Floats]:
    """Return medians and widths (p,): between quartiles, else half of the range."""
    low, median, high = np.percentile(num, [25, 50, 75], axis=0)
    width, extent = high - low, num.max(axis=0) - num.min(axis=0)
    width = np.where(width > 0, width, extent / 2)
    return median, np.where(width > 0, width, 1.0)


class _QuantileMap:
    """Maps columns to a normal distribution, bit for bit as scikit-learn does.

    All columns are searched and interpolated at once. A value's steps are the number
    of quantiles up to it; with its column's offset, they are its place in the tables.
    """

    def __init__(self, quantiles: Floats) -> None:
        """Prepare tables of quantiles (m, p)."""
        m, p = quantiles.shape
        self.width = 2 ** m.bit_length()
        columns = np.ascontiguousarray(quantiles.T)
        self.first, self.last = columns[:, :1], columns[:, -1:]
        self.offset = self.width * np.arange(p)[:, None]
        shares = np.linspace(0, 1, m)
        self.share_below, self.share_above = np.append(0, shares), np.append(shares, 0)
        with np.errstate(all="ignore"):  # equal quantiles have no slope, and need none
            slopes = np.diff(shares) / np.diff(columns)
        # equal quantiles map to the middle of their range
        starts = np.array([column.searchsorted(column) for column in columns])
        # nan is never at or below a value; the bounds overwrite what comes of it
        self.below = np.append(np.nan, self._table(columns, 0))
        self.slopes = self._table(slopes, 1)
        self.ties = self._table(0.5 * (shares + shares[starts]), 1)

    def _table(self, values: Floats, start: int) -> Floats:
        table = np.full((len(values), self.width), np.nan)
        table[:, start : start + values.shape[1]] = values
        return table.ravel()

    def __call__(self, values: Floats) -> Floats:
        """Return values (p, n) mapped."""
        above = self.below[1:]
        places = np.repeat(self.offset, values.shape[1], axis=1)
        jump = self.width
        while jump := jump // 2:  # bisection; np.searchsorted mispredicts its branches
            places += jump * (above[jump - 1 :].take(places) <= values)
        steps = places - self.offset
        low, high = self.below.take(places), above.take(places)
        slopes = self.slopes.take(places)
        with np.errstate(all="ignore"):  # the formula of np.interp, from both sides
            up = slopes * (values - low) + self.share_below.take(steps)
            down = slopes * (high - values) - self.share_above.take(steps)
            share = 0.5 * (up - down)
        np.copyto(share, self.ties.take(places), where=values == low)
        share[values + _BOUND > self.last] = 1
        share[values - _BOUND < self.first] = 0
        normal: Floats = np.clip(ndtri(share), *_CLIP)
        return normal


def row_blocks(n: int, width: int) -> Iterator[slice]:
    """Cut n rows of so many columns into slices that stay in a processor's cache."""
    step = max(1, _CELLS // width)
    for start in range(0, n, step):
        yield slice(start, start + step)


def as_index(places: list[int]) -> slice | list[int]:
    """Return places as a slice if they are consecutive, which numpy reads faster."""
    first = places[0] if places else 0
    last = first + len(places)
    return slice(first, last) if places == list(range(first, last)) else places


def share_between(values: Floats, low: npt.ArrayLike, high: npt.ArrayLike) -> Floats:
    """Return where values lie between low and high: 0 to 1, and 0.5 if missing."""
    # a power of two is exact and keeps differences of huge numbers finite
    exponent = -np.frexp(np.maximum(np.abs(low), np.abs(high)))[1]
    low, high = np.ldexp(low, exponent), np.ldexp(high, exponent)
    with np.errstate(over="ignore"):
        share = np.clip((np.ldexp(values, exponent) - low) / (high - low), 0, 1)
    return np.where(np.isnan(values), 0.5, share)
