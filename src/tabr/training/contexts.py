"""The contexts of training rows, and how they change from epoch to epoch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from tabr.candidates.device_rules import TaggedRows
from tabr.candidates.point_index import LastNeighbors, PointIndex, candidate_points
from tabr.candidates.sparse_index import SparseIndex, make_index
from tabr.device.member_axis import n_members
from tabr.device.random import dropout
from tabr.network.hidden_sum import sharing_pays
from tabr.network.rows import Rows, take
from tabr.network.tabr import Context, Metric, TabR
from tabr.search import Neighbors
from tabr.search.filter import among
from tabr.training.loop import History

_CHUNK = 4096  # rows whose contexts are found at a time


@dataclass(frozen=True)
class TrainingRows:
    """The rows that a network learns from, who are also the candidates; n of them.

    Attributes:
        rows: The rows; they may be kept in host memory.
        labels: Encoded labels (n,), on the network's device.
        weights: Weights (n,) of the losses, of mean one; None weighs all alike.
        tagged: What a rule allows the rows, among those of `part`; None allows all.
        part: Positions (k,) of the rows that a member learns from and retrieves; None
            is all. The others are held out from it, and members that are trained as
            one may hold out different ones.
    """

    rows: Rows
    labels: Tensor
    weights: Tensor | None = None
    tagged: TaggedRows | None = None
    part: Tensor | None = None

    def __len__(self) -> int:
        """Return the number of rows that are learned from."""
        return len(self.labels if self.part is None else self.part)


class Snapshot(NamedTuple):
    """What a step reads of a network: its metric and, where it pays, all points."""

    metric: Metric
    points: Tensor | None


class Contexts:
    """Neighbours of training rows among the training rows, never themselves.

    Rows and neighbours go by their positions among all rows. A search knows only the
    part that is learned from, by *places* in it.

    Attributes:
        complete: Whether each row finds m neighbours.
        frozen: The neighbours of the part, once they stay as they are.
    """

    def __init__(
        self, network: TabR, data: TrainingRows, m: int, share: float = 1.0
    ) -> None:
        """Make points that no training step can change once and for all.

        In training only a share of the candidates, drawn for each search, is found.
        """
        self.network, self.data, self.m, self.share = network, data, m, share
        self.rows, self.labels, n = data.rows, data.labels, len(data)
        self.part, self.places = data.part, None
        if self.part is not None:
            self.places = torch.full_like(self.labels, -1, dtype=torch.int64)
            self.places[self.part] = torch.arange(n, device=self.places.device)
        self.points: Tensor | None = None  # of all rows, if they never change
        self.fixed: PointIndex | None = None
        if network.points_are_fixed:
            self.points = candidate_points(network, data.rows)
            self.fixed = make_index(network, *self._of_part(self.points))
        # Pairs of which zeros are passed by cost less than whole products.
        self.shares = network.can_share and not isinstance(self.fixed, SparseIndex)
        self.frozen: Neighbors | None = None  # by places
        self.complete = n > m and data.tagged is None and share == 1.0
        self.last = LastNeighbors(n, min(m, n), data.labels.device)

    def _of_part(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """Return the points (k, p) and labels (k,) of who may be retrieved."""
        if self.part is None:
            return points, self.labels
        return points[self.part.to(points.device)], self.labels[self.part]

    def of(self, batch: Tensor) -> Context:
        """Return the context of the rows at batch (b,), differentiable."""
        snapshot = self.snapshot(len(batch))
        return self.context(self.neighbors(batch, snapshot), snapshot)

    def snapshot(self, b: int) -> Snapshot:
        """Return what a batch of b rows reads of the network as it is."""
        metric = self.network.metric()
        points: Tensor | None = None
        if self.fixed is None and self.rows.n_rows <= b * self.m:
            # All candidates cost no more than all neighbours of the batch.
            rows = self.rows.to(self.labels.device)
            points = self.network.points(rows, metric.columns)
        return Snapshot(metric, points)

    def neighbors(self, batch: Tensor, snapshot: Snapshot) -> Neighbors:
        """Return the neighbours of the rows at batch (b,)."""
        if self.frozen is not None:
            return self._frozen(batch)
        return self._search(self.index(snapshot), batch)

    def _frozen(self, batch: Tensor) -> Neighbors:
        assert self.frozen is not None
        places = batch if self.places is None else self.places[batch]
        return Neighbors(*(part[places] for part in self.frozen))

    def context(self, near: Neighbors, snapshot: Snapshot) -> Context:
        """Return neighbours as a context, differentiable."""
        points = snapshot.points if self.points is None else self.points
        position, found = near
        labels, mask = self.labels[position], None if self.complete else found
        if points is None:
            encoded = self._encode(position, snapshot.metric.columns)
            return Context(encoded, labels, mask)
        n, p = points.shape
        n_pairs, device = position.numel(), position.device
        if self.shares and sharing_pays(n, n_pairs, p, device):
            return Context(points, labels, mask, position)
        return Context(take(points, position), labels, mask)

    def freeze(self) -> None:
        """Search once more for all of the part; from now on its neighbours stay."""
        index = self.index()
        chunks = [self._search(index, batch) for batch in self._batches()]
        self.frozen = Neighbors(
            *(torch.cat(parts) for parts in zip(*chunks, strict=True))
        )

    @torch.no_grad()
    def weighted(self) -> tuple[Tensor, Tensor]:
        """Return the part's neighbours and their weights, both (k, m)."""
        index, chunks = self.index(), []
        for batch in self._batches():
            if self.frozen is None:
                near = self._search(index, batch)
            else:
                near = self._frozen(batch)
            placed = near
            if self.places is not None:
                placed = Neighbors(self.places[near.position], near.found)
            context = index.context(placed, complete=False)
            output = self.network(self.rows.take(batch), context, index.metric)
            chunks.append((near.position, output.weights))
        positions, weights = zip(*chunks, strict=True)
        return torch.cat(positions), torch.cat(weights)

    def _batches(self) -> tuple[Tensor, ...]:
        rows = self.part
        if rows is None:
            rows = torch.arange(len(self.labels), device=self.labels.device)
        return tuple(rows.split(_CHUNK))

    def index(self, snapshot: Snapshot | None = None) -> PointIndex:
        """Return the part, by places, searchable under the network's present metric."""
        metric, points = (None, None) if snapshot is None else snapshot
        if self.fixed is not None:
            self.fixed.refresh(metric)
            return self.fixed
        if points is None:
            points = candidate_points(self.network, self.rows)
        return PointIndex(self.network, *self._of_part(points.detach()), metric)

    def _search(self, index: PointIndex, batch: Tensor) -> Neighbors:
        tagged = self.data.tagged
        rules = None if tagged is None else tagged.rules(batch)
        places = batch if self.places is None else self.places[batch]
        samples = self.share < 1.0 and self.network.training
        if samples:
            drawn = dropout(
                torch.ones_like(index.labels, dtype=torch.float32), 1 - self.share
            )
            rules = among((drawn > 0).int(), rules, len(batch))
        near = index.neighbors(
            take(index.points, places),
            self.m,
            exclude=places,
            rules=rules,
            last=None if samples else self.last.of(places),
        )
        if not samples:  # others than these bound the next search
            self.last.keep(places, near, self.complete)
        if self.part is None:
            return near
        return Neighbors(self.part[near.position], near.found)

    def _encode(self, index: Tensor, columns: Tensor | None) -> Tensor:
        """Return differentiable points (b, m, p) of the rows at index (b, m)."""
        # `unique` would wait for the device, and members differ in its length.
        if index.device.type != "cpu" or n_members():
            return self.network.points(self.rows.take(index), columns)
        distinct, inverse = index.unique(return_inverse=True)
        return self.network.points(self.rows.take(distinct), columns)[inverse]


class ContextChange:
    """Records how much contexts change from epoch to epoch: the paper's Delta-context.

    For a row it is the weight of neighbours that are new, plus the growth, if any, of
    the total weight of those that stayed.
    """

    def __init__(self, contexts: Contexts) -> None:
        """Remember nothing yet."""
        self.contexts = contexts
        self.before: tuple[Tensor, Tensor] | None = None

    @torch.no_grad()
    def __call__(self, history: History) -> None:
        """Add to the history how much contexts changed since the last call."""
        now = self.contexts.weighted()
        if self.before is not None:
            parts = zip(*(t.split(4096) for t in (*self.before, *now)), strict=True)
            total = sum(float(context_change(*part).sum()) for part in parts)
            history.context_change.append(total / len(now[0]))
        self.before = now


def context_change(
    old: Tensor, old_weights: Tensor, new: Tensor, new_weights: Tensor
) -> Tensor:
    """Return Delta-context (b,) from neighbours and their weights, all (b, m)."""
    # A neighbour that was not found has no weight and matches nobody.
    same = (new[:, :, None] == old[:, None]) & (old_weights > 0)[:, None]
    now = (new_weights * same.any(2)).sum(1)
    then = (old_weights * same.any(1)).sum(1)
    return new_weights.sum(1) - now + (now - then).clamp_min(0)
