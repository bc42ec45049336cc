"""How attention is spread: over a row's neighbours, and over all candidates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tabr.report.evaluation import Evaluation

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
    """Weights of neighbours, over rows that have any."""

    effective: Floats  # exp of the entropy of each row's weights, from 1 to m
    heaviest: Floats  # weight of each row's heaviest neighbour
    entropy: float  # of the mean distribution over candidates, as in the paper
    uniform: float  # what it would be if all candidates were used alike
    n_used: int  # candidates in the context of some row
    n_never: int  # candidates in the context of none
    most_used: list[Used]  # those of largest weight over all rows
    n_alone: int  # rows without an allowed neighbour
    n_far: int  # rows far from all candidates
    far: list[Far]  # the farthest of them
    tells_far: bool  # whether enough rows were held out to tell


def measure_attention(evaluation: Evaluation) -> Attention:
    """Return how the weights of all rows are spread."""
    ids, weights, _ = evaluation.table
    candidates = evaluation.model.candidates_
    is_neighbor = ids >= 0
    has_neighbors = is_neighbor.any(1)
    row_weights = weights[has_neighbors]
    # An ensemble's context is cut to m, which leaves a sum slightly below one.
    row_weights = row_weights / np.maximum(row_weights.sum(1, keepdims=True), 1e-12)
    used, place = np.unique(ids[is_neighbor], return_inverse=True)
    total = np.bincount(place, weights[is_neighbor], minlength=len(used))
    n_rows = np.bincount(place, minlength=len(used))
    mean = total / max(float(total.sum()), 1e-12)
    top = np.argsort(-total, kind="stable")[:MOST_USED]
    most_used = [
        Used(int(used[k]), label, int(n_rows[k]), float(mean[k]))
        for k, label in zip(top, candidates.y_of(used[top]), strict=True)
    ]
    far = np.flatnonzero(evaluation.typicality < FAR)
    farthest = far[np.argsort(evaluation.typicality[far], kind="stable")][:MOST_FAR]
    return Attention(
        effective=np.exp(_entropy(row_weights)),
        heaviest=row_weights.max(1) if len(row_weights) else np.empty(0),
        entropy=float(_entropy(mean[None])[0]),
        uniform=float(np.log(len(candidates))),
        n_used=len(used),
        n_never=len(candidates) - len(used),
        most_used=most_used,
        n_alone=int((~has_neighbors).sum()),
        n_far=len(far),
        far=[
            Far(
                int(evaluation.positions[k]),
                float(evaluation.typicality[k]),
                evaluation.answers[k],
                evaluation.truth[k],
            )
            for k in farthest
        ],
        # Of n rows that were held out, no new row is rarer than 1 in n + 1.
        tells_far=len(evaluation.model.calibration_.distances) * FAR >= 1,
    )


def _entropy(weights: Floats) -> Floats:
    """Return the entropies (n,) of distributions (n, m), in nats."""
    logs = np.log(weights, out=np.zeros_like(weights), where=weights > 0)
    entropy: Floats = -(weights * logs).sum(1)
    return entropy
