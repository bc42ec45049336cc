"""Candidates made searchable under a network's metric."""

from __future__ import annotations

import torch
from torch import Tensor

from tabr.network import Context, Output, TabR
from tabr.rows import Rows
from tabr.search import Allowed, Neighbors, top

_ROWS = {"cpu": 256, "cuda": 4096}  # rows predicted at a time


class PointIndex:
    """Points (n, p) of candidates and what the search needs of them.

    `refresh` is due after each change of the network. Where points are inputs it
    renews (n,) numbers; otherwise a new index must be made from new points.
    """

    def __init__(self, network: TabR, points: Tensor) -> None:
        """Centre the points and refresh."""
        self.points = points
        self.center = (
            points.mean(0) if len(points) else points.new_zeros(points.shape[1])
        )
        self.vectors = points - self.center
        self.refresh(network)

    @torch.no_grad()
    def refresh(self, network: TabR) -> None:
        """Take over the network's present metric."""
        self.offsets = network.offsets(self.vectors)

    @torch.no_grad()
    def neighbors(
        self,
        network: TabR,
        points: Tensor,
        m: int,
        exclude: Tensor | None = None,
        allowed: Allowed | None = None,
    ) -> Neighbors:
        """Return the m nearest allowed candidates of points (b, p)."""
        queries = network.queries(points, self.center)
        return top(
            queries, self.vectors, self.offsets, m, exclude=exclude, allowed=allowed
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
    network: TabR, index: PointIndex, labels: Tensor, rows: Rows, m: int
) -> tuple[Output, Neighbors]:
    """Predict for rows that are no candidates; return also who their neighbours were.

    Shapes: labels (n,); the outputs are (b, outputs), weights, index and found (b, m).
    """
    size = _ROWS.get(labels.device.type, 1024)
    outputs, neighbors = [], []
    for start in range(0, rows.n_rows, size):
        part = rows.take(slice(start, start + size))
        found = index.neighbors(network, network.points(part), m)
        context = Context(
            index.points[found.position], labels[found.position], found.found
        )
        outputs.append(network(part, context))
        neighbors.append(found)
    return (
        Output(*(torch.cat(parts) for parts in zip(*outputs, strict=True))),
        Neighbors(*(torch.cat(parts) for parts in zip(*neighbors, strict=True))),
    )
