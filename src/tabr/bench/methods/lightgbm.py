"""LightGBM (Ke et al., 2017) with the paper's settings and tuning space.

It sees raw numbers and one-hot categories. It minimises the squared error or the
log-loss. As in the published runs a classifier is watched by two measures, the share of
wrong classes and the log-loss. Training ends as soon as one of them has not improved
for `patience` rounds, and this one decides the number of trees. If none ends it, the
first decides. A scoring of the setting is the only measure.

NOTE[DIFF]: the published runs set `bagging_fraction` without `bagging_freq`, by which
the library draws no rows at all; the parameter is kept, and does as little here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from tabr.bench.methods.base import Encoded, Floats
from tabr.bench.methods.boosting import PATIENCE, Boosting
from tabr.bench.methods.spaces import Integer, LogUniform, Space, Uniform, ZeroOr
from tabr.config import Task
from tabr.metrics import Score
from tabr.optional import require
from tabr.tables.preprocessor import Arrays

# The loss, and the measures that decide about the number of trees.
LOSSES: dict[Task, tuple[str, list[str]]] = {
    "regression": ("regression", ["rmse"]),
    "binary": ("binary", ["binary_error", "binary_logloss"]),
    "classes": ("multiclass", ["multi_error", "multi_logloss"]),
}


class LightGBM(Boosting):
    """Gradient boosted trees of LightGBM; the defaults are the library's."""

    libraries = ("lightgbm",)
    defaults: ClassVar[Mapping[str, Any]] = {
        "learning_rate": 0.1,
        "num_leaves": 31,
        "min_sum_hessian_in_leaf": 1e-3,
        "feature_fraction": 1.0,
        "bagging_fraction": 1.0,
        "lambda_l2": 0.0,
    }
    search_space: ClassVar[Space] = {
        "feature_fraction": Uniform(0.5, 1.0),
        "lambda_l2": ZeroOr(LogUniform(0.1, 10.0)),
        "learning_rate": LogUniform(1e-3, 1.0),
        "num_leaves": Integer(4, 768),
        "min_sum_hessian_in_leaf": LogUniform(1e-4, 100.0),
        "bagging_fraction": Uniform(0.5, 1.0),
        "patience": PATIENCE,
    }
    published_names: ClassVar[Mapping[str, str]] = {
        **{name: f"model.{name}" for name in defaults},
        "n_trees": "model.n_estimators",
    }

    def _fit(self, train: Encoded, val: Encoded, score: Score) -> None:
        library = require("lightgbm", extra="boost")
        objective, metrics = LOSSES[self.task]
        options = {
            **self.options,
            "objective": objective,
            "metric": self.eval_metrics(metrics),
            "seed": self.seed,
            "num_threads": self.setting.n_threads or 0,
            # Otherwise a race between two ways of summing decides about rounding.
            "deterministic": True,
            "force_col_wise": True,
            "verbosity": -1,
        }
        if self.task == "classes":
            options["num_class"] = self.target.n_classes
        rows = library.Dataset(self._one_hot(train.arrays), train.labels)
        held_out = rows.create_valid(self._one_hot(val.arrays), val.labels)
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
            self._one_hot(arrays),
            num_iteration=self.best_epoch,
            num_threads=self.setting.n_threads or 0,
        )
        return self._final(output)
