"""Who the neighbours of a row were, and how much each was looked at."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class NeighborTable(NamedTuple):
    """The neighbours of n rows, largest weight first; all arrays are (n, m).

    Where a row had fewer neighbours its ids end in -1, with weight zero and an
    infinite distance.

    Attributes:
        ids: Ids of candidates.
        weights: Weights of attention; each row's sum is at most one.
        distances: Distances under the learned metric.
    """

    ids: NDArray[np.int64]
    weights: NDArray[np.float64]
    distances: NDArray[np.float64]


def join_members(tables: list[NeighborTable]) -> NeighborTable:
    """Average the neighbours of an ensemble's members and keep the m heaviest.

    A candidate that a member did not retrieve has weight zero there; its distance is
    averaged over the members that did.
    """
    if len(tables) == 1:
        return tables[0]
    n, m = tables[0].ids.shape
    ids = np.concatenate([table.ids for table in tables], 1)  # (n, members * m)
    order = np.argsort(ids, 1, kind="stable")
    ids = np.take_along_axis(ids, order, 1)
    # Equal ids now stand side by side: number the runs and sum over each.
    run = np.cumsum(np.diff(ids, axis=1, prepend=ids[:, :1]) != 0, axis=1)
    place = (run + np.arange(n)[:, None] * ids.shape[1]).ravel()

    def sums(parts: list[NDArray[np.float64]]) -> NDArray[np.float64]:
        values = np.take_along_axis(np.concatenate(parts, 1), order, 1)
        values = np.where(ids < 0, 0.0, values)
        total = np.bincount(place, values.ravel(), ids.size)
        return total.astype(np.float64).reshape(ids.shape)

    weights = sums([table.weights for table in tables]) / len(tables)
    count = sums([np.ones(table.ids.shape) for table in tables])
    distances = sums([table.distances for table in tables]) / np.maximum(count, 1)
    names = np.full_like(ids, -1)
    names.ravel()[place] = ids.ravel()
    heaviest = np.argsort(np.where(names < 0, 1.0, -weights), 1, kind="stable")[:, :m]
    joined = np.take_along_axis(names, heaviest, 1)
    return NeighborTable(
        joined,
        np.take_along_axis(weights, heaviest, 1),
        np.where(joined < 0, np.inf, np.take_along_axis(distances, heaviest, 1)),
    )
