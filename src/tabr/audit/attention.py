"""Findings by a fitted model's neighbours: copies, contradictions, use.

The model is any object with `neighbors(X)`, which gives a `NeighborTable`, and
`candidates_` with `ids`, `frame` and `y`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import mannwhitneyu

from tabr.audit.findings import Finding, Ids
from tabr.audit.labels import Labels
from tabr.audit.parts import Part
from tabr.audit.significance import MAX_CHANCE, MIN_EXCESS_SHARE, chance_of_more
from tabr.prediction.explanation import NeighborTable
from tabr.prediction.uncertainty import distance
from tabr.tables.frame import random_rows
from tabr.text import percent

MIN_WEIGHT = 0.5  # of one neighbour, before attention counts as fallen on it
MAX_RATIO = 0.25  # of its distance to the next one's
N_JUDGES = 10  # heaviest neighbours whose labels are compared with the row's
FAR_OUT = 5.0  # robust standard deviations of what neighbours leave unexplained
MOST_ROWS = 5000  # of each part that the model is asked about


def model_findings(
    model: Any, test: Part, rng: np.random.Generator, notes: list[str]
) -> list[Finding]:
    """Return findings by the neighbours of test rows and of candidates; add notes."""
    candidate_ids = np.asarray(model.candidates_.ids)
    totals = {"test rows": len(test.ids), "candidates": len(candidate_ids)}
    tested, chosen = (random_rows(n, MOST_ROWS, rng) for n in totals.values())
    notes += [
        f"the model was asked about {MOST_ROWS} of {n} {what}"
        for what, n in totals.items()
        if n > MOST_ROWS
    ]
    table = model.neighbors(test.frame.iloc[tested])
    among = model.neighbors(model.candidates_.frame.iloc[chosen])
    among = without_self(among, candidate_ids[chosen])
    labels = Labels(np.asarray(model.candidates_.y))
    return [
        *on_one_copy(table, test.ids[tested], among),
        *against_neighbors(among, chosen, labels, candidate_ids),
        *far_from_memory(table, test.ids[tested], among),
        *use(table, candidate_ids),
    ]


def without_self(table: NeighborTable, row_ids: Ids) -> NeighborTable:
    """Return each row's neighbours but the row itself; weights sum to one again.

    Every row loses one neighbour: itself, or else the lightest one.
    """
    is_self = table.ids == row_ids[:, None]
    last = np.zeros_like(is_self)
    last[:, -1] = ~is_self.any(1)
    kept = ~(is_self | last)
    n, m = table.ids.shape
    ids, weights, distances = (part[kept].reshape(n, m - 1) for part in table)
    total = weights.sum(1, keepdims=True)
    # A row may put all its weight on itself: then nothing is left to share out.
    return NeighborTable(ids, weights / np.where(total > 0, total, 1.0), distances)


def falls_on_one(table: NeighborTable) -> NDArray[np.bool_]:
    """Whether a row looks at one neighbour that is far nearer than the next, (n,)."""
    if table.ids.shape[1] < 2:
        return np.zeros(len(table.ids), bool)
    nearest = np.sort(table.distances, 1)
    heaviest = table.weights.argmax(1)[:, None]
    distance = np.take_along_axis(table.distances, heaviest, 1)[:, 0]
    ratio = np.where(
        nearest[:, 1] > 0, distance / np.maximum(nearest[:, 1], 1e-30), 1.0
    )
    return np.asarray((table.weights.max(1) >= MIN_WEIGHT) & (ratio <= MAX_RATIO))


def on_one_copy(table: NeighborTable, ids: Ids, among: NeighborTable) -> list[Finding]:
    """Return rows whose attention falls on one almost-copy, as in the paper's case."""
    is_named = falls_on_one(table)
    n, k = len(ids), int(is_named.sum())
    if not k:
        return []
    usual = float(falls_on_one(among).mean())
    chance = chance_of_more(k, n, round(usual * len(among.ids)), len(among.ids))
    is_leak = chance < MAX_CHANCE and k / n > 2 * usual + MIN_EXCESS_SHARE
    heaviest = table.weights.argmax(1)[:, None]
    finding = Finding.of_rows(
        "attention on one copy",
        f"give most of their attention to one candidate that is at least"
        f" {1 / MAX_RATIO:.0f} times nearer than the next; {percent(usual)} of"
        " candidates do so among themselves",
        "test",
        ids,
        is_named,
        gravity="leak" if is_leak else "warning" if k / n > 0.05 else "note",
        partners=np.take_along_axis(table.ids, heaviest, 1)[:, 0],
        scores=table.weights.max(1),
        expected=usual,
    )
    return [finding]


def against_neighbors(
    among: NeighborTable, rows: Ids, labels: Labels, ids: Ids
) -> list[Finding]:
    """Return candidates whose label contradicts those of all their neighbours.

    `among` are the neighbours of candidates at positions `rows` (b,); labels and ids
    are those of all candidates.
    """
    position = pd.Index(ids).get_indexer(pd.Index(among.ids.ravel()))
    n_judges = min(N_JUDGES, among.ids.shape[1])
    position = position.reshape(among.ids.shape)[:, :n_judges]
    contradicts, strength = labels.against(rows, position, FAR_OUT)
    if not contradicts.any():
        return []
    finding = Finding.of_rows(
        "labels against neighbours",
        f"have a label that {labels.against_text} of their {n_judges}"
        " heaviest neighbours: check them",
        "candidates",
        ids[rows],
        contradicts,
        gravity="warning",
        partners=among.ids[:, 0],
        scores=strength,
    )
    return [finding]


def far_from_memory(
    table: NeighborTable, ids: Ids, among: NeighborTable
) -> list[Finding]:
    """Return new rows that lie farther from the candidates than these do."""
    distances, usual = distance(table), distance(among)
    finite, usual = distances[np.isfinite(distances)], usual[np.isfinite(usual)]
    if len(finite) < 2 or len(usual) < 2:
        return []
    result = mannwhitneyu(finite, usual, alternative="greater")
    auc = float(result.statistic) / (len(finite) * len(usual))
    is_drift = auc > 0.6 and result.pvalue < 1e-3
    finding = Finding.of_rows(
        "far from the memory",
        "lie farther from the candidates than 99% of these from each other; a test row"
        f" is the farther one with probability {auc:.2f} (0.5 means no drift,"
        f" p = {result.pvalue:.2g})",
        "test",
        ids,
        distances > np.quantile(usual, 0.99),
        gravity="warning" if is_drift else "note",
        scores=distances,
        expected=0.01,
    )
    return [finding]


def use(table: NeighborTable, ids: Ids) -> list[Finding]:
    """Return the candidates that predictions lean on, and those in no context."""
    position = pd.Index(ids).get_indexer(pd.Index(table.ids.ravel()))
    exists = position >= 0
    weights = table.weights.ravel()[exists]
    weight = np.bincount(position[exists], weights, minlength=len(ids))
    share = weight / max(weight.sum(), 1e-30)
    order = np.argsort(-weight, kind="stable")
    n, n_rows, n_top = len(ids), len(table.ids), max(1, len(ids) // 100)
    top = order[: min(n_top, 100)]
    text = (
        f"{n_top} of {n} candidates hold {percent(float(share[order[:n_top]].sum()))}"
        f" of all weight over {n_rows} rows; the heaviest, {ids[top[0]]}, holds"
        f" {percent(float(share[top[0]]))}"
    )
    heaviest = Finding(
        "influential candidates",
        "note",
        text,
        n_top,
        n,
        "candidates",
        ids[top],
        scores=np.asarray(weight[top], np.float64),
    )
    text = f"are in no context of the {n_rows} rows"
    is_unused = np.bincount(position[exists], minlength=n) == 0
    rows = "candidates", ids, is_unused
    unused = Finding.of_rows("candidates never used", text, *rows, gravity="note")
    return [heaviest, unused]
