"""Findings by a fitted model's neighbours: copies, contradictions, use.

The model is any object with `neighbors(X)`, which gives `ids`, `weights` and
`distances` (rows, m), and `candidates_` with `ids`, `frame` and `y`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import mannwhitneyu

from tabr.audit.findings import Finding, Ids
from tabr.audit.labels import Labels
from tabr.audit.significance import MAX_CHANCE, MIN_EXCESS_SHARE, chance_of_more
from tabr.prediction.explanation import NeighborTable
from tabr.prediction.uncertainty import distance
from tabr.text import percent

Floats = NDArray[np.float64]

MIN_WEIGHT = 0.5  # of one neighbour, before attention counts as fallen on it
MAX_RATIO = 0.25  # of its distance to the next one's
N_JUDGES = 10  # heaviest neighbours whose labels are compared with the row's
FAR_OUT = 5.0  # robust standard deviations of what neighbours leave unexplained
MOST_ROWS = 5000  # of each part that the model is asked about


def model_findings(
    model: Any, test: pd.DataFrame, test_ids: Ids, rng: np.random.Generator
) -> tuple[list[Finding], list[str]]:
    """Return findings by the neighbours of test rows and of candidates, and notes."""
    notes: list[str] = []
    chosen = _sample(len(test), rng, "test rows", notes)
    test_ids = test_ids[chosen]
    table = _arrays(model.neighbors(test.iloc[chosen]))
    candidate_ids = np.asarray(model.candidates_.ids)
    chosen = _sample(len(candidate_ids), rng, "candidates", notes)
    frame = model.candidates_.frame.iloc[chosen]
    among = without_self(_arrays(model.neighbors(frame)), candidate_ids[chosen])
    labels = Labels(np.asarray(model.candidates_.y))
    findings = [
        on_one_copy(table, test_ids, among),
        against_neighbors(among, chosen, labels, candidate_ids),
        far_from_memory(table, test_ids, among),
        *use(table, candidate_ids),
    ]
    return [finding for finding in findings if finding is not None], notes


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


def on_one_copy(table: NeighborTable, ids: Ids, among: NeighborTable) -> Finding | None:
    """Return rows whose attention falls on one almost-copy, as in the paper's case."""
    named = falls_on_one(table)
    n, k = len(ids), int(named.sum())
    if not k:
        return None
    usual = float(falls_on_one(among).mean())
    chance = chance_of_more(k, n, round(usual * len(among.ids)), len(among.ids))
    is_leak = chance < MAX_CHANCE and k / n > 2 * usual + MIN_EXCESS_SHARE
    place = table.weights.argmax(1)[:, None]
    partners = np.take_along_axis(table.ids, place, 1)[:, 0]
    weight = table.weights.max(1)
    order = np.flatnonzero(named)[np.argsort(-weight[named], kind="stable")]
    often = is_leak or k / n > 0.05
    return Finding(
        "attention on one copy",
        "leak" if is_leak else "warning" if often else "note",
        f"{k} of {n} test rows ({percent(k / n)}) give most of their attention to one"
        f" candidate that is at least {1 / MAX_RATIO:.0f} times nearer than the next;"
        f" {percent(usual)} of candidates do so among themselves",
        k,
        n,
        "test",
        ids[order],
        partners[order],
        weight[order],
        usual,
    )


def against_neighbors(
    among: NeighborTable, rows: Ids, labels: Labels, ids: Ids
) -> Finding | None:
    """Return candidates whose label contradicts those of all their neighbours.

    Args:
        among: The neighbours of some candidates, (b, m).
        rows: The positions of these candidates, (b,).
        labels: Of all candidates, (n,).
        ids: Of all candidates, (n,).
    """
    position = pd.Index(ids).get_indexer(pd.Index(among.ids.ravel()))
    position = position.reshape(among.ids.shape)[:, :N_JUDGES]
    contradicts, strength = labels.against(rows, position, FAR_OUT)
    k, n = int(contradicts.sum()), len(rows)
    if not k:
        return None
    named = np.flatnonzero(contradicts)
    order = named[np.argsort(-strength[named], kind="stable")]
    return Finding(
        "labels against neighbours",
        "warning",
        f"{k} of {n} candidates ({percent(k / n)}) have a label that"
        f" {labels.against_text} of their {min(N_JUDGES, among.ids.shape[1])} heaviest"
        " neighbours: check them",
        k,
        n,
        "candidates",
        ids[rows[order]],
        among.ids[order, 0],
        strength[order],
    )


def far_from_memory(
    table: NeighborTable, ids: Ids, among: NeighborTable
) -> Finding | None:
    """Return new rows that lie farther from the candidates than these do."""
    distances, usual = distance(table), distance(among)
    finite, usual = distances[np.isfinite(distances)], usual[np.isfinite(usual)]
    if len(finite) < 2 or len(usual) < 2:
        return None
    result = mannwhitneyu(finite, usual, alternative="greater")
    auc = float(result.statistic) / (len(finite) * len(usual))
    far = distances > np.quantile(usual, 0.99)
    is_drift = auc > 0.6 and result.pvalue < 1e-3
    order = np.flatnonzero(far)[np.argsort(-distances[far], kind="stable")]
    return Finding(
        "far from the memory",
        "warning" if is_drift else "note",
        f"{int(far.sum())} of {len(ids)} test rows ({percent(float(far.mean()))}) lie"
        " farther from the candidates than 99% of these from each other; a test row is"
        f" the farther one with probability {auc:.2f} (0.5 means no drift,"
        f" p = {result.pvalue:.2g})",
        int(far.sum()),
        len(ids),
        "test",
        ids[order],
        scores=distances[order],
        expected=0.01,
    )


def use(table: NeighborTable, ids: Ids) -> list[Finding]:
    """Return the candidates that predictions lean on, and those in no context."""
    position = pd.Index(ids).get_indexer(pd.Index(table.ids.ravel()))
    exists = position >= 0
    weights = table.weights.ravel()[exists]
    weight = np.bincount(position[exists], weights, minlength=len(ids))
    is_used = np.bincount(position[exists], minlength=len(ids)) > 0
    order = np.argsort(-weight, kind="stable")
    n_top = max(1, len(ids) // 100)
    share = float(weight[order[:n_top]].sum() / max(weight.sum(), 1e-30))
    top = order[: min(n_top, 100)]
    rows = len(table.ids)
    unused = np.flatnonzero(~is_used)
    unused_share = percent(len(unused) / len(ids))
    return [
        Finding(
            "influential candidates",
            "note",
            f"{n_top} of {len(ids)} candidates hold {percent(share)} of all weight over"
            f" {rows} rows; the heaviest, {ids[top[0]]}, holds"
            f" {percent(float(weight[top[0]] / max(weight.sum(), 1e-30)))}",
            n_top,
            len(ids),
            "candidates",
            ids[top],
            scores=np.asarray(weight[top], np.float64),
        ),
        Finding(
            "candidates never used",
            "note",
            f"{len(unused)} of {len(ids)} candidates ({unused_share}) are in no context"
            f" of the {rows} rows",
            len(unused),
            len(ids),
            "candidates",
            ids[unused],
        ),
    ]


def _sample(n: int, rng: np.random.Generator, what: str, notes: list[str]) -> Ids:
    """Return the positions of n rows, or of a random part and a note about it."""
    if n <= MOST_ROWS:
        return np.arange(n)
    notes.append(f"the model was asked about {MOST_ROWS} of {n} {what}")
    return np.sort(rng.choice(n, MOST_ROWS, replace=False))


def _arrays(table: Any) -> NeighborTable:
    """Return the three arrays that count of what a model gave."""
    return NeighborTable(
        np.asarray(table.ids), np.asarray(table.weights), np.asarray(table.distances)
    )
