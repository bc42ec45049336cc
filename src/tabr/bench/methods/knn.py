"""k nearest neighbours in the space of the prepared features, by our exact search.

The features are those of the networks: scaled numbers, binary columns, one-hot
categories. Values are the mean of the neighbours' labels, probabilities the share of
their classes; all neighbours weigh alike.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from tabr.bench.methods.base import ArrayMethod, Encoded, Floats, Setting, check_minimum
from tabr.bench.methods.spaces import Integer, Space
from tabr.metrics import Score
from tabr.search import Neighbors, top
from tabr.tables.preprocessor import Arrays

MAX_NEIGHBORS = 128  # that are tried


def nearest(points: Tensor, m: int, queries: Tensor | None = None) -> Neighbors:
    """Return the m nearest of points (n, p) for each query (b, p), nearest first.

    Without queries these are the points themselves, each without itself.
    """
    center = points.mean(0)  # distances stay, rounding errors shrink
    vectors = (points - center).float()
    offsets = -vectors.square().sum(1)
    if queries is None:
        positions = torch.arange(len(points), device=points.device)
        return top(2 * vectors, vectors, offsets, m, exclude=positions)
    return top(2 * (queries - center).float(), vectors, offsets, m)


class KNN(ArrayMethod):
    """The mean label of the k nearest training rows.

    Without a k all from 1 to 128 are tried on the validation part, at the cost of one
    search: this is the paper's tuning.
    """

    needs_no_tuning = True
    search_space: ClassVar[Space] = {"k": Integer(1, MAX_NEIGHBORS)}

    def __init__(self, setting: Setting, seed: int, *, k: int | None = None) -> None:
        super().__init__(setting, seed)
        check_minimum(1, k=k)
        self.k = k

    def _fit(self, train: Encoded, val: Encoded, score: Score) -> None:
        self.points = self._points(train.arrays)
        labels = torch.from_numpy(train.labels).to(self.device)
        if self.task == "regression":
            self.values = labels.double()[:, None]
        else:
            self.values = F.one_hot(labels, self.target.n_classes).double()
        if self.k is None:
            means = self._means(val.arrays, min(MAX_NEIGHBORS, train.n_rows))
            scores = [score(self.decoded(mean)) for mean in means]
            self.k = int(np.argmax(scores)) + 1
        self.k = min(self.k, train.n_rows)

    def _predict(self, arrays: Arrays) -> Floats:
        assert self.k is not None
        return self._means(arrays, self.k)[-1]

    def _points(self, arrays: Arrays) -> Tensor:
        return torch.from_numpy(self._one_hot(arrays)).to(self.device)

    def _means(self, arrays: Arrays, n_neighbors: int) -> list[Floats]:
        """Return predictions by the mean of the first 1, 2, ... neighbours."""
        near = nearest(self.points, n_neighbors, self._points(arrays)).position
        total = torch.zeros_like(self.values[near[:, 0]])
        means: list[Floats] = []
        for k in range(n_neighbors):
            total = total + self.values[near[:, k]]
            mean = (total / (k + 1)).cpu().numpy()
            means.append(mean[:, 0] if self.task == "regression" else mean)
        return means
