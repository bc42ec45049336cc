"""The learned scale of DNNR: features multiplied so that near rows are alike.

A row's loss is minus the correlation, among its nearest rows, of the distance with the
error of the linear fit to them: where the fit is bad, rows should be far. Steps of
gradient descent go through all rows in random order, ten times.

NOTE[DIFF]: a step adds up 32 rows, where the authors' code takes the same steps row by
row. Neighbours are those of the epoch's beginning and never the row itself; that code
looks them up at the scale of each step in an index of the epoch's beginning.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from tabr.search import top

RATE = 0.01
RIDGE = 1e-6  # a feature that is constant among neighbours gets no slope
TOGETHER = 32  # rows of one step
_CELLS = 1 << 25  # of the differences that are held at a time
_EQUAL = 1e-8  # numbers that differ by less are equal


def learned_scales(
    points: Tensor, labels: Tensor, n_neighbors: int, n_epochs: int, seed: int
) -> Iterator[Tensor]:
    """Yield the scale (p,) of points (n, p) after each epoch of its training.

    Nothing comes if there are no more neighbours than features: fits have no errors.
    Training ends before its time where it diverges.
    """
    if n_neighbors <= points.shape[1]:
        return
    scale = torch.ones_like(points[0])
    order = torch.Generator().manual_seed(seed)
    for _ in range(n_epochs):
        near = nearest(points * scale, n_neighbors)
        errors = fit_errors(points, labels, near)
        rows = torch.randperm(len(points), generator=order).to(points.device)
        for row in rows.split(TOGETHER):
            square = (points[near[row]] - points[row][:, None]).square()
            scale = scale - RATE * scale_gradient(scale, square, errors[row])
        if not scale.isfinite().all():
            return
        yield scale


def fit_errors(points: Tensor, labels: Tensor, near: Tensor) -> Tensor:
    """Return the absolute errors of linear fits (n, m), centred and of length one.

    Where all errors are equal they are zero: they cannot correlate with anything.
    """
    parts = []
    for dx, dy in differences(points, labels, near):
        slope = torch.linalg.solve(dx.mT @ dx + ridge(dx), dx.mT @ dy[..., None])
        parts.append(_direction((dy - (dx @ slope).squeeze(-1)).abs())[0])
    return torch.cat(parts)


def scale_gradient(scale: Tensor, square: Tensor, errors: Tensor) -> Tensor:
    """Return the gradient (p,) of the rows' losses by the scale (p,), summed.

    Squared differences are (b, m, p); errors are (b, m), as `fit_errors` returns them.
    """
    distance = (square @ scale.square()).sqrt().clamp_min(1e-6)
    direction, length = _direction(distance)
    correlation = (errors * direction).sum(1, keepdim=True)
    by_distance = (correlation * direction - errors) / length
    by_distance = by_distance.masked_fill(length <= _EQUAL, 0)
    return scale * torch.einsum("bm,bmp->p", by_distance / distance, square)


def _direction(values: Tensor) -> tuple[Tensor, Tensor]:
    """Return values (b, m) centred and divided by their length, and the length."""
    values = values - values.mean(1, keepdim=True)
    length = values.norm(dim=1, keepdim=True)
    is_constant = values.abs().amax(1, keepdim=True) <= _EQUAL
    return (values / length).masked_fill(is_constant, 0), length


# --- what the gradients of DNNR need too --------------------------------------------


def nearest(points: Tensor, m: int, queries: Tensor | None = None) -> Tensor:
    """Return positions (b, m) of the nearest points (n, p), nearest first.

    Without queries (b, p) they are the points', who are never neighbours of themselves.
    """
    center = points.mean(0)
    vectors = (points - center).float()
    exclude = None
    if queries is None:
        asking = vectors
        exclude = torch.arange(len(points), device=points.device)
    else:
        asking = (queries - center).float()
    offsets = -vectors.square().sum(1)
    return top(2 * asking, vectors, offsets, m, exclude=exclude).position


def differences(
    points: Tensor, labels: Tensor, near: Tensor
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield, some rows at a time, features (r, m, p) and labels (r, m) of neighbours.

    Both are differences from the row itself.
    """
    rows = torch.arange(len(points), device=points.device)
    for row in rows.split(rows_at_a_time(near.shape[1], points.shape[1])):
        index = near[row]
        own, label = points[row][:, None], labels[row][:, None]
        yield points[index] - own, labels[index] - label


def ridge(dx: Tensor) -> Tensor:
    """Return the penalty (p, p) of slopes for features (..., p)."""
    return RIDGE * torch.eye(dx.shape[-1], device=dx.device, dtype=dx.dtype)


def rows_at_a_time(m: int, n_features: int) -> int:
    """Return for how many rows neighbours' features fit into a bounded memory."""
    return max(1, _CELLS // max(1, m * n_features))
