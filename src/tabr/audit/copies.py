"""Findings about copies: exact and near, across the parts and within training."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tabr.audit.calibration import beyond_tail, judge
from tabr.audit.exact import ExactCopies
from tabr.audit.findings import Finding, Gravity, Ids, percent
from tabr.audit.labels import Labels
from tabr.audit.near import Coincidences
from tabr.tables.preprocessor import Preprocessor

OFTEN = 0.01  # share of rows from which copies are worth a warning
MIN_EXCESS = 4.0  # standard deviations over a random split
MIN_ROWS = 50  # distinct training rows, before near copies can be judged
MAX_REFERENCE = 50_000
_MIN_SAMPLE = 2000


def exact_findings(
    exact: ExactCopies,
    train_ids: Ids,
    test_ids: Ids,
    labels: Labels | None,
    y_test: NDArray[Any] | None,
) -> list[Finding]:
    """Say which rows equal a training row in all columns."""
    findings = []
    q, n = len(test_ids), len(train_ids)
    found = np.flatnonzero(exact.found)
    within = float(exact.in_train.mean())
    if len(found):
        k, usual = len(found), exact.expected / q
        is_leak = (
            exact.excess > MIN_EXCESS
            and k > 1.05 * exact.expected
            and k - exact.expected > 0.001 * q
        )
        partners = exact.first[found]
        text = (
            f"{k} of {q} test rows ({percent(k / q)}) equal a training row in all"
            f" columns; if the rows were split at random, {percent(usual)} would"
        )
        if within > 0:
            text += (
                f"; repeats are usual in this table: {percent(within)} within the"
                " training part too"
                if not is_leak
                else f"; {percent(within)} of training rows equal another"
            )
        text += _labels_text(labels, y_test, found, partners)
        findings.append(
            Finding(
                "exact copies",
                _gravity(is_leak, k / q),
                text,
                k,
                q,
                "test",
                test_ids[found],
                train_ids[partners],
                expected=usual,
            )
        )
    if exact.in_train.any():
        rows = np.flatnonzero(exact.in_train)
        findings.append(
            Finding(
                "exact copies in training",
                "warning" if within > OFTEN else "note",
                f"{len(rows)} of {n} training rows ({percent(within)}) equal another"
                " training row in all columns: they count more than once",
                len(rows),
                n,
                "train",
                train_ids[rows],
            )
        )
        if labels is not None:
            findings += _contradictions(exact, rows, train_ids, labels)
    return findings


def _contradictions(
    exact: ExactCopies, rows: Ids, train_ids: Ids, labels: Labels
) -> list[Finding]:
    """Find equal training rows whose labels differ."""
    values = pd.Series(labels.values[rows])
    groups = values.groupby(exact.train_group[rows])
    if labels.are_numbers:
        width = groups.transform("max") - groups.transform("min")
        differ = (width > 2 * 0.1 * labels.spread).to_numpy()
    else:
        differ = (groups.transform("nunique") > 1).to_numpy()
    if not differ.any():
        return []
    k, n = int(differ.sum()), len(train_ids)
    return [
        Finding(
            "contradicting labels",
            "warning" if k / n > OFTEN else "note",
            f"{k} of {n} training rows ({percent(k / n)}) equal another one but for the"
            " label: no model of these columns can tell them apart",
            k,
            n,
            "train",
            train_ids[rows[differ]],
        )
    ]


def near_findings(
    exact: ExactCopies,
    train: pd.DataFrame,
    test: pd.DataFrame,
    train_ids: Ids,
    test_ids: Ids,
    labels: Labels | None,
    y_test: NDArray[Any] | None,
    rng: np.random.Generator,
    max_pairs: int,
) -> tuple[list[Finding], list[str]]:
    """Say which rows nearly equal a training row, beyond what is usual."""
    notes: list[str] = []
    # Of equal rows one is searched: what is exact has been counted already.
    distinct = np.unique(exact.train_group, return_index=True)[1]
    asked = np.flatnonzero(~exact.found)
    alone = np.flatnonzero(~exact.in_train[distinct])  # positions in distinct
    if len(distinct) < MIN_ROWS or len(alone) < MIN_ROWS or not len(asked):
        notes.append(
            f"near copies were not looked for: that needs {MIN_ROWS} distinct training"
            f" rows and a test row that is no exact copy, however there are"
            f" {len(alone)} and {len(asked)}"
        )
        return [], notes
    seed = int(rng.integers(2**31))
    preprocessor = Preprocessor(seed=seed).fit(train.iloc[distinct])
    arrays = preprocessor.transform(train.iloc[distinct])
    index = Coincidences(preprocessor, arrays, seed)
    limit = max_pairs // (len(index.spaces) * len(distinct))
    asked = _sampled(asked, max(_MIN_SAMPLE, limit // 2), rng, "test rows", notes)
    room = min(MAX_REFERENCE, max(_MIN_SAMPLE, limit - len(asked)))
    alone = _sampled(alone, room, rng, "training rows (as reference)", notes)
    ours = index.closeness(preprocessor.transform(test.iloc[asked]), None)
    usual = index.closeness(preprocessor.transform(train.iloc[distinct[alone]]), alone)
    findings = []
    verdict = judge(ours.score, usual.score)
    named = np.flatnonzero(verdict.named)
    if len(named):
        order = named[np.argsort(-ours.score[named], kind="stable")]
        partners = distinct[ours.partner[order]]
        k, q = len(order), len(asked)
        text = (
            f"{k} of {q} test rows ({percent(k / q)}) nearly equal a training row;"
            f" {percent(verdict.usual)} of training rows come as near to another"
        )
        if verdict.is_excess:
            text += (
                f"; about {percent(verdict.excess)} of test rows are copies, and about"
                f" {percent(verdict.false_share)} of the rows named here are not"
            )
        text += _labels_text(labels, y_test, asked[order], partners)
        findings.append(
            Finding(
                "near copies",
                _gravity(verdict.is_excess, k / q),
                text,
                k,
                q,
                "test",
                test_ids[asked[order]],
                train_ids[partners],
                ours.score[order],
                verdict.usual,
            )
        )
    bound = max(beyond_tail(usual.score, usual.score), verdict.bound)
    within = np.flatnonzero(usual.score >= bound)
    if len(within):
        order = within[np.argsort(-usual.score[within], kind="stable")]
        share = len(within) / len(alone)
        findings.append(
            Finding(
                "near copies in training",
                "warning" if share > OFTEN else "note",
                f"{len(within)} of {len(alone)} training rows ({percent(share)}) nearly"
                " equal another training row: if they belong together, keep them in one"
                " part",
                len(within),
                len(alone),
                "train",
                train_ids[distinct[alone[order]]],
                train_ids[distinct[usual.partner[order]]],
                usual.score[order],
            )
        )
    return findings, notes


def _sampled(
    rows: Ids, n: int, rng: np.random.Generator, what: str, notes: list[str]
) -> Ids:
    if len(rows) <= n:
        return rows
    notes.append(f"near copies: a sample of {n} of {len(rows)} {what} was searched")
    return np.sort(rng.choice(rows, n, replace=False))


def _gravity(is_leak: bool, share: float) -> Gravity:
    return "leak" if is_leak else "warning" if share > OFTEN else "note"


def _labels_text(
    labels: Labels | None, y_test: NDArray[Any] | None, rows: Ids, partners: Ids
) -> str:
    if labels is None or y_test is None:
        return ""
    n_agree = int(labels.agree(y_test[rows], partners).sum())
    return f"; {n_agree} of their labels agree, {len(rows) - n_agree} contradict"
