"""Candidates made searchable under a network's metric."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tabr.candidates.device_rules import TaggedRows
from tabr.device.devices import has_triton
from tabr.device.threads import one_thread
from tabr.network.rows import Rows, take
from tabr.network.tabr import Context, Metric, Output, TabR
from tabr.search import Filter, Neighbors, top

if TYPE_CHECKING:
    from tabr.search.scan import Scan

_MOST = 512  # neighbours of a row that the kernels of a scan serve
_FEW = 8  # rows whose prediction is too little work for threads
_CHUNK = 65_536  # candidates that are encoded or moved at a time
_ROWS = {"cpu": 256, "cuda": 4096}  # rows predicted at a time


class PointIndex:
    """Candidates, searchable under a network's metric.

    The search and the hidden layer of T, which are most of the work, have the
    precision of the points; everything else has that of the network.

    Attributes:
        points: (n, p), what the candidates are remembered by; they may be kept in
            host memory, and then come to the network's device in parts.
        metric: The network's metric at the last refresh.
        n_removed: Candidates that are no longer to be found.
    """

    n_removed = 0

    def __init__(
        self, network: TabR, points: Tensor, metric: Metric | None = None
    ) -> None:
        """Centre the points and take over the metric, or the network's present one."""
        self.network, self.points = network, points
        self.center = (
            points.mean(0) if len(points) else points.new_zeros(points.shape[1])
        )
        self.vectors = points - self.center
        self.scan = _make_scan(self.vectors)
        if self.scan is not None:  # it has a copy of its own: one is enough
            n, p = self.vectors.shape
            self.vectors = self.scan.vectors[:n, :p]
        self.refresh(metric)

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
        allowed = None if rules is None else rules.allowed
        candidates = self.vectors, self.offsets
        return top(queries, *candidates, m, exclude=exclude, allowed=allowed)


def _make_scan(vectors: Tensor) -> Scan | None:
    if vectors.dtype != torch.float32 or not has_triton(vectors.device):
        return None
    from tabr.search.scan import Scan

    return Scan(vectors)


@torch.no_grad()
def candidate_points(network: TabR, rows: Rows) -> Tensor:
    """Return the points (n, p) of rows, made in chunks and kept where the rows are."""
    device = network.linear.weight.device
    chunks = [
        network.points(rows.take(slice(start, start + _CHUNK)).to(device)).to(
            rows.num.device
        )
        for start in range(0, max(1, rows.n_rows), _CHUNK)
    ]
    return torch.cat(chunks)


def predict(
    index: PointIndex,
    labels: Tensor,
    rows: Rows,
    m: int,
    last: Tensor | None = None,
    rows_at_a_time: int | None = None,
    tagged: TaggedRows | None = None,
) -> tuple[Output, Neighbors]:
    """Predict for rows that are no candidates; return also who their neighbours were.

    Shapes: labels (n,); the outputs are (b, outputs), weights, position and found
    (b, m). Who asks for the same rows again and again gives `last` (b, m), int32,
    filled with -1 at first, where their neighbours are kept to find them faster. What
    a rule allows the rows comes as `tagged`.
    """
    few = rows.n_rows <= _FEW and labels.device.type == "cpu"
    # Threads may not write into tensors of inference mode; few rows need none.
    with torch.inference_mode() if few else torch.no_grad():
        size = rows_at_a_time or _ROWS.get(labels.device.type, 1024)
        network, dtype = index.network, index.metric.key.dtype
        outputs, neighbors = [], []
        for start in range(0, rows.n_rows, size):
            part = rows.take(slice(start, start + size)).to(labels.device)
            part = part.in_precision(dtype)
            chosen = slice(start, start + part.n_rows)
            known = None if last is None else last[chosen]
            found = index.neighbors(
                network.points(part),
                m,
                rules=None if tagged is None else tagged.rules(chosen),
                last=known,
            )
            is_there = None  # without rules everybody finds all
            if tagged is not None or index.n_removed:
                is_there = found.found
            if known is not None:
                known.copy_(found.position if is_there is None else remembered(found))
            points = take(index.points, found.position).to(dtype)
            near = labels[found.position]
            near = near.to(dtype) if near.is_floating_point() else near
            context = Context(points, near, is_there)
            with one_thread(few):
                outputs.append(network(part, context, index.metric))
            neighbors.append(found)
        return (
            Output(*(torch.cat(parts) for parts in zip(*outputs, strict=True))),
            Neighbors(*(torch.cat(parts) for parts in zip(*neighbors, strict=True))),
        )


def no_memory(n: int, m: int, device: torch.device) -> Tensor | None:
    """Return room for the neighbours that n rows had last, where that helps."""
    if not has_triton(device):
        return None
    return torch.full((n, m), -1, dtype=torch.int32, device=device)


def remembered(found: Neighbors) -> Tensor:
    """Return neighbours as `last` keeps them: (b, m) int32, -1 where there is none."""
    return found.position.masked_fill(~found.found, -1).int()
