"""Candidates made searchable under a network's metric."""

from __future__ import annotations

import torch
from torch import Tensor

from tabr.network import Context, Metric, Output, TabR
from tabr.rows import Rows
from tabr.search import Allowed, Neighbors, top

_ROWS = {"cpu": 256, "cuda": 4096}  # rows predicted at a time


class PointIndex:
    """Candidates, searchable under a network's metric.

    The search and the hidden layer of T, which are most of the work, have the
    precision of the points; everything else has that of the network.

    Attributes:
        points: (n, p), what the candidates are remembered by.
        metric: The network's metric at the last refresh.
    """

    def __init__(
        self, network: TabR, points: Tensor, metric: Metric | None = None
    ) -> None:
        """Centre the points and take over the metric, or the network's present one."""
        self.network, self.points = network, points
        self.center = (
            points.mean(0) if len(points) else points.new_zeros(points.shape[1])
        )
        self.vectors = points - self.center
        self.refresh(metric)

    @torch.no_grad()
    def refresh(self, metric: Metric | None = None) -> None:
        """Follow a change of the network that left the points as they are."""
        metric = self.network.metric() if metric is None else metric
        dtype = self.vectors.dtype
        # Without gradients, so that no step's graph outlives it.
        hidden = None if metric.hidden is None else metric.hidden.detach().to(dtype)
        self.metric = Metric(metric.key.detach(), metric.gram.detach(), hidden)
        of_search = self.metric._replace(gram=metric.gram.detach().to(dtype))
        self.offsets = self.network.offsets(self.vectors, of_search)

    @torch.no_grad()
    def neighbors(
        self,
        points: Tensor,
        m: int,
        exclude: Tensor | None = None,
        allowed: Allowed | None = None,
    ) -> Neighbors:
        """Return the m nearest allowed candidates of points (b, p)."""
        center = self.center.to(points.dtype)
        queries = self.network.queries(points, center, self.metric)
        return top(
            queries.to(self.vectors.dtype),
            self.vectors,
            self.offsets,
            m,
            exclude=exclude,
            allowed=allowed,
        )


@torch.no_grad()
def candidate_points(network: TabR, rows: Rows) -> Tensor:
    """Return the points (n, p) of rows, made in chunks."""
    size = 65_536
    chunks = [
        network.points(rows.take(slice(start, start + size)))
        for start in range(0, max(1, rows.n_rows), size)
    ]
    return torch.cat(chunks)


@torch.no_grad()
def predict(
    index: PointIndex, labels: Tensor, rows: Rows, m: int
) -> tuple[Output, Neighbors]:
    """Predict for rows that are no candidates; return also who their neighbours were.

    Shapes: labels (n,); the outputs are (b, outputs), weights, position and found
    (b, m).
    """
    size = _ROWS.get(labels.device.type, 1024)
    network, dtype = index.network, index.metric.key.dtype
    if labels.is_floating_point():
        labels = labels.to(dtype)
    outputs, neighbors = [], []
    for start in range(0, rows.n_rows, size):
        part = rows.take(slice(start, start + size)).in_precision(dtype)
        found = index.neighbors(network.points(part), m)
        points = index.points[found.position].to(dtype)
        context = Context(points, labels[found.position], found.found)
        outputs.append(network(part, context, index.metric))
        neighbors.append(found)
    return (
        Output(*(torch.cat(parts) for parts in zip(*outputs, strict=True))),
        Neighbors(*(torch.cat(parts) for parts in zip(*neighbors, strict=True))),
    )
