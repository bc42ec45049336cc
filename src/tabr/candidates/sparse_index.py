"""Candidates whose points are mostly zeros, on a CPU: searches pass the zeros by."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tabr.candidates.point_index import PointIndex
from tabr.device.compiled import has_numba
from tabr.network.tabr import Metric, TabR
from tabr.search import Filter, Neighbors

if TYPE_CHECKING:
    from tabr.search.sparse_walk_numba import SparseVectors

_NARROW = 32  # numbers of a point, of fewer of which the dense search is as fast
_MOST = 0.4  # share of numbers that are not zero, up to which it pays
_FEWEST = 1000  # candidates, of fewer of whom a search costs little
_RARE = 0.5  # share of rows, up to which a number is seldom something else than zero


class SparseIndex(PointIndex):
    """Candidates that are searched by the numbers of theirs that are not zero.

    Columns that are mostly zero stay where they are when the others are centred: theirs
    are levels of categories, flags and counts, whose offset is small.
    """

    sparse: SparseVectors | None = None  # until the first metric is taken over

    def _center_of(self, points: Tensor) -> Tensor:
        return points.mean(0) * ~_is_rare(points)

    def _offsets_of(self, vectors: Tensor) -> Tensor | None:
        from tabr.search.sparse_walk_numba import SparseVectors

        if self.sparse is None:
            self.sparse = SparseVectors.of(vectors)
        return -self.sparse.lengths(self.metric.gram.to(vectors.dtype))

    def _top(
        self,
        queries: Tensor,
        m: int,
        exclude: Tensor | None,
        rules: Filter | None,
        last: Tensor | None,
    ) -> Neighbors:
        m = min(m, len(self.points))
        if (rules is not None and rules.functions) or m == 0 or not len(queries):
            return super()._top(queries, m, exclude, rules, last)
        from tabr.search.sparse_walk_numba import walk

        assert self.sparse is not None and self.offsets is not None
        given = queries, self.sparse, self.offsets, m
        return Neighbors(*walk(*given, exclude, rules, last))


def make_index(
    network: TabR, points: Tensor, labels: Tensor, metric: Metric | None = None
) -> PointIndex:
    """Return candidates as they are searched the fastest; their points stay."""
    is_sparse = (
        points.device.type == labels.device.type == "cpu"
        and points.dtype == torch.float32
        and points.shape[1] > _NARROW
        and len(points) >= _FEWEST
        and network.can_share
        and has_numba()
        and float(_share_left(points)) <= _MOST
    )
    kind = SparseIndex if is_sparse else PointIndex
    return kind(network, points, labels, metric)


def _filled(points: Tensor) -> Tensor:
    """Return the share of rows in which columns (p,) are not zero."""
    return torch.count_nonzero(points, 0) / len(points)


def _is_rare(points: Tensor) -> Tensor:
    """Whether columns (p,) are mostly zero."""
    return _filled(points) <= _RARE


def _share_left(points: Tensor) -> Tensor:
    """Return the share of numbers that are not zero once the points are centred."""
    filled = _filled(points)
    return torch.where(filled <= _RARE, filled, 1.0).mean()
