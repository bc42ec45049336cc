"""Splits of tables: those of the paper, made again, and a random one.

A table alone is enough to have the paper's splits. All recipes depend on the order of
the rows. `tests/bench/tasks/test_splits.py` compares the paper's with its files where
these are at hand.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.model_selection import train_test_split

from tabr.tables.samples import places_in_proportion

MOST_SCORED = 50_000  # validation or test rows of the second benchmark
_TRAIN_SHARE = 0.7
_VAL_SHARE = 0.3  # of what is left
_SHARE = 0.2  # of test rows, then of validation rows, in the first benchmark


def why_split(X: pd.DataFrame, seed: int, n_most: int) -> NDArray[Any]:
    """Return the part of each row (n,) in a split of the second benchmark.

    Rows that are scored but have a category which no training row has are "unused",
    and so is what exceeds the largest sizes.

    Args:
        X: The features; categories are those with a categorical type.
        seed: Number of the split.
        n_most: Training rows at most: 10,000 in "medium" sets, 50,000 in "large" ones.
    """
    n = len(X)
    random = np.random.RandomState(seed)
    random.standard_normal()  # drawn by the benchmark for something else
    order = random.permutation(n)
    # In floating point, so that it can come out one below n_most.
    n_train = int(n * min(_TRAIN_SHARE, n_most / n))
    rest, train = np.split(order, [n - n_train])
    rest = rest[random.permutation(len(rest))]
    test, val = np.split(rest, [len(rest) - int(_VAL_SHARE * len(rest))])

    parts = np.full(n, "unused", dtype=object)
    parts[train] = "train"
    parts[val[:MOST_SCORED]] = "val"
    parts[test[:MOST_SCORED]] = "test"
    parts[_has_new_category(X, train)] = "unused"
    return parts


def _has_new_category(X: pd.DataFrame, train: NDArray[Any]) -> NDArray[np.bool_]:
    """Whether each row has a category that none of the training rows has."""
    is_new = np.zeros(len(X), dtype=bool)
    for name in X.columns:
        if isinstance(X[name].dtype, pd.CategoricalDtype):
            codes = X[name].cat.codes.to_numpy()
            is_new |= ~np.isin(codes, codes[train])
    return is_new


def default_split(y: NDArray[Any], *, stratified: bool) -> NDArray[Any]:
    """Return the part of each row (n,) in the split of a set of the first benchmark.

    A fifth is for tests and a fifth of the rest for validation, by scikit-learn's
    `train_test_split` with seeds 0 and 1.
    """
    rows = np.arange(len(y))
    rest, test = train_test_split(
        rows, test_size=_SHARE, random_state=0, stratify=y if stratified else None
    )
    _, val = train_test_split(
        rest, test_size=_SHARE, random_state=1, stratify=y[rest] if stratified else None
    )
    parts = np.full(len(y), "train", dtype=object)
    parts[test], parts[val] = "test", "val"
    return parts


def random_split(y: NDArray[Any], *, stratified: bool, seed: int = 0) -> NDArray[Any]:
    """Return the part of each row: 64 % train, 16 % val, 20 % test, by chance.

    >>> random_split(np.repeat([0, 1], [20, 5]), stratified=True).tolist().count("val")
    4
    """
    n = len(y)
    order = np.random.RandomState(seed).permutation(n)
    if stratified:
        order = order[np.argsort(places_in_proportion(y[order]), kind="stable")]
    n_test, n_val = round(0.2 * n), round(0.16 * n)
    parts = np.full(n, "train", dtype=object)
    parts[order[:n_test]] = "test"
    parts[order[n_test : n_test + n_val]] = "val"
    return parts
