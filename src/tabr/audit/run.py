"""The audit itself: tables in, a report out."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tabr.audit.attention import model_findings
from tabr.audit.copies import exact_findings, near_findings
from tabr.audit.drift import drift_finding
from tabr.audit.exact import find_exact
from tabr.audit.findings import (
    GRAVITIES,
    AuditReport,
    Example,
    Finding,
    Ids,
    make_example,
)
from tabr.audit.labels import Labels
from tabr.errors import DataError, ParameterError
from tabr.tables.frame import to_frame

MAX_PAIRS = 20_000_000_000  # of rows that are compared; about a minute on two cores
NEEDS_MODEL = (
    "a fitted model would add: attention that falls on one copy, labels that contradict"
    " all their neighbours, influential and unused candidates, distance to the memory"
)
_N_EXAMPLES = 2  # of each finding


@dataclass(frozen=True)
class Part:
    """Rows of one part: ids, frame and labels, all of length n."""

    ids: Ids
    frame: pd.DataFrame
    y: NDArray[Any] | None

    def take(self, index: Ids) -> Part:
        """Return the rows at index."""
        frame = self.frame.iloc[index].reset_index(drop=True)
        return Part(self.ids[index], frame, None if self.y is None else self.y[index])


def audit(
    X: object,
    y: object = None,
    X_test: object = None,
    y_test: object = None,
    *,
    test_rows: object = None,
    model: Any = None,
    ignore: Collection[str] = (),
    test_fraction: float = 0.2,
    random_state: int = 0,
    max_pairs: int = MAX_PAIRS,
) -> AuditReport:
    """Look for what flatters a score or misleads a model, before it does.

    Args:
        X: The training rows, or all rows: any table.
        y: Their labels, or None.
        X_test: The other part, such as test rows. Without it and `test_rows` a
            random share of X is held out.
        y_test: Their labels, or None.
        test_rows: Which rows of X are the other part: a mask, or positions.
        model: A fitted estimator that `neighbors` and `candidates_` can be asked of.
        ignore: Columns to leave out.
        test_fraction: The share to hold out.
        random_state: Seed of all that is sampled.
        max_pairs: Pairs of rows to compare at most; beyond it rows are sampled.

    Returns:
        The findings, gravest first. Ids are positions in X, or in X_test if given.
    """
    rng = np.random.default_rng(random_state)
    train, test, notes = _parts(X, y, X_test, y_test, test_rows, test_fraction, rng)
    used = _used_columns(train.frame, ignore, notes)
    train_used, test_used = train.frame[used], test.frame[used]
    labels = None if train.y is None else Labels(train.y)
    exact = find_exact(train_used, test_used)
    findings = exact_findings(exact, train.ids, test.ids, labels, test.y)
    near, near_notes = near_findings(
        exact,
        train_used,
        test_used,
        train.ids,
        test.ids,
        labels,
        test.y,
        rng,
        max_pairs,
    )
    findings += near
    notes += near_notes
    moved = drift_finding(train_used, test_used, rng)
    findings += [moved] if moved is not None else []
    if model is None:
        notes.append(NEEDS_MODEL)
    else:
        asked, asked_notes = model_findings(model, test.frame, test.ids, rng)
        findings += asked
        notes += asked_notes
    findings.sort(key=lambda f: GRAVITIES.index(f.gravity))  # stable: kinds keep order
    return AuditReport(
        tuple(findings),
        tuple(_examples(findings, train, test)),
        tuple(notes),
        len(train.ids),
        len(test.ids),
    )


def _parts(
    X: object,
    y: object,
    X_test: object,
    y_test: object,
    test_rows: object,
    fraction: float,
    rng: np.random.Generator,
) -> tuple[Part, Part, list[str]]:
    if X_test is not None and test_rows is not None:
        raise ParameterError(
            "the test part must be given once, however both X_test and test_rows came:"
            " leave one out"
        )
    whole = _part(X, y, "X")
    n = len(whole.ids)
    if X_test is not None:
        other = _part(X_test, y_test, "X_test")
        absent = [c for c in whole.frame.columns if c not in other.frame.columns]
        if absent:
            raise DataError(
                f"both parts must have the same columns, however the test part has no"
                f" {absent}: add them, or ignore them in both"
            )
        return whole, other, []
    if test_rows is not None:
        index = np.asarray(test_rows)
        mask = np.zeros(n, bool)
        mask[index] = True
        if not 0 < mask.sum() < n:
            raise DataError(
                f"both parts need rows, however {int(mask.sum())} of {n} are test rows:"
                " name some of them"
            )
        train, test = np.flatnonzero(~mask), np.flatnonzero(mask)
        return whole.take(train), whole.take(test), []
    if not 0 < fraction < 1:
        raise ParameterError(
            f"`0 < test_fraction < 1` must hold, however: {fraction=}: choose a share"
        )
    if n < 2:
        raise DataError(f"an audit needs 2 rows, however {n} came: add rows")
    order = rng.permutation(n)
    n_test = min(max(1, round(n * fraction)), n - 1)
    note = f"no test part was given: {n_test} of {n} rows were held out at random"
    train, test = np.sort(order[n_test:]), np.sort(order[:n_test])
    return whole.take(train), whole.take(test), [note]


def _part(X: object, y: object, name: str) -> Part:
    frame = to_frame(X)
    if y is None:
        return Part(np.arange(len(frame)), frame, None)
    series = y if isinstance(y, pd.Series) else pd.Series(np.asarray(y).ravel())
    if len(series) != len(frame):
        raise DataError(
            f"each row needs one label, however {name} has {len(frame)} rows and"
            f" {len(series)} labels: give as many"
        )
    return Part(np.arange(len(frame)), frame, series.to_numpy())


def _used_columns(
    frame: pd.DataFrame, ignore: Collection[str], notes: list[str]
) -> list[str]:
    """Leave out ignored columns and those that only number the rows."""
    ignored = {ignore} if isinstance(ignore, str) else set(ignore)
    unknown = sorted(ignored - set(frame.columns))
    if unknown:
        raise DataError(
            f"ignored columns must be columns of the table, however it has no"
            f" {unknown}: the columns are {list(frame.columns)}"
        )
    used = [name for name in frame.columns if name not in ignored]
    numbering = [name for name in used if _numbers_rows(frame[name])]
    if numbering and len(numbering) < len(used):
        used = [name for name in used if name not in numbering]
        notes.append(f"left out, as every row has a value of its own: {numbering}")
    if not used:
        raise DataError("an audit needs a column, however all are ignored: keep one")
    return used


def _numbers_rows(column: pd.Series[Any]) -> bool:
    """Say whether a column is a name or a number of each row."""
    if len(column) < 30 or not column.is_unique:
        return False
    if pd.api.types.is_integer_dtype(column.dtype):
        # Quantities may be distinct too, but they are not in order without gaps.
        return bool(column.is_monotonic_increasing and column.diff().max() <= 100)
    return bool(
        pd.api.types.is_object_dtype(column.dtype)
        or pd.api.types.is_string_dtype(column.dtype)
    )


def _examples(findings: list[Finding], train: Part, test: Part) -> list[Example]:
    """Show the gravest pairs of each finding that names pairs of these tables."""
    examples = []
    for finding in findings:
        # A model's candidates need not be rows of this table.
        if finding.part != "test" or "copies" not in finding.kind:
            continue
        rows, partners = finding.rows[:_N_EXAMPLES], finding.partners[:_N_EXAMPLES]
        for row, partner in zip(rows.tolist(), partners.tolist(), strict=True):
            one = test.frame.iloc[np.searchsorted(test.ids, row)]
            two = train.frame.iloc[np.searchsorted(train.ids, partner)]
            shared = one.index.intersection(two.index)
            pair = one[shared], two[shared]
            examples.append(make_example(finding.kind, row, partner, *pair))
    return examples
