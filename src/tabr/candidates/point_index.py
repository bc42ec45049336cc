"""Candidates under a network's metric: searched, and read as contexts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tabr.device.compiled import has_numba
from tabr.device.devices import has_triton
from tabr.network.rows import Rows, take
from tabr.network.tabr import Context, Metric, TabR
from tabr.search import Filter, Neighbors, top

if TYPE_CHECKING:
    from tabr.search.scan import Scan

_MOST = 512  # neighbours of a row that the kernels of a scan serve
_CHUNK = 65_536  # candidates that are encoded or moved at a time
_MOST_KEPT = 1 << 26  # last neighbours of all rows on a CPU: 256 MB


class PointIndex:
    """Labelled candidates, searchable under a network's metric.

    The search and the hidden layer of T, which are most of the work, have the
    precision of the points; everything else has that of the network.

    Attributes:
        points: (n, p), what the candidates are remembered by; they may be kept in
            host memory, and then come to the network's device in parts.
        labels: (n,), encoded, on the network's device.
        metric: The network's metric at the last refresh.
        n_removed: Candidates that are no longer to be found.
    """

    n_removed = 0

    def __init__(
        self,
        network: TabR,
        points: Tensor,
        labels: Tensor,
        metric: Metric | None = None,
    ) -> None:
        """Centre the points and take over the metric, or the network's present one."""
        self.network, self.points, self.labels = network, points, labels
        self.center = self._center_of(points)
        self.vectors = points - self.center
        self.scan = _make_scan(self.vectors)
        if self.scan is not None:  # it has a copy of its own: one is enough
            n, p = self.vectors.shape
            self.vectors = self.scan.vectors[:n, :p]
        self.refresh(metric)

    def _center_of(self, points: Tensor) -> Tensor:
        """Return the point that all are moved by, (p,)."""
        return points.mean(0) if len(points) else points.new_zeros(points.shape[1])

    @torch.no_grad()
    def refresh(self, metric: Metric | None = None) -> None:
        """Follow a change of the network that left the points as they are."""
        metric = self.network.metric() if metric is None else metric
        dtype = self.vectors.dtype
        # Without gradients, so that no step's graph outlives it.
        hidden = None if metric.hidden is None else metric.hidden.detach().to(dtype)
        self.metric = Metric(metric.key.detach(), metric.gram.detach(), hidden)
        gram = metric.gram.detach().to(dtype)
        if self.scan is None:
            self.offsets = self._offsets_of(self.vectors)
        elif self.network.is_dot:
            self.scan.set_metric(None)
            self.offsets = None
        else:
            self.scan.set_metric(gram)
            self.offsets = self.scan.offsets

    def _offsets_of(self, vectors: Tensor) -> Tensor | None:
        """Return the offsets (n,) of centred candidates, on the network's device."""
        gram = self.metric.gram.to(vectors.dtype)
        metric = self.metric._replace(gram=gram)
        parts = [
            self.network.offsets(part.to(gram.device), metric)
            for part in vectors.split(_CHUNK)
        ]
        offsets = [part for part in parts if part is not None]
        return torch.cat(offsets) if offsets else None

    def _permitted(self, rules: Filter | None, b: int) -> Filter | None:
        """Return the rules of b queries, with those of the index itself."""
        return rules

    @torch.no_grad()
    def neighbors(
        self,
        points: Tensor,
        m: int,
        exclude: Tensor | None = None,
        rules: Filter | None = None,
        last: Tensor | None = None,
    ) -> Neighbors:
        """Return the m nearest candidates of points (b, p) that the rules allow.

        Neighbours that the points had before, (b, m) or -1, make it faster.
        """
        rules = self._permitted(rules, len(points))
        center = self.center.to(points)
        queries = self.network.queries(points, center, self.metric)
        queries = queries.to(self.vectors.dtype)
        plain = rules is None or not rules.functions
        if self.scan is not None and plain and m <= _MOST:
            return self.scan.top(queries, m, exclude=exclude, filter=rules, last=last)
        return self._top(queries, m, exclude, rules, last)

    def _top(
        self,
        queries: Tensor,
        m: int,
        exclude: Tensor | None,
        rules: Filter | None,
        last: Tensor | None,
    ) -> Neighbors:
        """Return the best m for queries (b, p), where no scan serves them."""
        candidates = self.vectors, self.offsets
        return top(queries, *candidates, m, exclude=exclude, filter=rules, last=last)

    def nearest(
        self,
        points: Tensor,
        m: int,
        rules: Filter | None = None,
        last: Tensor | None = None,
        *,
        complete: bool,
    ) -> tuple[Neighbors, Context]:
        """Return the neighbours of points (b, p) that are no candidates, as a context.

        Where they are complete, all of them are found.
        """
        near = self.neighbors(points, m, rules=rules, last=last)
        return near, self.context(near, complete=complete)

    def context(self, near: Neighbors, *, complete: bool) -> Context:
        """Return neighbours as the network reads them, in its precision.

        Where they are complete, all of them were found, and no mask is needed.
        """
        position, found = near
        dtype = self.metric.key.dtype
        labels = self.labels[position]
        labels = labels.to(dtype) if labels.is_floating_point() else labels
        points = take(self.points, position).to(dtype)
        return Context(points, labels, None if complete else found)


def _make_scan(vectors: Tensor) -> Scan | None:
    if vectors.dtype != torch.float32 or not has_triton(vectors.device):
        return None
    from tabr.search.scan import Scan

    return Scan(vectors)


@torch.no_grad()
def candidate_points(
    network: TabR, rows: Rows, dtype: torch.dtype | None = None
) -> Tensor:
    """Return the points (n, p) of rows, made in chunks and kept where the rows are.

    They have the network's precision, in which they are made, or the one that is named.
    """
    weight, chunks = network.linear.weight, []
    dtype = weight.dtype if dtype is None else dtype
    for start in range(0, max(1, rows.n_rows), _CHUNK):
        part = rows.take(slice(start, start + _CHUNK)).to(weight.device)
        points = network.points(part.in_precision(weight.dtype))
        chunks.append(points.to(rows.num.device, dtype))
    return torch.cat(chunks)


def keeps_last(n: int, m: int, device: torch.device) -> bool:
    """Whether the last neighbours of n rows are kept: somebody reads them."""
    fits = n * m <= _MOST_KEPT and device.type == "cpu" and has_numba()
    return fits or has_triton(device)


class LastNeighbors:
    """The neighbours that rows had at their last search, which make the next faster.

    They are kept where something reads them: the scan of a GPU, the loops of a CPU.
    """

    def __init__(self, n: int, m: int, device: torch.device) -> None:
        """Take room for m neighbours of n rows, who have none yet."""
        self.positions: Tensor | None = None  # (n, m), -1 for nobody
        if keeps_last(n, m, device):
            shape = (n, m)
            self.positions = torch.full(shape, -1, dtype=torch.int32, device=device)

    def of(self, rows: Tensor | slice) -> Tensor | None:
        """Return what is kept of the rows (b,), (b, m)."""
        return None if self.positions is None else self.positions[rows]

    def keep(self, rows: Tensor | slice, near: Neighbors, complete: bool) -> None:
        """Keep the neighbours of rows (b,); complete ones were all found."""
        if self.positions is not None:
            position, found = near
            position = position if complete else position.masked_fill(~found, -1)
            self.positions[rows] = position.int()
