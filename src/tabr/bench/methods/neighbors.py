"""Retrieval for methods that have none: the average of a row's neighbours as columns.

Appendix "Augmenting XGBoost with a retrieval component" of the TabR paper: the mean
features and the mean label of the m = 96 nearest training rows join the row's own.
Features are those that the method sees, categories one-hot. Labels are standardised
values, the share of the second of two classes, or the shares of all. A training row is
never its own neighbour.

NOTE[DIFF]: the paper's text lets one think of raw numbers in the search. Its figures
come out if numbers are scaled as for networks and kNN, and not if they are raw: so they
are scaled here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from tabr.bench.methods.base import ArrayMethod, Encoded, Floats, Setting, check_minimum
from tabr.bench.methods.knn import nearest
from tabr.bench.methods.xgboost import XGBoost
from tabr.device.devices import choose_device
from tabr.metrics import Score
from tabr.tables.normalize import Normalizer
from tabr.tables.preprocessor import Arrays


class WithNeighbors(ArrayMethod):
    """A method that reads arrays, with the average of neighbours as more numbers.

    Name it before the method: `class MLPWithNeighbors(WithNeighbors, MLP)`. Parameters
    and tuning space remain those of the method.
    """

    def __init__(
        self, setting: Setting, seed: int, *, n_neighbors: int = 96, **params: Any
    ) -> None:
        """Check the number of neighbours; `params` are the method's."""
        super().__init__(setting, seed, **params)
        check_minimum(1, n_neighbors=n_neighbors)
        self.n_neighbors = n_neighbors

    def _fit(self, train: Encoded, val: Encoded, score: Score) -> None:
        device = choose_device(self.setting.device)
        labels = torch.from_numpy(train.labels).to(device)[:, None]
        if self.task == "classes":
            labels = F.one_hot(labels[:, 0], self.target.n_classes)
        features = torch.from_numpy(self._one_hot(train.arrays)).to(device)
        self.values = torch.cat([features, labels.float()], 1)  # (n, d + v)

        scaled = self.normalization != "none" or not self.setting.normalized
        self.normalizer = Normalizer.fit(
            train.arrays.num.astype(np.float64),
            "none" if scaled else "published-quantile",
            seed=0,  # of the preprocessing, the same for all runs
        )
        self.points = self._points(train.arrays)
        arrays = self._joined(train.arrays, is_train=True)
        super()._fit(  # type: ignore[safe-super]  # the method's
            dataclasses.replace(train, arrays=arrays),
            dataclasses.replace(val, arrays=self._joined(val.arrays)),
            score,
        )

    def _predict(self, arrays: Arrays) -> Floats:
        return super()._predict(self._joined(arrays))  # type: ignore[safe-super]

    # --- the neighbours -------------------------------------------------------------

    def _points(self, arrays: Arrays) -> Tensor:
        """Return where rows are in the space of the search, (n, d)."""
        num = self.normalizer.transform(arrays.num.astype(np.float64))
        vectors = self._one_hot(dataclasses.replace(arrays, num=num))
        return torch.from_numpy(vectors).to(self.values.device)

    def _joined(self, arrays: Arrays, *, is_train: bool = False) -> Arrays:
        """Return rows with the means of their neighbours as further numbers."""
        queries = None if is_train else self._points(arrays)
        neighbors = nearest(self.points, self.n_neighbors, queries)
        exists = neighbors.found.float()  # not all do, in a table with few rows
        total = F.embedding_bag(
            neighbors.position, self.values, mode="sum", per_sample_weights=exists
        )
        mean = total / exists.sum(1, keepdim=True).clamp(min=1)
        num = np.concatenate([arrays.num, mean.cpu().numpy()], axis=1)
        return dataclasses.replace(arrays, num=num)


class XGBoostWithNeighbors(WithNeighbors, XGBoost):
    """The paper's "XGBoost + retrieval"."""

    published_names: ClassVar[Mapping[str, str]] = {
        **XGBoost.published_names,
        "n_neighbors": "neighbors.k",
    }
