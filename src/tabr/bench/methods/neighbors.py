"""Retrieval for methods that have none: a row is told of its neighbours' average.

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
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from tabr.bench.methods.base import ArrayMethod, Encoded, Floats, Setting, one_hot
from tabr.bench.methods.xgboost import XGBoost
from tabr.device.devices import choose_device
from tabr.errors import ParameterError
from tabr.metrics import Score
from tabr.search import top
from tabr.tables.normalize import Normalizer
from tabr.tables.preprocessor import Arrays


class WithNeighbors(ArrayMethod):
    """Give any method that reads arrays its rows' neighbours as more numbers.

    Name it before the method: `class Both(WithNeighbors, XGBoost)`. Parameters and
    tuning space remain those of the method.
    """

    def __init__(
        self, setting: Setting, seed: int, *, n_neighbors: int = 96, **params: Any
    ) -> None:
        """Check the number of neighbours; `params` are the method's."""
        super().__init__(setting, seed, **params)
        if n_neighbors < 1:
            raise ParameterError(
                f"`n_neighbors >= 1` must hold, however: {n_neighbors=}"
            )
        self.n_neighbors = n_neighbors

    def _fit(self, train: Encoded, val: Encoded, score: Score) -> None:
        self._remember(train)
        own = torch.arange(train.n_rows, device=self.points.device)
        super()._fit(  # type: ignore[safe-super]  # the method's own
            dataclasses.replace(train, arrays=self._joined(train.arrays, own)),
            dataclasses.replace(val, arrays=self._joined(val.arrays)),
            score,
        )

    def _predict(self, arrays: Arrays) -> Floats:
        return super()._predict(self._joined(arrays))  # type: ignore[safe-super]

    # --- the neighbours -------------------------------------------------------------

    def _remember(self, train: Encoded) -> None:
        """Keep where the training rows are, and what is averaged over them."""
        device = choose_device(self.setting.device)
        labels = torch.from_numpy(train.labels).to(device)[:, None]
        if self.task == "classes":
            labels = labels == torch.arange(self.n_outputs, device=device)
        features = torch.from_numpy(self._vectors(train.arrays)).to(device)
        self.values = torch.cat([features, labels.float()], 1)  # (n, d + v)

        scaled = self.normalization != "none" or not self.setting.normalized
        self.normalizer = Normalizer.fit(
            train.arrays.num.astype(np.float64),
            "none" if scaled else "published-quantile",
            seed=0,  # of the preprocessing, the same for all runs
        )
        points = self._points(train.arrays)
        self.center = points.mean(0)  # distances stay, rounding errors shrink
        self.points = points - self.center

    def _vectors(self, arrays: Arrays) -> NDArray[np.float32]:
        """Return rows as vectors (n, d)."""
        return one_hot(arrays, self.preprocessor.cardinalities)

    def _points(self, arrays: Arrays) -> Tensor:
        """Return where rows are in the space of the search, (n, d)."""
        num = self.normalizer.transform(arrays.num.astype(np.float64))
        vectors = self._vectors(dataclasses.replace(arrays, num=num))
        return torch.from_numpy(vectors).to(self.values.device)

    def _joined(self, arrays: Arrays, own: Tensor | None = None) -> Arrays:
        """Return rows with their neighbours' means as further numbers."""
        near = top(
            2 * (self._points(arrays) - self.center),
            self.points,
            -self.points.square().sum(1),
            self.n_neighbors,
            exclude=own,
        )
        found = near.found.float()  # not all, in a table with few rows
        total = F.embedding_bag(
            near.position, self.values, mode="sum", per_sample_weights=found
        )
        mean = total / found.sum(1, keepdim=True).clamp(min=1)
        num = np.concatenate([arrays.num, mean.cpu().numpy()], axis=1)
        return dataclasses.replace(arrays, num=num)


class XGBoostWithNeighbors(WithNeighbors, XGBoost):
    """The paper's "XGBoost + retrieval"."""

    @staticmethod
    def published(config: Mapping[str, Any]) -> dict[str, Any]:
        """Translate a published tuned configuration."""
        return {**XGBoost.published(config), "n_neighbors": config["neighbors"]["k"]}
