"""Differential nearest neighbours regression, DNNR (Nader et al., 2022).

Each training row has a gradient: the linear fit to its own k' nearest rows. A query's
k nearest rows each predict their label plus their gradient times the difference of
features; the mean of the k is the prediction. Features may be multiplied by a learned
scale before. All searches are ours and exact.

As in the runs behind the paper's figures features are those of the networks, the fits
are ridge regressions with a penalty of 1e-6, and the scales of all epochs are tried.
The order of rows in training a scale matters: between seeds the error differs by 2 %.

NOTE[DIFF]: the grid of k' is that of the paper for its small tables; for large ones it
ends at 12 for each feature.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tabr.bench.methods.base import (
    ArrayMethod,
    Encoded,
    Floats,
    Setting,
    Trial,
    one_hot,
)
from tabr.bench.methods.dnnr_scaling import (
    differences,
    learned_scales,
    nearest,
    ridge,
    rows_at_a_time,
)
from tabr.errors import ParameterError
from tabr.metrics import Score
from tabr.tables.preprocessor import Arrays
from tabr.tables.targets import Outcome

MOST = 128  # neighbours that are tried
EPOCHS = 10  # of training a scale
FACTORS = tuple(np.linspace(2, 18, 20).tolist())  # k' for each feature
PER_FEATURE = "8 for each feature"
SIZES = (PER_FEATURE, 2, 3, 4, 8, 16, 32, 64, 96, 128)  # rows that train a scale

Size = int | Literal["8 for each feature"]


class Choice(NamedTuple):
    """What the validation part has chosen, where it was not given."""

    k: int
    n_derivative: int
    scaling_neighbors: int  # 0 is no scale
    scaling_epochs: int


class DNNR(ArrayMethod):
    """Predict by the neighbours' labels and the slopes around them.

    Parameters that are None are chosen by the validation part, which is the paper's
    grid search; `chosen` tells what came out. All k cost one search.
    """

    outcomes: ClassVar[tuple[Outcome, ...]] = ("regression",)
    needs_no_tuning: ClassVar[bool] = True

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
        """Check the numbers.

        Args:
            setting: What table and machine decide.
            seed: Decides the order of rows when a scale is trained.
            k: Neighbours of a query.
            derivative_factor: Neighbours of a gradient, for each feature.
            scaling_neighbors: Rows that train the scale at each row, itself among
                them; 0 means no scale.
            scaling_epochs: Epochs of training the scale.
            categories: What becomes of a category. "mean label" is the published
                "leave-one-out", where rows to be encoded were never left out.
        """
        super().__init__(setting, seed)
        counts = {"k": k, "scaling_epochs": scaling_epochs}
        for name, count in {**counts, "derivative_factor": derivative_factor}.items():
            if count is not None and count <= 0:
                raise ParameterError(
                    f"`{name} > 0` must hold, however: {name}={count!r}"
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

    @staticmethod
    def space(trial: Trial, **fixed: Any) -> dict[str, Any]:
        """Choose from the paper's grid; k and the epoch are chosen in each fit."""
        chosen: dict[str, Any] = {
            "derivative_factor": trial.suggest_categorical("derivative_factor", FACTORS)
        }
        if not trial.suggest_categorical("scaling", [False, True]):
            return {**chosen, "scaling_neighbors": 0}
        name = "scaling_neighbors"
        return {**chosen, name: trial.suggest_categorical(name, SIZES)}

    # --- fit ------------------------------------------------------------------------

    def _fit(self, train: Encoded, val: Encoded, score: Score) -> None:
        self.labels = torch.from_numpy(train.labels).to(self.device).double()
        if self.categories == "mean label":
            levels = self.preprocessor.cardinalities
            self.means = level_means(train.arrays.cat, train.labels, levels)
        points, queries = self._points(train.arrays), self._points(val.arrays)
        n_rows, n_features = points.shape
        given = self.derivative_factor
        sizes = {
            max(1, min(round(factor * n_features), n_rows - 1))
            for factor in (FACTORS if given is None else (given,))
        }
        counts = sorted(sizes)
        ks = range(1, MOST + 1) if self.k is None else range(self.k, self.k + 1)
        ks = range(min(ks.start, n_rows), min(ks.stop, n_rows + 1))

        best = -np.inf
        for size, epoch, scale in self._scales(points):
            scaled, asking = points * scale, queries * scale
            near = nearest(scaled, max(counts))
            found = nearest(scaled, ks.stop - 1, asking)
            slopes = gradients(scaled, self.labels, near, counts)
            for count, slope in zip(counts, slopes, strict=True):
                surface = Surface(scaled, slope, self.labels - (slope * scaled).sum(1))
                means = surface.means(asking, found)
                for k in ks:
                    value = score(self.decoded(means[:, k - 1]))
                    if value > best:
                        best, self.chosen = value, Choice(k, count, size, epoch)
                        self.scale, self.surface = scale, surface

    def _scales(self, points: Tensor) -> Iterator[tuple[int, int, Tensor]]:
        """Yield scales (p,) to be tried: rows and epochs of their training first."""
        n_rows, n_features = points.shape
        given, last = self.scaling_neighbors, self.scaling_epochs or EPOCHS
        tried = (0, *SIZES) if given is None else (given,)
        sizes = {8 * n_features if size == PER_FEATURE else size for size in tried}
        has_any = False
        for size in sorted({min(int(size), n_rows) for size in sizes} - {0}):
            scales = learned_scales(points, self.labels, size - 1, last, self.seed)
            for epoch, scale in enumerate(scales, 1):
                if self.scaling_epochs in (None, epoch):
                    has_any = True
                    yield size, epoch, scale
        if 0 in sizes or not has_any:
            yield 0, 0, torch.ones_like(points[0])

    # --- predict ----------------------------------------------------------------------

    def _predict(self, arrays: Arrays) -> Floats:
        queries = self._points(arrays) * self.scale
        found = nearest(self.surface.points, self.chosen.k, queries)
        return self.surface.means(queries, found)[:, -1]

    def _points(self, arrays: Arrays) -> Tensor:
        if self.categories == "one-hot":
            matrix: Floats = one_hot(arrays, self.preprocessor.cardinalities)
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

    def means(self, queries: Tensor, found: Tensor) -> Floats:
        """Return (b, k): predictions by the first 1, 2, ... rows of found (b, k)."""
        size = rows_at_a_time(found.shape[1], queries.shape[1])
        parts = [
            (self.slopes[index] @ query[..., None]).squeeze(-1) + self.intercepts[index]
            for query, index in zip(queries.split(size), found.split(size), strict=True)
        ]
        places = torch.arange(1, found.shape[1] + 1, device=found.device)
        means: Floats = (torch.cat(parts).cumsum(1) / places).cpu().numpy()
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
