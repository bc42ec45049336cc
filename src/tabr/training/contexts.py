"""The contexts of training rows, and how they change from epoch to epoch."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from tabr.candidates.device_rules import TaggedRows
from tabr.candidates.point_index import (
    PointIndex,
    candidate_points,
    no_memory,
    remembered,
)
from tabr.device.member_axis import n_members
from tabr.network.hidden_sum import sharing_pays
from tabr.network.rows import Rows, take
from tabr.network.tabr import Context, Metric, TabR
from tabr.search import Neighbors
from tabr.training.loop import History


class Look(NamedTuple):
    """What contexts read of a network: its metric and, where it pays, all points."""

    metric: Metric
    every: Tensor | None


class Contexts:
    """Neighbours of training rows among the training rows, never themselves."""

    def __init__(
        self,
        network: TabR,
        rows: Rows,
        labels: Tensor,
        m: int,
        tagged: TaggedRows | None = None,
    ) -> None:
        """Make points that no training step can change once and for all.

        What a rule allows the rows comes as `tagged`.
        """
        self.network, self.rows, self.labels, self.m = network, rows, labels, m
        self.tagged = tagged
        self.fixed: PointIndex | None = None
        if network.points_are_inputs:
            self.fixed = PointIndex(network, candidate_points(network, rows))
        self.frozen: Neighbors | None = None
        self.everybody = len(labels) > m and tagged is None  # has m neighbours
        self.last = no_memory(len(labels), min(m, len(labels)), labels.device)

    def of(self, batch: Tensor) -> Context:
        """Return the context of the rows at batch (b,), differentiable."""
        look = self.look(len(batch))
        return self.gather(self.find(batch, look), look)

    def look(self, b: int) -> Look:
        """Return what b rows need of the network as it is."""
        every: Tensor | None = None
        if self.fixed is None and self.rows.n_rows <= b * self.m:
            # All candidates cost no more than all neighbours of the batch.
            every = self.network.points(self.rows.to(self.labels.device))
        return Look(self.network.metric(), every)

    def find(self, batch: Tensor, look: Look) -> Neighbors:
        """Return the neighbours of the rows at batch (b,)."""
        if self.frozen is not None:
            return Neighbors(*(part[batch] for part in self.frozen))
        return self._search(self.index(look.every, look.metric), batch)

    def gather(self, near: Neighbors, look: Look) -> Context:
        """Return neighbours as a context, differentiable."""
        every = look.every if self.fixed is None else self.fixed.points
        index, found = near
        labels, known = self.labels[index], None if self.everybody else found
        if every is None:
            return Context(self._encode(index), labels, known)
        n, p = every.shape
        if self.network.can_share and sharing_pays(n, index.numel(), p, index.device):
            return Context(every, labels, known, index)
        return Context(take(every, index), labels, known)

    def freeze(self) -> None:
        """Search once more for all rows; from now on their neighbours stay."""
        index = self.index()
        found = [self._search(index, batch) for batch in self._all()]
        self.frozen = Neighbors(
            *(torch.cat(parts) for parts in zip(*found, strict=True))
        )

    @torch.no_grad()
    def weighted(self) -> tuple[Tensor, Tensor]:
        """Return all rows' neighbours and their weights, both (n, m)."""
        index, parts = self.index(), []
        for batch in self._all():
            if self.frozen is None:
                position, found = self._search(index, batch)
            else:
                position, found = (part[batch] for part in self.frozen)
            points = take(index.points, position)
            context = Context(points, self.labels[position], found)
            output = self.network(self.rows.take(batch), context, index.metric)
            parts.append((position, output.weights))
        positions, weights = zip(*parts, strict=True)
        return torch.cat(positions), torch.cat(weights)

    def _all(self) -> tuple[Tensor, ...]:
        every = torch.arange(len(self.labels), device=self.labels.device)
        return tuple(every.split(4096))

    def index(
        self, every: Tensor | None = None, metric: Metric | None = None
    ) -> PointIndex:
        """Return all rows, searchable under today's metric."""
        if self.fixed is not None:
            self.fixed.refresh(metric)
            return self.fixed
        if every is None:
            every = candidate_points(self.network, self.rows)
        return PointIndex(self.network, every.detach(), metric)

    def _search(self, index: PointIndex, batch: Tensor) -> Neighbors:
        last = None if self.last is None else self.last[batch]
        found = index.neighbors(
            take(index.points, batch),
            self.m,
            exclude=batch,
            rules=None if self.tagged is None else self.tagged.rules(batch),
            last=last,
        )
        if self.last is not None:
            known = found.position.int() if self.everybody else remembered(found)
            self.last[batch] = known
        return found

    def _encode(self, index: Tensor) -> Tensor:
        """Return differentiable points (b, m, p) of the rows at index (b, m)."""
        # `unique` would wait for the device, and members differ in its length.
        if index.device.type != "cpu" or n_members():
            return self.network.points(self.rows.take(index))
        distinct, inverse = index.unique(return_inverse=True)
        return self.network.points(self.rows.take(distinct))[inverse]


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
        """Find all contexts anew, and compare them with those of the last call."""
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
