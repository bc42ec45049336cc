"""Candidates of a fitted network on a GPU, searchable while they come and go."""

from __future__ import annotations

import copy
from typing import Self

import torch
from torch import Tensor

from tabr.candidates.growable import GrowableArray
from tabr.candidates.point_index import PointIndex, candidate_points
from tabr.network.rows import Rows
from tabr.network.tabr import TabR
from tabr.search import Filter
from tabr.search.filter import among


class UpdatableIndex(PointIndex):
    """Candidates under a metric that stays.

    `extended` and `without` return an index with other candidates and leave this one as
    it is. Where a scan serves them, `extended` lays all candidates out anew; elsewhere
    both cost what changes, beside a copy of one number for each candidate.
    """

    def __init__(self, network: TabR, rows: Rows, labels: Tensor) -> None:
        """Make rows searchable for the network, on the labels' device."""
        super().__init__(network, candidate_points(network, rows), labels)
        self.n_removed = 0
        self._alive: Tensor | None = None  # (n,), where a scan needs to be told
        if self.scan is None:
            self._points = GrowableArray(self.points)
            # Number by number: one query then reads one stream.
            self._vectors = GrowableArray(self.vectors.T.contiguous(), axis=1)
            self.vectors = self._vectors.view.T
            self._offsets = (
                None if self.offsets is None else GrowableArray(self.offsets)
            )

    @torch.no_grad()
    def extended(self, rows: Rows, labels: Tensor) -> Self:
        """Return it with further candidates; the labels (n,) are those of all."""
        new = self.relabelled(labels)
        points = candidate_points(self.network, rows).to(self.points.device)
        if self.scan is not None:
            all_points = torch.cat([self.points, points])
            PointIndex.__init__(new, self.network, all_points, labels, self.metric)
            if self._alive is not None:
                new._alive = torch.cat([self._alive, self._alive.new_ones(len(points))])
            return new
        new._points = self._points.extended(points)
        vectors = points - self.center
        new._vectors = self._vectors.extended(vectors.T)
        new.points, new.vectors = new._points.view, new._vectors.view.T
        if self._offsets is not None:
            offsets = self._offsets_of(vectors)
            if offsets is None:  # zeros, some of which say that one was removed
                offsets = self._offsets.view.new_zeros(len(points))
            new._offsets = self._offsets.extended(offsets)
            new.offsets = new._offsets.view
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
        if self.scan is not None:
            ones = torch.ones(len(self.points), dtype=torch.int32)
            alive = ones.to(self.points.device) if self._alive is None else self._alive
            new._alive = alive.index_fill(0, positions.to(alive.device), 0)
            return new
        if self.offsets is None:
            offsets = torch.zeros(len(self.points), dtype=self.vectors.dtype)
            offsets = offsets.to(self.network.linear.weight.device)
        else:
            offsets = self.offsets
        offsets = offsets.index_fill(0, positions.to(offsets.device), -torch.inf)
        new._offsets = GrowableArray(offsets)
        new.offsets = offsets
        return new

    def _permitted(self, rules: Filter | None, b: int) -> Filter | None:
        """Return the rules, with one that forbids who was removed."""
        return rules if self._alive is None else among(self._alive, rules, b)
