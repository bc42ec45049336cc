"""Exact copies: rows whose cells are all equal, counted against a random split."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import binom

from tabr.audit.findings import Finding, Ids
from tabr.audit.parts import Part, agreement_text
from tabr.audit.significance import MIN_EXCESS_SHARE
from tabr.text import percent

MIN_EXCESS = 4.0  # standard deviations over a random split
MIN_EXCESS_RATIO = 1.05  # of the copies to those of a random split

Codes = NDArray[np.int64]


@dataclass(frozen=True)
class ExactCopies:
    """Rows that equal each other in all cells."""

    train_group: Codes  # number of each training row's group of equal rows, (n,)
    first: Ids  # for each test row the position of an equal training row, or -1
    in_train: NDArray[np.bool_]  # whether a training row equals another one, (n,)
    expected: float  # test rows with an equal training row in a random split
    spread: float  # the standard deviation of that number

    @property
    def is_copy(self) -> NDArray[np.bool_]:
        """Whether a test row equals a training row, (q,)."""
        return self.first >= 0


def group_rows(frame: pd.DataFrame) -> Codes:
    """Return numbers of groups of equal rows (n,); missing cells equal each other."""
    # Codes of cells first: cells of any type can be numbered, not all can be hashed.
    codes = [pd.factorize(frame[n], use_na_sentinel=False)[0] for n in frame.columns]
    columns = pd.DataFrame(dict(enumerate(codes)))
    hashes = pd.util.hash_pandas_object(columns, index=False)
    return pd.factorize(hashes)[0].astype(np.int64)


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
    is_repeated = train_size[in_train] > 1
    spread = float(np.sqrt(variance))
    return ExactCopies(in_train, first[in_test], is_repeated, expected, spread)


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


def exact_findings(exact: ExactCopies, train: Part, test: Part) -> list[Finding]:
    """Return findings about rows that equal a training row in all columns."""
    findings = []
    if exact.is_copy.any():
        findings.append(_across(exact, train, test))
    if exact.in_train.any():
        text = "equal another training row in all columns: they count more than once"
        rows = train.ids, exact.in_train
        findings.append(
            Finding.of_rows("exact copies in training", text, "train", *rows)
        )
    if train.labels is not None:
        differ = train.labels.differ_within(exact.train_group)
        if differ.any():
            text = (
                "equal another one but for the label: no model of these columns can"
                " tell them apart"
            )
            rows = train.ids, differ
            findings.append(
                Finding.of_rows("contradicting labels", text, "train", *rows)
            )
    return findings


def _across(exact: ExactCopies, train: Part, test: Part) -> Finding:
    """Return the finding about test rows that equal a training row."""
    k, q = int(exact.is_copy.sum()), len(test.ids)
    usual, within = exact.expected / q, float(exact.in_train.mean())
    excess = k - exact.expected
    is_leak = (
        excess > MIN_EXCESS * max(exact.spread, 0.5)
        and k > MIN_EXCESS_RATIO * exact.expected
        and excess > MIN_EXCESS_SHARE * q
    )
    text = (
        "equal a training row in all columns; if the rows were split at random,"
        f" {percent(usual)} would"
    )
    if within > 0 and is_leak:
        text += f"; {percent(within)} of training rows equal another"
    elif within > 0:
        text += f"; repeats are usual in this table: {percent(within)} within the"
        text += " training part too"
    return Finding.of_rows(
        "exact copies",
        text + agreement_text(train, test, exact.is_copy, exact.first),
        "test",
        test.ids,
        exact.is_copy,
        gravity="leak" if is_leak else None,
        partners=train.ids[exact.first],
        expected=usual,
    )
