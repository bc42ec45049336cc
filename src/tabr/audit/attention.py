"""What a fitted model's neighbours tell about its rows: copies, contradictions, use.

The model is any object with `neighbors(X)`, which gives `ids`, `weights` and
`distances` (rows, m), and `candidates_` with `ids`, `frame` and `y`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import mannwhitneyu

from tabr.audit.calibration import MAX_CHANCE, MIN_EXCESS_SHARE, chance_of_more
from tabr.audit.findings import Finding, Ids, percent
from tabr.audit.labels import Labels
from tabr.prediction.explanation import NeighborTable
from tabr.prediction.uncertainty import distance

Floats = NDArray[np.float64]

MIN_WEIGHT = 0.5  # of one neighbour, before attention counts as fallen on it
MAX_RATIO = 0.25  # of its distance to the next one's
N_JUDGES = 10  # heaviest neighbours whose labels are compared with a row's own
FAR_OUT = 5.0  # robust standard deviations of what neighbours leave unexplained
_SAMPLE = 5000  # rows that are asked about, of each part


def model_findings(
    model: Any, test: pd.DataFrame, test_ids: Ids, rng: np.random.Generator
) -> tuple[list[Finding], list[str]]:
    """Ask the model for neighbours, and return findings and notes."""
    notes = []
    chosen = _sample(len(test), rng)
    if len(chosen) < len(test):
        notes.append(
            f"the model was asked about {len(chosen)} of {len(test)} test rows"
        )
    asked, ids = test.iloc[chosen], test_ids[chosen]
    answers = _arrays(model.neighbors(asked))
    candidates = model.candidates_
    own = _sample(len(candidates.ids), rng)
    if len(own) < len(candidates.ids):
        notes.append(
            f"the model was asked about {len(own)} of {len(candidates.ids)} candidates"
        )
    own_ids = np.asarray(candidates.ids)[own]
    among = without_self(_arrays(model.neighbors(candidates.frame.iloc[own])), own_ids)
    labels = Labels(np.asarray(candidates.y))
    findings = [
        on_one_copy(answers, ids, among),
        against_neighbors(among, own_ids, own, labels, np.asarray(candidates.ids)),
        far_from_memory(answers, ids, among),
        *use(answers, np.asarray(candidates.ids)),
    ]
    return [finding for finding in findings if finding is not None], notes


def without_self(table: NeighborTable, own: Ids) -> NeighborTable:
    """Drop from each row's neighbours the row itself, by id; weights sum to one again.

    Every row loses one neighbour: itself, or else the lightest one.
    """
    is_self = table.ids == own[:, None]
    last = np.zeros_like(is_self)
    last[:, -1] = ~is_self.any(1)
    kept = ~(is_self | last)
    n, m = table.ids.shape
    ids, weights, distances = (part[kept].reshape(n, m - 1) for part in table)
    total = weights.sum(1, keepdims=True)
    # A row may put all its weight on itself: then nothing is left to share out.
    return NeighborTable(ids, weights / np.where(total > 0, total, 1.0), distances)


def falls_on_one(table: NeighborTable) -> NDArray[np.bool_]:
    """Say which rows look at one neighbour that is far nearer than the next (n,)."""
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
    """Find rows whose attention falls on one almost-copy, as in the paper's case."""
    found = falls_on_one(table)
    n, k = len(ids), int(found.sum())
    if not k:
        return None
    usual = float(falls_on_one(among).mean())
    chance = chance_of_more(k, n, round(usual * len(among.ids)), len(among.ids))
    is_leak = chance < MAX_CHANCE and k / n > 2 * usual + MIN_EXCESS_SHARE
    place = table.weights.argmax(1)[:, None]
    partners = np.take_along_axis(table.ids, place, 1)[:, 0]
    weight = table.weights.max(1)
    order = np.flatnonzero(found)[np.argsort(-weight[found], kind="stable")]
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
    among: NeighborTable, own_ids: Ids, own: Ids, labels: Labels, ids: Ids
) -> Finding | None:
    """Find candidates whose label contradicts those of all their neighbours."""
    position = pd.Index(ids).get_indexer(pd.Index(among.ids.ravel()))
    position = position.reshape(among.ids.shape)[:, :N_JUDGES]
    strange, strength = labels.against(own, position, FAR_OUT)
    k, n = int(strange.sum()), len(own)
    if not k:
        return None
    order = np.flatnonzero(strange)[np.argsort(-strength[strange], kind="stable")]
    nearest = among.ids[:, 0]
    return Finding(
        "labels against neighbours",
        "warning",
        f"{k} of {n} candidates ({percent(k / n)}) have a label that"
        f" {labels.against_text} of their {min(N_JUDGES, among.ids.shape[1])} heaviest"
        " neighbours: check them",
        k,
        n,
        "candidates",
        own_ids[order],
        nearest[order],
        strength[order],
    )


def far_from_memory(
    table: NeighborTable, ids: Ids, among: NeighborTable
) -> Finding | None:
    """Find whether new rows lie farther from the candidates than these do."""
    ours, usual = distance(table), distance(among)
    ours_ok, usual_ok = np.isfinite(ours), np.isfinite(usual)
    if ours_ok.sum() < 2 or usual_ok.sum() < 2:
        return None
    result = mannwhitneyu(ours[ours_ok], usual[usual_ok], alternative="greater")
    auc = float(result.statistic) / (ours_ok.sum() * usual_ok.sum())
    bound = float(np.quantile(usual[usual_ok], 0.99))
    far = ours > bound
    is_drift = auc > 0.6 and result.pvalue < 1e-3
    order = np.flatnonzero(far)[np.argsort(-ours[far], kind="stable")]
    return Finding(
        "far from the memory",
        "warning" if is_drift else "note",
        f"{int(far.sum())} of {len(ids)} test rows ({percent(float(far.mean()))}) lie"
        " farther from the candidates than 99 % of these from each other; a test row is"
        f" the farther one with probability {auc:.2f} (0.5 means no drift,"
        f" p = {result.pvalue:.2g})",
        int(far.sum()),
        len(ids),
        "test",
        ids[order],
        scores=ours[order],
        expected=0.01,
    )


def use(table: NeighborTable, ids: Ids) -> list[Finding]:
    """Find the candidates that predictions lean on, and those never looked at."""
    found = table.ids >= 0
    position = pd.Index(ids).get_indexer(pd.Index(table.ids[found]))
    known = position >= 0
    weight = np.bincount(
        position[known], table.weights[found][known], minlength=len(ids)
    )
    seen = np.bincount(position[known], minlength=len(ids)) > 0
    order = np.argsort(-weight, kind="stable")
    n_top = max(1, len(ids) // 100)
    share = float(weight[order[:n_top]].sum() / max(weight.sum(), 1e-30))
    top = order[: min(n_top, 100)]
    rows = len(table.ids)
    unused = np.flatnonzero(~seen)
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


def _sample(n: int, rng: np.random.Generator) -> Ids:
    if n <= _SAMPLE:
        return np.arange(n)
    return np.sort(rng.choice(n, _SAMPLE, replace=False))


def _arrays(table: Any) -> NeighborTable:
    """Read what a model gave, of which only three arrays count."""
    return NeighborTable(
        np.asarray(table.ids), np.asarray(table.weights), np.asarray(table.distances)
    )
