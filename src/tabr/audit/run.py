"""The audit itself: tables in, a report out."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from tabr.audit.attention import model_findings
from tabr.audit.drift import drift_findings
from tabr.audit.exact_copies import exact_findings, find_exact
from tabr.audit.findings import GRAVITIES, AuditReport, Example, Finding
from tabr.audit.near_copies import near_findings
from tabr.audit.parts import Part, read_parts, used_columns
from tabr.text import plain

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
    parts = train.with_columns(columns), test.with_columns(columns)
    frames = parts[0].frame, parts[1].frame
    exact = find_exact(*frames)
    findings = [
        *exact_findings(exact, *parts),
        *near_findings(exact, *parts, rng, max_pairs, notes),
        *drift_findings(*frames, rng),
    ]
    if model is None:
        notes.append(NEEDS_MODEL)
    else:
        findings += model_findings(model, test, rng, notes)
    findings.sort(key=lambda f: GRAVITIES.index(f.gravity))  # stable: kinds keep order
    return AuditReport(
        tuple(findings),
        tuple(_examples(findings, train, test)),
        tuple(notes),
        len(train.ids),
        len(test.ids),
    )


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
            cells = {
                str(name): (plain(test_row[name]), plain(train_row[name]))
                for name in test_row.index.intersection(train_row.index)
            }
            examples.append(Example(finding.kind, row, partner, cells))
    return examples
