"""The common part of the three libraries of boosted trees."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import torch

from tabr.bench.methods.base import ArrayMethod, Floats, Setting, check_minimum
from tabr.config import Task
from tabr.errors import ParameterError

PATIENCE = 200  # rounds, of the tuned configurations

# What each library calls a measure of a task, or one of the same order.
EVAL_METRICS: Mapping[tuple[str, Task], Mapping[str, str]] = {
    ("rmse", "regression"): {"xgboost": "rmse", "lightgbm": "rmse", "catboost": "RMSE"},
    ("mae", "regression"): {"xgboost": "mae", "lightgbm": "mae", "catboost": "MAE"},
    ("r2", "regression"): {"xgboost": "rmse", "lightgbm": "rmse", "catboost": "RMSE"},
    ("accuracy", "binary"): {
        "xgboost": "error",
        "lightgbm": "binary_error",
        "catboost": "Accuracy",
    },
    ("accuracy", "classes"): {
        "xgboost": "merror",
        "lightgbm": "multi_error",
        "catboost": "Accuracy",
    },
    ("balanced-accuracy", "binary"): {"catboost": "BalancedAccuracy"},
    ("log-loss", "binary"): {
        "xgboost": "logloss",
        "lightgbm": "binary_logloss",
        "catboost": "Logloss",
    },
    ("log-loss", "classes"): {
        "xgboost": "mlogloss",
        "lightgbm": "multi_logloss",
        "catboost": "MultiClass",
    },
    ("roc-auc", "binary"): {"xgboost": "auc", "lightgbm": "auc", "catboost": "AUC"},
    ("average-precision", "binary"): {"lightgbm": "average_precision"},
}
# What is nearest, where there is none: areas between points joined by other lines, and
# of several classes means that weigh them otherwise.
NEAREST_METRICS: Mapping[tuple[str, Task], Mapping[str, str]] = {
    ("roc-auc", "classes"): {
        "xgboost": "auc",
        "lightgbm": "auc_mu",
        "catboost": "AUC:type=Mu",
    },
    ("average-precision", "binary"): {"xgboost": "aucpr", "catboost": "PRAUC"},
    ("average-precision", "classes"): {"xgboost": "aucpr"},
}


class Boosting(ArrayMethod):
    """Trees one after another on raw numbers, cut to the best number of them.

    The default configuration grows all trees: 3999 rounds of patience never end before
    the 4000th tree, unless the first one was the best. Tuned configurations stop after
    200 rounds.

    Attributes:
        defaults: The parameters of the library that can be chosen.
    """

    normalization = "none"
    extra = "boost"
    defaults: ClassVar[Mapping[str, Any]]

    def __init__(
        self,
        setting: Setting,
        seed: int,
        *,
        n_trees: int = 4000,
        patience: int = 3999,
        **options: Any,
    ) -> None:
        """Check the parameters.

        At most `n_trees` grow, until `patience` rounds do not improve; `options` are
        parameters of the library, instead of its defaults.
        """
        super().__init__(setting, seed)
        check_minimum(1, n_trees=n_trees, patience=patience)
        unknown = sorted(options.keys() - self.defaults.keys())
        if unknown:
            raise ParameterError(
                f"{type(self).__name__} takes n_trees, patience,"
                f" {', '.join(self.defaults)}; however, {', '.join(unknown)} came"
            )
        self.n_trees, self.patience = n_trees, patience
        self.options = {**self.defaults, **options}
        self.device = torch.device("cpu")  # unless the library can do otherwise

    @classmethod
    def published(cls, config: Mapping[str, Any]) -> dict[str, Any]:
        """Return the constructor's parameters for a published tuned configuration."""
        params = super().published(config)
        params.setdefault("patience", PATIENCE)
        return params

    def eval_metrics(self, usual: Sequence[str]) -> list[str]:
        """Return the library's names of what decides about the number of trees.

        It is the setting's scoring, or what is nearest, or else what is usual; the
        last two are told as `stopped_by`.
        """
        scoring, library = self.setting.scoring, self.libraries[0]
        if scoring is None:
            return list(usual)
        key = scoring, self.task
        same = EVAL_METRICS.get(key, {}).get(library)
        if same is not None:
            return [same]
        nearest = NEAREST_METRICS.get(key, {}).get(library)
        names = list(usual) if nearest is None else [nearest]
        self.stopped_by = " and ".join(names)
        return names

    def _final(self, output: Floats) -> Floats:
        """Return probabilities of both classes, where a library gives the second's."""
        if self.task == "binary":
            return np.stack([1 - output, output], axis=1)
        return output
