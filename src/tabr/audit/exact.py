"""Exact copies: rows whose cells are all equal, counted against a random split."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import binom

from tabr.audit.findings import Ids

Codes = NDArray[np.int64]


@dataclass(frozen=True)
class ExactCopies:
    """Who equals whom.

    Attributes:
        train_group: Number of each training row's group of equal rows, (n,).
        test_group: The same for test rows, (q,).
        first: For each test row the position of an equal training row, or -1.
        in_train: Whether a training row equals another training row, (n,).
        expected: Test rows with an equal training row, had all rows been split at
            random.
        spread: The standard deviation of that number.
    """

    train_group: Codes
    test_group: Codes
    first: Ids
    in_train: NDArray[np.bool_]
    expected: float
    spread: float

    @property
    def found(self) -> NDArray[np.bool_]:
        """Whether a test row equals a training row, (q,)."""
        return self.first >= 0

    @property
    def excess(self) -> float:
        """How many standard deviations more copies there are than by chance."""
        return (int(self.found.sum()) - self.expected) / max(self.spread, 0.5)


def group_rows(frame: pd.DataFrame) -> Codes:
    """Number groups of equal rows (n,); missing cells equal each other."""
    # Codes of cells first: cells of any type can be numbered, not all can be hashed.
    columns = {}
    for place, name in enumerate(frame.columns):
        codes, _ = pd.factorize(_comparable(frame[name]), use_na_sentinel=False)
        columns[str(place)] = codes
    hashes = pd.util.hash_pandas_object(pd.DataFrame(columns), index=False)
    return pd.factorize(hashes)[0].astype(np.int64)


def _comparable(column: pd.Series[Any]) -> pd.Series[Any]:
    if isinstance(column.dtype, pd.CategoricalDtype):
        return column.astype(object)
    if pd.api.types.is_bool_dtype(column.dtype):
        return column.astype("float64" if not column.hasnans else object)
    return column


def find_exact(train: pd.DataFrame, test: pd.DataFrame) -> ExactCopies:
    """Compare all cells of all rows, by numbers of cells instead of pairs of rows."""
    n, q = len(train), len(test)
    both = pd.concat([train, test], ignore_index=True)
    group = group_rows(both)
    in_train, in_test = group[:n], group[n:]
    size = np.bincount(group)
    n_groups = len(size)
    first = np.full(n_groups, -1, np.int64)
    first[in_train[::-1]] = np.arange(n)[::-1]
    train_size = np.bincount(in_train, minlength=n_groups)
    expected, variance = _by_chance(size, q / (n + q))
    return ExactCopies(
        in_train,
        in_test,
        first[in_test],
        train_size[in_train] > 1,
        expected,
        float(np.sqrt(variance)),
    )


def _by_chance(size: Codes, share: float) -> tuple[float, float]:
    """Return mean and variance of test rows with a twin, in a random split.

    A group of s rows gives b ~ Bin(s, share) of them to the test part; all b have a
    twin in the training part unless b = s. Groups are nearly independent, so large
    groups of equal rows widen the spread as they should.
    """
    counts = np.bincount(size)
    sizes = np.flatnonzero(counts)
    mean = variance = 0.0
    for s in sizes[sizes > 1]:
        all_in_test = float(binom.pmf(s, s, share))
        first = s * share - s * all_in_test
        second = s * share * (1 - share) + (s * share) ** 2 - s**2 * all_in_test
        mean += counts[s] * first
        variance += counts[s] * max(0.0, second - first**2)
    return mean, variance
