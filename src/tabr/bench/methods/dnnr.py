"""Differential nearest neighbours regression, DNNR (Nader et al., 2022).

Each training row has a gradient: the linear fit to its own k' nearest rows. A query's
k nearest rows each predict their label plus their gradient times the difference of
features; the mean of the k is the prediction. Features may be multiplied by a learned
scale before. All searches are ours and exact.

The scale makes near rows alike. A row's loss is minus the correlation, among its
nearest rows, of the distance with the error of the linear fit to them: where the fit is
bad, rows should be far. Gradient descent goes through all rows in random order, ten
times.

As in the runs behind the paper's figures features are those of the networks, the fits
are ridge regressions with a penalty of 1e-6, and the scales of all epochs are tried.
The order of rows in training a scale matters: between seeds the error differs by 2 %.

NOTE[DIFF]: the grid of k' is that of the paper for its small tables; for large ones it
ends at 12 for each feature.

NOTE[DIFF]: a step of the scale adds up 32 rows, where the authors' code takes the same
steps row by row. Neighbours are those of the epoch's beginning and never the row
itself; that code looks them up at the scale of each step in an index of the epoch's
beginning.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tabr.bench.methods.base import ArrayMethod, Encoded, Floats, Setting, check_minimum
from tabr.bench.methods.knn import MAX_NEIGHBORS, nearest
from tabr.bench.methods.spaces import OneOf, Space, ZeroOr
from tabr.errors import ParameterError
from tabr.metrics import Score
from tabr.tables.preprocessor import Arrays

FACTORS = tuple(np.linspace(2, 18, 20).tolist())  # k' for each feature
PER_FEATURE = "8 for each feature"
SIZES = (PER_FEATURE, 2, 3, 4, 8, 16, 32, 64, 96, 128)  # rows that train a scale
RIDGE = 1e-6  # a feature that is constant among neighbours gets no slope
# The training of a scale.
N_EPOCHS = 10
LEARNING_RATE = 0.01
BATCH_SIZE = 32
_CELLS = 1 << 25  # of the differences that are held at a time
_EQUAL = 1e-8  # numbers that differ by less are equal

Size = int | Literal["8 for each feature"]


class Choice(NamedTuple):
    """The parameters of a fit, those that the validation part chose among them."""

    k: int
    n_derivative: int
    scaling_neighbors: int  # 0 is no scale
    scaling_epochs: int


class DNNR(ArrayMethod):
    """The mean prediction of the neighbours, by their labels and slopes.

    Parameters that are None are chosen by the validation part, which is the paper's
    grid search; the result is in `chosen`. All k cost one search.
    """

    outcomes = ("regression",)
    needs_no_tuning = True
    search_space: ClassVar[Space] = {
        "derivative_factor": OneOf(FACTORS),
        "scaling_neighbors": ZeroOr(OneOf(SIZES), "scaling"),
    }

    chosen: Choice

    def __init__(
        self,
        setting: Setting,
        seed: int,
        *,
        k: int | None = None,
        derivative_factor: float | None = None,
        scaling_neighbors: Size | None = None,
        scaling_epochs: int | None = None,
        categories: Literal["one-hot", "mean label"] = "one-hot",
    ) -> None:
        """Check the parameters.

        A query has k neighbours, and a gradient `derivative_factor` for each feature.
        At each row `scaling_neighbors` train the scale, itself among them; 0 means no
        scale. The categories' "mean label" is the published "leave-one-out", where rows
        to be encoded were never left out.
        """
        super().__init__(setting, seed)
        check_minimum(1, k=k, scaling_epochs=scaling_epochs)
        if derivative_factor is not None and derivative_factor <= 0:
            raise ParameterError(
                f"`derivative_factor > 0` must hold, however: {derivative_factor=}"
            )
        if categories not in ("one-hot", "mean label"):
            raise ParameterError(
                f"categories must be 'one-hot' or 'mean label', however: {categories!r}"
            )
        size = scaling_neighbors
        if not (size in (None, PER_FEATURE) or (isinstance(size, int) and size >= 0)):
            raise ParameterError(
                f"scaling_neighbors must be None, {PER_FEATURE!r}, or at least 0, "
                f"however: {size!r}"
            )
        self.k, self.derivative_factor = k, derivative_factor
        self.scaling_neighbors, self.scaling_epochs = size, scaling_epochs
        self.categories = categories

    # --- fit ------------------------------------------------------------------------

    def _fit(self, train: Encoded, val: Encoded, score: Score) -> None:
        self.labels = torch.from_numpy(train.labels).to(self.device).double()
        if self.categories == "mean label":
            levels = self.preprocessor.cardinalities
            self.means = level_means(train.arrays.cat, train.labels, levels)
        points, queries = self._points(train.arrays), self._points(val.arrays)
        n_rows, n_features = points.shape
        factor = self.derivative_factor
        factors = FACTORS if factor is None else (factor,)
        sizes = {round(factor * n_features) for factor in factors}
        counts = sorted({max(1, min(size, n_rows - 1)) for size in sizes})
        max_k = min(MAX_NEIGHBORS if self.k is None else self.k, n_rows)
        ks = range(1 if self.k is None else max_k, max_k + 1)

        best = -np.inf
        for size, epoch, scale in self._scales(points):
            scaled, scaled_queries = points * scale, queries * scale
            near = nearest(scaled, max(counts)).position
            near_queries = nearest(scaled, max_k, scaled_queries).position
            slopes = gradients(scaled, self.labels, near, counts)
            for count, slope in zip(counts, slopes, strict=True):
                surface = Surface(scaled, slope, self.labels - (slope * scaled).sum(1))
                means = surface.means(scaled_queries, near_queries)
                for k in ks:
                    value = score(self.decoded(means[:, k - 1]))
                    if value > best:
                        best, self.chosen = value, Choice(k, count, size, epoch)
                        self.scale, self.surface = scale, surface

    def _scales(self, points: Tensor) -> Iterator[tuple[int, int, Tensor]]:
        """Yield scales (p,) to be tried: rows and epochs of their training first."""
        n_rows, n_features = points.shape
        size, n_epochs = self.scaling_neighbors, self.scaling_epochs or N_EPOCHS
        candidates = (0, *SIZES) if size is None else (size,)
        sizes = {8 * n_features if size == PER_FEATURE else size for size in candidates}
        has_any = False
        for size in sorted({min(int(size), n_rows) for size in sizes} - {0}):
            scales = learned_scales(points, self.labels, size - 1, n_epochs, self.seed)
            for epoch, scale in enumerate(scales, 1):
                if self.scaling_epochs in (None, epoch):
                    has_any = True
                    yield size, epoch, scale
        if 0 in sizes or not has_any:
            yield 0, 0, torch.ones_like(points[0])

    # --- predict ----------------------------------------------------------------------

    def _predict(self, arrays: Arrays) -> Floats:
        queries = self._points(arrays) * self.scale
        near = nearest(self.surface.points, self.chosen.k, queries).position
        return self.surface.means(queries, near)[:, -1]

    def _points(self, arrays: Arrays) -> Tensor:
        if self.categories == "one-hot":
            matrix: Floats = self._one_hot(arrays)
        else:
            columns = zip(self.means, arrays.cat.T, strict=True)
            encoded = [means[codes][:, None] for means, codes in columns]
            matrix = np.concatenate([arrays.num, arrays.bin, *encoded], 1)
        return torch.from_numpy(matrix).to(self.device).double()


class Surface(NamedTuple):
    """Planes through the training rows: points and slopes (n, p), intercepts (n,)."""

    points: Tensor
    slopes: Tensor
    intercepts: Tensor

    def means(self, queries: Tensor, near: Tensor) -> Floats:
        """Return (b, k): predictions by the first 1, 2, ... rows at near (b, k)."""
        size = rows_at_a_time(near.shape[1], queries.shape[1])
        parts = [
            (self.slopes[index] @ query[..., None]).squeeze(-1) + self.intercepts[index]
            for query, index in zip(queries.split(size), near.split(size), strict=True)
        ]
        counts = torch.arange(1, near.shape[1] + 1, device=near.device)
        means: Floats = (torch.cat(parts).cumsum(1) / counts).cpu().numpy()
        return means


def gradients(
    points: Tensor, labels: Tensor, near: Tensor, counts: Sequence[int]
) -> list[Tensor]:
    """Return each row's gradient (n, p), once for each number of neighbours.

    Counts rise: what the first neighbours add up to is not added up again.
    """
    parts: list[list[Tensor]] = [[] for _ in counts]
    for dx, dy in differences(points, labels, near[:, : counts[-1]]):
        square, product = ridge(dx), dx.new_zeros(())
        steps = itertools.pairwise([0, *counts])
        for part, (start, stop) in zip(parts, steps, strict=True):
            more = dx[:, start:stop]
            square = square + more.mT @ more
            product = product + more.mT @ dy[:, start:stop, None]
            part.append(torch.linalg.solve(square, product).squeeze(-1))
    return [torch.cat(part) for part in parts]


def level_means(
    codes: NDArray[Any], labels: NDArray[Any], cardinalities: tuple[int, ...]
) -> list[NDArray[np.float32]]:
    """Return the mean label of each category's levels; at -1, of no level, is zero.

    Zero is the mean label of all rows. A level that occurs once has it too.
    """
    means = []
    for column, n_levels in zip(codes.T, cardinalities, strict=True):
        count = np.bincount(column + 1, minlength=n_levels + 1)[1:]
        total = np.bincount(column + 1, labels, minlength=n_levels + 1)[1:]
        mean = np.where(count > 1, total / np.maximum(count, 1), 0.0)
        means.append(np.append(mean, 0.0).astype(np.float32))
    return means


# --- the scale ------------------------------------------------------------------------


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
        near = nearest(points * scale, n_neighbors).position
        errors = fit_errors(points, labels, near)
        rows = torch.randperm(len(points), generator=order).to(points.device)
        for row in rows.split(BATCH_SIZE):
            square = (points[near[row]] - points[row][:, None]).square()
            scale = scale - LEARNING_RATE * scale_gradient(scale, square, errors[row])
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


# --- linear fits ----------------------------------------------------------------------


def differences(
    points: Tensor, labels: Tensor, near: Tensor
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield, some rows at a time, features (r, m, p) and labels (r, m) of neighbours.

    They are differences from the row itself.
    """
    rows = torch.arange(len(points), device=points.device)
    for row in rows.split(rows_at_a_time(near.shape[1], points.shape[1])):
        index = near[row]
        yield points[index] - points[row][:, None], labels[index] - labels[row][:, None]


def ridge(dx: Tensor) -> Tensor:
    """Return the penalty (p, p) of slopes for features (..., p)."""
    return RIDGE * torch.eye(dx.shape[-1], device=dx.device, dtype=dx.dtype)


def rows_at_a_time(m: int, n_features: int) -> int:
    """Return for how many rows neighbours' features fit into a bounded memory."""
    return max(1, _CELLS // max(1, m * n_features))
