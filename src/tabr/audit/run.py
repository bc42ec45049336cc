"""The audit itself: tables in, a report out."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from tabr.audit.attention import model_findings
from tabr.audit.drift import drift_finding
from tabr.audit.exact_copies import exact_findings, find_exact
from tabr.audit.findings import (
    GRAVITIES,
    AuditReport,
    Example,
    Finding,
    make_example,
)
from tabr.audit.labels import Labels
from tabr.audit.near_copies import near_findings
from tabr.audit.parts import Part, read_parts, used_columns

MAX_PAIRS = 20_000_000_000  # of rows that are compared; about a minute on two cores
NEEDS_MODEL = (
    "a fitted model would add: attention that falls on one copy, labels that contradict"
    " all their neighbours, influential and unused candidates, distance to the memory"
)
_N_EXAMPLES = 2  # of each finding


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
    """Return what flatters a score or misleads a model, before it does.

    Args:
        X: The training rows, or all rows: any table.
        y: Their labels, or None.
        X_test: The other part, such as test rows. Without it and `test_rows` a
            random share of X is held out.
        y_test: Their labels, or None.
        test_rows: Which rows of X are the other part: a mask, or positions.
        model: A fitted estimator, with `neighbors` and `candidates_`.
        ignore: Columns to leave out.
        test_fraction: The share to hold out.
        random_state: Seed of all that is sampled.
        max_pairs: Pairs of rows to compare at most; beyond it rows are sampled.

    Returns:
        The findings, gravest first. Ids are positions in X, or in X_test if given.
    """
    rng = np.random.default_rng(random_state)
    train, test, notes = read_parts(X, y, X_test, y_test, test_rows, test_fraction, rng)
    columns, numbering = used_columns(train.frame, ignore)
    if numbering:
        notes.append(f"left out, as every row has a value of its own: {numbering}")
    findings, notes_of_tables = _table_findings(
        train.with_columns(columns), test.with_columns(columns), rng, max_pairs
    )
    notes += notes_of_tables
    if model is None:
        notes.append(NEEDS_MODEL)
    else:
        findings_of_model, notes_of_model = model_findings(
            model, test.frame, test.ids, rng
        )
        findings += findings_of_model
        notes += notes_of_model
    findings.sort(key=lambda f: GRAVITIES.index(f.gravity))  # stable: kinds keep order
    return AuditReport(
        tuple(findings),
        tuple(_examples(findings, train, test)),
        tuple(notes),
        len(train.ids),
        len(test.ids),
    )


def _table_findings(
    train: Part, test: Part, rng: np.random.Generator, max_pairs: int
) -> tuple[list[Finding], list[str]]:
    """Return findings and notes that need no model."""
    labels = None if train.y is None else Labels(train.y)
    exact = find_exact(train.frame, test.frame)
    near, notes = near_findings(exact, train, test, labels, rng, max_pairs)
    drift = drift_finding(train.frame, test.frame, rng)
    findings = [*exact_findings(exact, train, test, labels), *near]
    return findings + ([] if drift is None else [drift]), notes


def _examples(findings: list[Finding], train: Part, test: Part) -> list[Example]:
    """Return the gravest pairs of each finding that names pairs of these tables."""
    examples = []
    for finding in findings:
        # A model's candidates need not be rows of this table.
        if finding.part != "test" or "copies" not in finding.kind:
            continue
        rows, partners = finding.rows[:_N_EXAMPLES], finding.partners[:_N_EXAMPLES]
        for row, partner in zip(rows.tolist(), partners.tolist(), strict=True):
            test_row = test.frame.iloc[np.searchsorted(test.ids, row)]
            train_row = train.frame.iloc[np.searchsorted(train.ids, partner)]
            shared = test_row.index.intersection(train_row.index)
            pair = test_row[shared], train_row[shared]
            examples.append(make_example(finding.kind, row, partner, *pair))
    return examples
