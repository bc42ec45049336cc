"""Exact copies: rows whose cells are all equal, counted against a random split."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import binom

from tabr.audit.findings import Finding, Ids, gravity_of
from tabr.audit.labels import Labels
from tabr.audit.parts import Part
from tabr.text import percent

MIN_EXCESS = 4.0  # standard deviations over a random split
MIN_EXCESS_RATIO = 1.05  # of the copies to those of a random split
MIN_EXCESS_SHARE = 0.001  # of all test rows

Codes = NDArray[np.int64]


@dataclass(frozen=True)
class ExactCopies:
    """Rows that equal each other in all cells.

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
    def is_copy(self) -> NDArray[np.bool_]:
        """Whether a test row equals a training row, (q,)."""
        return self.first >= 0

    @property
    def excess(self) -> float:
        """Standard deviations by which there are more copies than by chance."""
        return (int(self.is_copy.sum()) - self.expected) / max(self.spread, 0.5)


def group_rows(frame: pd.DataFrame) -> Codes:
    """Return numbers of groups of equal rows (n,); missing cells equal each other."""
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
    """Return the copies, found by numbers of cells instead of pairs of rows."""
    n, q = len(train), len(test)
    group = group_rows(pd.concat([train, test], ignore_index=True))
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
    groups of equal rows widen the spread.
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


def exact_findings(
    exact: ExactCopies, train: Part, test: Part, labels: Labels | None
) -> list[Finding]:
    """Return findings about rows that equal a training row in all columns."""
    findings = []
    if exact.is_copy.any():
        findings.append(_across(exact, train, test, labels))
    if exact.in_train.any():
        rows = np.flatnonzero(exact.in_train)
        k, n = len(rows), len(train.ids)
        findings.append(
            Finding(
                "exact copies in training",
                gravity_of(k / n),
                f"{k} of {n} training rows ({percent(k / n)}) equal another"
                " training row in all columns: they count more than once",
                k,
                n,
                "train",
                train.ids[rows],
            )
        )
        if labels is not None:
            findings += _contradictions(exact, rows, train.ids, labels)
    return findings


def _across(
    exact: ExactCopies, train: Part, test: Part, labels: Labels | None
) -> Finding:
    """Return the finding about test rows that equal a training row."""
    rows = np.flatnonzero(exact.is_copy)
    partners = exact.first[rows]
    k, q = len(rows), len(test.ids)
    usual, within = exact.expected / q, float(exact.in_train.mean())
    is_leak = (
        exact.excess > MIN_EXCESS
        and k > MIN_EXCESS_RATIO * exact.expected
        and k - exact.expected > MIN_EXCESS_SHARE * q
    )
    text = (
        f"{k} of {q} test rows ({percent(k / q)}) equal a training row in all"
        f" columns; if the rows were split at random, {percent(usual)} would"
    )
    if within > 0 and is_leak:
        text += f"; {percent(within)} of training rows equal another"
    elif within > 0:
        text += f"; repeats are usual in this table: {percent(within)} within the"
        text += " training part too"
    if labels is not None and test.y is not None:
        text += labels.agreement_text(test.y[rows], partners)
    return Finding(
        "exact copies",
        gravity_of(k / q, is_leak=is_leak),
        text,
        k,
        q,
        "test",
        test.ids[rows],
        train.ids[partners],
        expected=usual,
    )


def _contradictions(
    exact: ExactCopies, rows: Ids, train_ids: Ids, labels: Labels
) -> list[Finding]:
    """Return the finding about equal training rows whose labels differ, if any do."""
    differ = labels.differ_within(exact.train_group[rows], rows)
    if not differ.any():
        return []
    k, n = int(differ.sum()), len(train_ids)
    return [
        Finding(
            "contradicting labels",
            gravity_of(k / n),
            f"{k} of {n} training rows ({percent(k / n)}) equal another one but for the"
            " label: no model of these columns can tell them apart",
            k,
            n,
            "train",
            train_ids[rows[differ]],
        )
    ]
