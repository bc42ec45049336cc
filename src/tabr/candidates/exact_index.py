"""Candidates of a fitted network on a CPU, where a row's neighbours are certain."""

from __future__ import annotations

import copy
from typing import Self

import torch
from torch import Tensor

from tabr.candidates.growable import GrowableArray
from tabr.candidates.point_index import PointIndex, candidate_points
from tabr.candidates.updatable_index import UpdatableIndex
from tabr.network.products import (
    is_steady,
    lay_out,
    lengths,
    product,
    triangle,
    turned,
)
from tabr.network.rows import Rows
from tabr.network.tabr import Context, Metric, TabR
from tabr.search import Filter, Neighbors, can_walk, top
from tabr.search.contenders import (
    Rated,
    beyond,
    contenders,
    margins,
    ranked,
    rate,
)

_CHUNK = 16_384  # candidates that are rated at a time
_MORE = 8  # neighbours that a walk lists beyond five quarters of those asked for
_MOST_NUMBERS = 1 << 20  # of points that are measured at a time, in a core's cache


class ExactIndex(PointIndex):
    """Candidates that come and go, each of which is measured by itself.

    A row has the same neighbours and similarities, bit for bit, whatever rows it is
    asked with and however the candidates came to be where they are. Scores in float32
    only say who may be near (`search/contenders`). These are measured in float64, by
    the two points alone, and of equal ones the lower position is nearer.

    `extended` and `without` return an index with other candidates and leave this one as
    it is. They cost what changes, beside a copy of one number for each candidate.
    """

    def __init__(self, network: TabR, rows: Rows, labels: Tensor) -> None:
        """Make rows searchable for the network, which is copied in float64."""
        self.network, self.labels = copy.deepcopy(network).double(), labels
        lay_out(self.network)
        points = self._points_of(rows)
        with torch.no_grad():
            metric = self.network.metric()
        # T's hidden layer, most of the work, has the precision of the points.
        hidden = None if metric.hidden is None else metric.hidden.to(points.dtype)
        hidden = None if hidden is None else turned(hidden)
        self.metric = Metric(turned(metric.key), metric.gram, hidden)
        self.triangle = triangle(metric.gram)
        self.center = self._center_of(points)
        self._points = GrowableArray(points)
        self._rated = tuple(GrowableArray(x, axis=1) for x in self._rate(points))
        self._set_views()

    def _set_views(self) -> None:
        self.points = self._points.view
        vectors, of_scores = (part.view for part in self._rated)
        self.rated = Rated(vectors.T, *of_scores)

    def _points_of(self, rows: Rows) -> Tensor:
        return candidate_points(self.network, rows, torch.float32)

    @torch.no_grad()
    def _rate(self, points: Tensor) -> list[Tensor]:
        """Return vectors (p + 1, n), offsets and limits of their errors (2, n).

        They lie number by number, as one query then reads one stream.
        """
        parts = []
        for part in points.split(_CHUNK):
            vectors = part - self.center
            exact = vectors.double()
            slopes = product(exact, self.metric.gram)
            offsets = self.network.offsets(exact, self.metric)
            parts.append(rate(vectors, offsets, slopes))
        return [torch.cat(x, 1) for x in zip(*parts, strict=True)]

    # --- other candidates -----------------------------------------------------

    @torch.no_grad()
    def extended(self, rows: Rows, labels: Tensor) -> Self:
        """Return it with further candidates; the labels (n,) are those of all."""
        new = self.relabelled(labels)
        points = self._points_of(rows)
        rated = zip(self._rated, self._rate(points), strict=True)
        new._points = self._points.extended(points)
        new._rated = tuple(old.extended(part) for old, part in rated)
        new._set_views()
        return new

    def relabelled(self, labels: Tensor) -> Self:
        """Return it with other labels (n,)."""
        new = copy.copy(self)
        new.labels = labels
        return new

    def without(self, positions: Tensor) -> Self:
        """Return it without the candidates at these positions, which stay taken."""
        new = copy.copy(self)
        new.n_removed = self.n_removed + len(positions)
        vectors, of_scores = self._rated
        left = of_scores.view.clone()
        left[0, positions] = -torch.inf
        new._rated = vectors, GrowableArray(left, axis=1)
        new._set_views()
        return new

    # --- neighbours -----------------------------------------------------------

    @torch.no_grad()
    def neighbors(
        self,
        points: Tensor,
        m: int,
        exclude: Tensor | None = None,
        rules: Filter | None = None,
        last: Tensor | None = None,
    ) -> Neighbors:
        """Return the m nearest candidates of points (b, p) that the rules allow."""
        assert exclude is None  # rows that are predicted are no candidates
        return self._measured(points, m, rules)[0]

    @torch.no_grad()
    def nearest(
        self,
        points: Tensor,
        m: int,
        rules: Filter | None = None,
        last: Tensor | None = None,
        *,
        complete: bool,
    ) -> tuple[Neighbors, Context]:
        """Return the neighbours of points (b, p), as a context with similarities."""
        near, similarity = self._measured(points, m, rules)
        context = self.context(near, complete=complete)
        return near, context._replace(similarity=similarity)

    def _measured(
        self, points: Tensor, m: int, rules: Filter | None
    ) -> tuple[Neighbors, Tensor]:
        """Return the neighbours of points (b, p) and their similarities (b, m)."""
        b, m = len(points), min(m, len(self.points) - self.n_removed)
        if b == 0 or m == 0:
            position = torch.zeros(b, m, dtype=torch.int64)
            return Neighbors(position, position.bool()), points.new_zeros(b, m)
        queries = self.network.queries(points, self.center.to(points), self.metric)
        queries = margins(queries.float())
        if not can_walk(queries, self.rated.vectors, rules):
            return self._chosen(points, queries, m, rules)
        near, similarity, doubtful = self._walked(points, queries, m, rules)
        if len(doubtful):
            some = None if rules is None else rules.of(doubtful)
            given = points[doubtful], queries[doubtful], m, some
            (position, found), measured = self._chosen(*given)
            near.position[doubtful], near.found[doubtful] = position, found
            similarity[doubtful] = measured
        return near, similarity

    def _walked(
        self, points: Tensor, queries: Tensor, m: int, rules: Filter | None
    ) -> tuple[Neighbors, Tensor, Tensor]:
        """Return the nearest of whom a walk lists, and rows (k,) that may miss some."""
        vectors, offsets, _ = self.rated
        listed = top(queries, vectors, offsets, m + m // 4 + _MORE, filter=rules)
        similarity = self._similarity(points, listed)
        near, best = ranked(*listed, similarity, m)
        # Who is not listed is not above the last who is.
        least, unit = similarity[:, -1], self.network.scale
        limit = beyond(queries, self.rated, listed.position[:, -1], least / unit)
        misses = listed.found[:, -1] & (limit >= best[:, -1] / unit)
        misses &= listed.position.shape[1] < len(self.points) - self.n_removed
        misses |= ~queries.isfinite().all(1)
        return near, best, misses.nonzero()[:, 0]

    def _chosen(
        self, points: Tensor, queries: Tensor, m: int, rules: Filter | None
    ) -> tuple[Neighbors, Tensor]:
        """Return the nearest of all who may be, and their similarities (b, m)."""
        listed = Neighbors(*contenders(queries, self.rated, m, rules))
        return ranked(*listed, self._similarity(points, listed), m)

    def _similarity(self, points: Tensor, listed: Neighbors) -> Tensor:
        """Return similarities (b, k) of points (b, p) and who is listed."""
        if self.network.is_metric and is_steady(points):
            given = points, self.points, listed.position, self.triangle
            return -lengths(*given) * self.network.scale
        size = listed.position.shape[1] * points.shape[1]  # numbers of a row
        each = max(1, _MOST_NUMBERS // max(1, size))
        parts = []
        for own, position in zip(
            points.split(each), listed.position.split(each), strict=True
        ):
            others = self.points[position].to(points.dtype)
            parts.append(self.network.similarity(own, others, self.metric))
        return torch.cat(parts)


def held_bytes(n: int, p: int) -> int:
    """Return what n candidates hold: points, rated vectors, offsets and errors."""
    return n * (4 * p + 4 * (p + 1) + 4 + 4)


def making_bytes(n: int, p: int) -> int:
    """Return what is held besides while they are made: parts, and one in float64."""
    return n * (4 * (p + 1) + 8) + 8 * 6 * min(n, _CHUNK) * p


def make_updatable(
    network: TabR, rows: Rows, labels: Tensor
) -> UpdatableIndex | ExactIndex:
    """Return rows as candidates that come and go, on the labels' device."""
    kind = ExactIndex if labels.device.type == "cpu" else UpdatableIndex
    return kind(network, rows, labels)
