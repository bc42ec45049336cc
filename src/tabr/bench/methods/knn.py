"""k nearest neighbours in the space of the prepared features, by our exact search.

The features are those of the networks: scaled numbers, binary columns, one-hot
categories. Values are the mean of the neighbours' labels, probabilities the share of
their classes; all neighbours weigh alike.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from tabr.bench.methods.base import (
    ArrayMethod,
    Encoded,
    Floats,
    Setting,
    Trial,
    one_hot,
)
from tabr.errors import ParameterError
from tabr.metrics import Score
from tabr.search import top
from tabr.tables.preprocessor import Arrays

MOST = 128  # neighbours that are tried


class KNN(ArrayMethod):
    """Predict the mean label of the k nearest training rows.

    Without a k all from 1 to 128 are tried on the validation part, at the cost of one
    search: which is the paper's tuning.
    """

    needs_no_tuning: ClassVar[bool] = True

    def __init__(self, setting: Setting, seed: int, *, k: int | None = None) -> None:
        """Check k."""
        super().__init__(setting, seed)
        if k is not None and k < 1:
            raise ParameterError(f"`k >= 1` must hold, however: {k=}")
        self.k = k

    @staticmethod
    def space(trial: Trial, **fixed: Any) -> dict[str, Any]:
        """Choose k."""
        return {"k": trial.suggest_int("k", 1, MOST)}

    def _fit(self, train: Encoded, val: Encoded, score: Score) -> None:
        points = self._points(train.arrays)
        self.center = points.mean(0)
        self.points = points - self.center
        labels = torch.from_numpy(train.labels).to(self.device)
        if self.task == "regression":
            self.values = labels.double()[:, None]
        else:
            codes = torch.arange(self.target.n_classes, device=self.device)
            self.values = (labels[:, None] == codes).double()
        if self.k is None:
            means = self._means(val.arrays, min(MOST, train.n_rows))
            scores = [score(self.decoded(mean)) for mean in means]
            self.k = int(np.argmax(scores)) + 1
        self.k = min(self.k, train.n_rows)

    def _predict(self, arrays: Arrays) -> Floats:
        assert self.k is not None
        return self._means(arrays, self.k)[-1]

    def _points(self, arrays: Arrays) -> Tensor:
        matrix = one_hot(arrays, self.preprocessor.cardinalities)
        return torch.from_numpy(matrix).to(self.device)

    def _means(self, arrays: Arrays, most: int) -> list[Floats]:
        """Return predictions by the mean of the first 1, 2, ... neighbours."""
        queries = 2 * (self._points(arrays) - self.center)
        offsets = -self.points.square().sum(1)
        near = top(queries, self.points, offsets, most).position  # (n, most)
        total = torch.zeros_like(self.values[near[:, 0]])
        means: list[Floats] = []
        for k in range(most):
            total = total + self.values[near[:, k]]
            mean = (total / (k + 1)).cpu().numpy()
            means.append(mean[:, 0] if self.task == "regression" else mean)
        return means
