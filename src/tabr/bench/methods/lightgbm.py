"""LightGBM (Ke et al., 2017) with the paper's settings and tuning space.

It sees raw numbers and one-hot categories. It minimises the squared error or the
log-loss. As in the published runs a classifier is watched by two measures, the share of
wrong classes and the log-loss; whichever first has not improved for `patience` rounds
ends the training and tells the number of trees, and the first does if neither ends it.

NOTE[DIFF]: the published runs set `bagging_fraction` without `bagging_freq`, by which
the library draws no rows at all; the parameter is kept, and does as little here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tabr.bench.methods.base import Encoded, Floats, Setting, Trial, zero_or
from tabr.bench.methods.boosting import PATIENCE, Boosting
from tabr.config import Task
from tabr.metrics import Score
from tabr.optional import require
from tabr.tables.preprocessor import Arrays

# What is minimised, and what decides about the number of trees.
LOSSES: dict[Task, tuple[str, list[str]]] = {
    "regression": ("regression", ["rmse"]),
    "binary": ("binary", ["binary_error", "binary_logloss"]),
    "classes": ("multiclass", ["multi_error", "multi_logloss"]),
}


class LightGBM(Boosting):
    """Gradient boosted trees of LightGBM; the defaults are the library's."""

    extra, libraries = "boost", ("lightgbm",)

    def __init__(
        self,
        setting: Setting,
        seed: int,
        *,
        learning_rate: float = 0.1,
        num_leaves: int = 31,
        min_sum_hessian_in_leaf: float = 1e-3,
        feature_fraction: float = 1.0,
        bagging_fraction: float = 1.0,
        lambda_l2: float = 0.0,
        **stopping: Any,
    ) -> None:
        """Keep the library's parameters; `stopping` is what `Boosting` takes."""
        super().__init__(setting, seed, **stopping)
        self.options: dict[str, Any] = {
            "learning_rate": learning_rate,
            "num_leaves": num_leaves,
            "min_sum_hessian_in_leaf": min_sum_hessian_in_leaf,
            "feature_fraction": feature_fraction,
            "bagging_fraction": bagging_fraction,
            "lambda_l2": lambda_l2,
        }

    @staticmethod
    def space(trial: Trial, **fixed: Any) -> dict[str, Any]:
        """Choose as in the paper's tuning of LightGBM."""
        return {
            "feature_fraction": trial.suggest_float("feature_fraction", 0.5, 1.0),
            "lambda_l2": zero_or(trial, "lambda_l2", 0.1, 10.0),
            "learning_rate": trial.suggest_float("learning_rate", 1e-3, 1.0, log=True),
            "num_leaves": trial.suggest_int("num_leaves", 4, 768),
            "min_sum_hessian_in_leaf": trial.suggest_float(
                "min_sum_hessian_in_leaf", 1e-4, 100.0, log=True
            ),
            "bagging_fraction": trial.suggest_float("bagging_fraction", 0.5, 1.0),
            "patience": PATIENCE,
        }

    def _fit(self, train: Encoded, val: Encoded, score: Score) -> None:
        library = require("lightgbm", extra="boost")
        objective, metrics = LOSSES[self.task]
        options = {
            **self.options,
            "objective": objective,
            "metric": metrics,
            "seed": self.seed,
            "num_threads": self.setting.n_threads or 0,
            # Otherwise a race between two ways of summing decides about rounding.
            "deterministic": True,
            "force_col_wise": True,
            "verbosity": -1,
        }
        if self.task == "classes":
            options["num_class"] = self.target.n_classes
        rows = library.Dataset(self._matrix(train.arrays), train.labels)
        held_out = rows.create_valid(self._matrix(val.arrays), val.labels)
        self.booster = library.train(
            options,
            rows,
            num_boost_round=self.n_trees,
            valid_sets=[held_out],
            callbacks=[library.early_stopping(self.patience, verbose=False)],
        )
        self.best_epoch = self.booster.best_iteration

    def _predict(self, arrays: Arrays) -> Floats:
        output: Floats = self.booster.predict(
            self._matrix(arrays),
            num_iteration=self.best_epoch,
            num_threads=self.setting.n_threads or 0,
        )
        return self._final(output)

    @staticmethod
    def published(config: Mapping[str, Any]) -> dict[str, Any]:
        """Translate a published tuned configuration."""
        model = config["model"]
        names = (
            "learning_rate",
            "num_leaves",
            "min_sum_hessian_in_leaf",
            "feature_fraction",
            "bagging_fraction",
            "lambda_l2",
        )
        return {
            **{name: model[name] for name in names},
            "n_trees": model["n_estimators"],
            "patience": PATIENCE,
        }
