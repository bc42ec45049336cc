"""How attention is spread: over a row's neighbours, and over all candidates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tabr.report.evidence import Evidence

FAR = 0.01  # typicality below which a row is unlike all that the model remembers
MOST_FAR = 20  # far rows that are listed
MOST_USED = 8

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Used:
    """A candidate that many predictions came from."""

    id: int
    label: Any
    n_rows: int
    share: float  # of all weight


@dataclass(frozen=True)
class Far:
    """A row that is far from all candidates."""

    row: int
    typicality: float
    prediction: Any
    truth: Any


@dataclass(frozen=True)
class Attention:
    """Weights of neighbours, over rows that have any.

    Attributes:
        effective: Effective number of neighbours of each row: exp of the entropy of
            its weights, from 1 to m.
        heaviest: Weight of each row's heaviest neighbour.
        entropy: Entropy of the mean distribution over candidates, as in the paper.
        uniform: What it would be if all candidates were used alike.
        n_used: Candidates in the context of some row.
        n_never: Candidates in nobody's.
        most_used: The candidates of largest weight over all rows.
        n_alone: Rows without an allowed neighbour.
        n_far: Rows far from all candidates.
        far: The farthest of them.
    """

    effective: Floats
    heaviest: Floats
    entropy: float
    uniform: float
    n_used: int
    n_never: int
    most_used: list[Used]
    n_alone: int
    n_far: int
    far: list[Far]


def measure_attention(evidence: Evidence) -> Attention:
    """Look at the neighbours of all rows."""
    ids, weights, _ = evidence.table
    candidates = evidence.model.candidates_
    some = (ids >= 0).any(1)
    # An ensemble's context is cut to m, which leaves a sum slightly below one.
    own = weights[some] / np.maximum(weights[some].sum(1, keepdims=True), 1e-12)
    there = ids >= 0
    known, place = np.unique(ids[there], return_inverse=True)
    total = np.bincount(place, weights[there], minlength=len(known))
    n_rows = np.bincount(place, minlength=len(known))
    mean = total / max(float(total.sum()), 1e-12)
    top = np.argsort(-total, kind="stable")[:MOST_USED]
    labels = candidates.y_of(known[top])
    used = [
        Used(int(known[k]), label, int(n_rows[k]), float(mean[k]))
        for k, label in zip(top, labels, strict=True)
    ]
    is_far = np.flatnonzero(evidence.typicality < FAR)
    nearest_last = is_far[np.argsort(evidence.typicality[is_far], kind="stable")]
    far = [
        Far(
            int(evidence.positions[k]),
            float(evidence.typicality[k]),
            evidence.answers[k],
            evidence.truth[k],
        )
        for k in nearest_last[:MOST_FAR]
    ]
    return Attention(
        effective=np.exp(_entropy(own)),
        heaviest=own.max(1) if len(own) else np.empty(0),
        entropy=float(_entropy(mean[None])[0]),
        uniform=float(np.log(len(candidates))),
        n_used=len(known),
        n_never=len(candidates) - len(known),
        most_used=used,
        n_alone=int((~some).sum()),
        n_far=len(is_far),
        far=far,
    )


def _entropy(weights: Floats) -> Floats:
    """Return the entropies (n,) of distributions (n, m), in nats."""
    logs = np.log(weights, out=np.zeros_like(weights), where=weights > 0)
    entropy: Floats = -(weights * logs).sum(1)
    return entropy
