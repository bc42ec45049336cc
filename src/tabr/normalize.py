"""Numeric columns are brought to one scale, mostly that of a normal distribution."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

Normalization = Literal["quantile", "published-quantile", "standard", "none"]
Floats = npt.NDArray[np.float64]

_FLOAT32_MAX = float(np.finfo(np.float32).max)
_NOISE = 1e-3
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

    @classmethod
    def fit(cls, num: Floats, method: Normalization, seed: int) -> Normalizer:
        """Learn from num (n, p), which holds no missing values."""
        n, p = num.shape
        constant = num.min(axis=0) == num.max(axis=0)
        exponent = np.frexp(np.abs(num).max(axis=0))[1].astype(np.int32)
        if method in ("quantile", "standard"):
            exponent += np.frexp(np.ldexp(num, -exponent).std(axis=0))[1]
        else:  # these keep the unit where they can
            huge = (exponent > 500) & (method != "none")
            exponent = np.where(huge, 600, 0).astype(np.int32)
        num = np.ldexp(num, -exponent)
        location, scale, quantiles = np.zeros(p), np.ones(p), np.empty((0, p))
        if method == "standard":
            location, std = num.mean(axis=0), num.std(axis=0)
            scale = np.where(std > 0, std, 1.0)
        elif method != "none":
            std = num.std(axis=0)
            # NOTE[DIFF]: the published noise is absolute, so it drowns columns of tiny
            # scale; ours is relative, and only the published option keeps theirs.
            noise = _NOISE * std
            if method == "published-quantile":
                noise = _NOISE / np.maximum(std, _NOISE)
            num = num + noise * np.random.RandomState(seed).standard_normal((n, p))
            n_quantiles = min(max(min(n // 30, 1000), 10), n)
            levels = np.linspace(0, 1, n_quantiles) * 100
            quantiles = np.maximum.accumulate(np.percentile(num, levels, axis=0))
        return cls(exponent, constant.astype(np.int64), location, scale, quantiles)

    def transform(self, num: Floats) -> npt.NDArray[np.float32]:
        """Return num (n, p) on the common scale, finite in float32."""
        result = np.zeros(num.shape, dtype=np.float32, order="F")
        for j in np.flatnonzero(self.constant == 0):
            with np.errstate(over="ignore"):
                values = np.ldexp(num[:, j], -self.exponent[j])
                if len(self.quantiles):
                    values = _to_normal(values, self.quantiles[:, j])
                else:
                    values = (values - self.location[j]) / self.scale[j]
            result[:, j] = np.clip(values, -_FLOAT32_MAX, _FLOAT32_MAX)
        return result


def _to_normal(values: Floats, quantiles: Floats) -> Floats:
    """Map values (n,) to a normal distribution, bit for bit as scikit-learn does."""
    references = np.linspace(0, 1, len(quantiles))
    # from both sides, so that repeated quantiles map to the middle of their range
    up = np.interp(values, quantiles, references)
    down = np.interp(-values, -quantiles[::-1], -references[::-1])
    share = 0.5 * (up - down)
    share[values + _BOUND > quantiles[-1]] = 1
    share[values - _BOUND < quantiles[0]] = 0
    normal: Floats = np.clip(ndtri(share), *_CLIP)
    return normal
