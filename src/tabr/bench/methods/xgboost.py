"""XGBoost (Chen and Guestrin, 2016) with the paper's settings and tuning space.

It sees raw numbers and one-hot categories. It minimises the squared error or the
log-loss, and stops by the RMSE or the share of wrong classes, as the published runs.

NOTE[DIFF]: the published runs used an older version on a GPU (`gpu_hist`, a constant
`base_score`); here it is `hist` of the installed version, which takes its first guess
from the labels, on a GPU only if the library was built for one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tabr.bench.methods.base import Encoded, Floats, Setting, Trial, zero_or
from tabr.bench.methods.boosting import PATIENCE, Boosting
from tabr.config import Task
from tabr.device.devices import choose_device
from tabr.metrics import Score
from tabr.optional import require
from tabr.tables.preprocessor import Arrays

# What is minimised, and what decides about the number of trees.
LOSSES: dict[Task, tuple[str, str]] = {
    "regression": ("reg:squarederror", "rmse"),
    "binary": ("binary:logistic", "error"),
    "classes": ("multi:softprob", "merror"),
}


class XGBoost(Boosting):
    """Gradient boosted trees of XGBoost; the defaults are the library's."""

    extra, libraries = "boost", ("xgboost",)

    def __init__(
        self,
        setting: Setting,
        seed: int,
        *,
        learning_rate: float = 0.3,
        max_depth: int = 6,
        min_child_weight: float = 1.0,
        subsample: float = 1.0,
        colsample_bytree: float = 1.0,
        gamma: float = 0.0,
        reg_lambda: float = 1.0,
        **stopping: Any,
    ) -> None:
        """Keep the library's parameters; `stopping` is what `Boosting` takes."""
        super().__init__(setting, seed, **stopping)
        self.options: dict[str, Any] = {
            "learning_rate": learning_rate,
            "max_depth": max_depth,
            "min_child_weight": min_child_weight,
            "subsample": subsample,
            "colsample_bytree": colsample_bytree,
            "gamma": gamma,
            "reg_lambda": reg_lambda,
        }

    @staticmethod
    def space(trial: Trial, **fixed: Any) -> dict[str, Any]:
        """Choose as in the paper's tuning of XGBoost."""
        return {
            "colsample_bytree": trial.suggest_float("colsample_bytree", 0.5, 1.0),
            "gamma": zero_or(trial, "gamma", 1e-3, 100.0),
            "reg_lambda": zero_or(trial, "reg_lambda", 0.1, 10.0),
            "learning_rate": trial.suggest_float("learning_rate", 1e-3, 1.0, log=True),
            "max_depth": trial.suggest_int("max_depth", 3, 14),
            "min_child_weight": trial.suggest_float(
                "min_child_weight", 1e-4, 100.0, log=True
            ),
            "subsample": trial.suggest_float("subsample", 0.5, 1.0),
            "patience": PATIENCE,
        }

    def _fit(self, train: Encoded, val: Encoded, score: Score) -> None:
        library = require("xgboost", extra="boost")
        device = choose_device(self.setting.device)
        if device.type == "cuda" and library.build_info().get("USE_CUDA", False):
            self.device = device
        objective, metric = LOSSES[self.task]
        options = {
            **self.options,
            "objective": objective,
            "eval_metric": metric,
            "tree_method": "hist",
            "device": str(self.device),
            "seed": self.seed,
            "nthread": self.setting.n_threads or 0,
        }
        if self.task == "classes":
            options["num_class"] = self.target.n_classes
        self.booster = library.train(
            options,
            self._labelled(train),
            num_boost_round=self.n_trees,
            evals=[(self._labelled(val), "val")],
            early_stopping_rounds=self.patience,
            verbose_eval=False,
        )
        self.best_epoch = self.booster.best_iteration + 1

    def _predict(self, arrays: Arrays) -> Floats:
        output: Floats = self.booster.predict(
            self._rows(arrays), iteration_range=(0, self.best_epoch)
        )
        return self._final(output)

    def _labelled(self, part: Encoded) -> Any:
        return self._rows(part.arrays, label=part.labels)

    def _rows(self, arrays: Arrays, **more: Any) -> Any:
        library = require("xgboost", extra="boost")
        matrix = self._matrix(arrays)
        return library.DMatrix(matrix, nthread=self.setting.n_threads, **more)

    @staticmethod
    def published(config: Mapping[str, Any]) -> dict[str, Any]:
        """Translate a published tuned configuration."""
        model = config["model"]
        same = (
            "learning_rate max_depth min_child_weight subsample colsample_bytree gamma"
        )
        return {
            **{name: model[name] for name in same.split()},
            "reg_lambda": model["lambda"],
            "n_trees": model["n_estimators"],
            "patience": PATIENCE,
        }
