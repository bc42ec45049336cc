"""XGBoost (Chen and Guestrin, 2016) with the paper's settings and tuning space.

It sees raw numbers and one-hot categories. It minimises the squared error or the
log-loss, and stops by the RMSE or the share of wrong classes, as the published runs,
unless the setting has another scoring.

NOTE[DIFF]: the published runs used an older version on a GPU (`gpu_hist`, a constant
`base_score`); here it is `hist` of the installed version, which takes its first guess
from the labels, on a GPU only if the library was built for one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from tabr.bench.methods.base import Encoded, Floats
from tabr.bench.methods.boosting import PATIENCE, Boosting
from tabr.bench.methods.spaces import Integer, LogUniform, Space, Uniform, ZeroOr
from tabr.config import Task
from tabr.device.devices import choose_device
from tabr.metrics import Score
from tabr.optional import require
from tabr.tables.preprocessor import Arrays

# The loss, and the measure that decides about the number of trees.
LOSSES: dict[Task, tuple[str, str]] = {
    "regression": ("reg:squarederror", "rmse"),
    "binary": ("binary:logistic", "error"),
    "classes": ("multi:softprob", "merror"),
}


class XGBoost(Boosting):
    """Gradient boosted trees of XGBoost; the defaults are the library's."""

    libraries = ("xgboost",)
    defaults: ClassVar[Mapping[str, Any]] = {
        "learning_rate": 0.3,
        "max_depth": 6,
        "min_child_weight": 1.0,
        "subsample": 1.0,
        "colsample_bytree": 1.0,
        "gamma": 0.0,
        "reg_lambda": 1.0,
    }
    search_space: ClassVar[Space] = {
        "colsample_bytree": Uniform(0.5, 1.0),
        "gamma": ZeroOr(LogUniform(1e-3, 100.0)),
        "reg_lambda": ZeroOr(LogUniform(0.1, 10.0)),
        "learning_rate": LogUniform(1e-3, 1.0),
        "max_depth": Integer(3, 14),
        "min_child_weight": LogUniform(1e-4, 100.0),
        "subsample": Uniform(0.5, 1.0),
        "patience": PATIENCE,
    }
    published_names: ClassVar[Mapping[str, str]] = {
        **{name: f"model.{name}" for name in defaults},
        "reg_lambda": "model.lambda",
        "n_trees": "model.n_estimators",
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
            "eval_metric": self.eval_metrics([metric]),
            "tree_method": "hist",
            "device": str(self.device),
            "seed": self.seed,
            "nthread": self.setting.n_threads or 0,
        }
        if self.task == "classes":
            options["num_class"] = self.target.n_classes
        self.booster = library.train(
            options,
            self._matrix(train.arrays, label=train.labels),
            num_boost_round=self.n_trees,
            evals=[(self._matrix(val.arrays, label=val.labels), "val")],
            early_stopping_rounds=self.patience,
            verbose_eval=False,
        )
        self.best_epoch = self.booster.best_iteration + 1

    def _predict(self, arrays: Arrays) -> Floats:
        output: Floats = self.booster.predict(
            self._matrix(arrays), iteration_range=(0, self.best_epoch)
        )
        return self._final(output)

    def _matrix(self, arrays: Arrays, **labels: Any) -> Any:
        """Return rows in the library's own form."""
        library = require("xgboost", extra="boost")
        rows = self._one_hot(arrays)
        return library.DMatrix(rows, nthread=self.setting.n_threads, **labels)
